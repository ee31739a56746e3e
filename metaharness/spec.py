"""`CampaignSpec`: campaign.toml as a validated value."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from metaharness.budget import Caps
from metaharness.errors import SpecError
from metaharness.job import Limits
from metaharness.validation import first_error

NAME_PATTERN = r"^[a-z0-9][a-z0-9_.-]{0,62}$"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _Plain(_Section):
    """A section of plain values, where `"80"` and `true` are no numbers."""

    model_config = ConfigDict(strict=True)


class PriceSpec(_Plain):
    """Token prices in US dollars per million tokens; override the dated table."""

    input_usd_per_mtok: float = Field(ge=0)
    output_usd_per_mtok: float = Field(ge=0)
    cached_usd_per_mtok: float | None = Field(default=None, ge=0)


class ModelSpec(_Plain):
    """[model]: what the harnesses call.

    Attributes:
        ref: `provider/model`.
        temperature: Default sampling temperature; a harness may pass its own.
        base_url: For OpenAI-compatible endpoints.
        api_key_env: Name of the environment variable that holds the key; default by provider.
        price: Overrides the price table.
        allow_unknown_price: Run although no price is known (costs then count as 0 dollars).
        timeout_s: Seconds for one call.
        retries: Retries of a call after a provider error.
    """

    ref: str = Field(pattern=r"^[a-z0-9_-]+/.+$")
    temperature: float = Field(default=0.0, ge=0, le=2)
    base_url: str | None = Field(default=None, pattern=r"^https?://\S+$")
    api_key_env: str | None = None
    price: PriceSpec | None = None
    allow_unknown_price: bool = False
    timeout_s: float = Field(default=120.0, gt=0)
    retries: int = Field(default=4, ge=0, le=20)


class EnvironmentSpec(_Plain):
    """[[environments]]: a reference, its weight in the mean, and optional caps on tasks per split.

    A cap takes the first tasks in an order given by their digests, so that it is the same in every run.
    """

    ref: str = Field(min_length=1)
    weight: float = Field(default=1.0, gt=0)
    max_train: int | None = Field(default=None, ge=1)
    max_val: int | None = Field(default=None, ge=1)
    max_test: int | None = Field(default=None, ge=1)


class ProposerSpec(_Section):
    """[[proposers]]: a kind, its share of the proposals, and the harnesses that it may borrow from."""

    kind: str = Field(min_length=1)
    share: float = Field(default=1.0, gt=0)
    donors: tuple[str, ...] | None = None


class StrategySpec(_Section):
    """[strategy]: a kind and its own options."""

    kind: str = "greedy"
    options: dict[str, Any] = Field(default_factory=dict)


class BudgetSpec(_Plain):
    """[budget]: hard caps; at least one must be set.

    Attributes:
        rollouts: Rollouts of any purpose, final test and controls included.
        proposals: Proposals, whatever becomes of them.
        usd: Dollars of all model calls.
        tokens: Input and output tokens of all model calls.
        hours: Wall-clock hours of running, over all resumes.
    """

    rollouts: int | None = Field(default=None, gt=0)
    proposals: int | None = Field(default=None, gt=0)
    usd: float | None = Field(default=None, gt=0)
    tokens: int | None = Field(default=None, gt=0)
    hours: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _some_cap(self) -> BudgetSpec:
        if all(value is None for value in (self.rollouts, self.usd, self.tokens, self.hours, self.proposals)):
            raise ValueError("set at least one of rollouts, proposals, usd, tokens, hours")
        return self

    def caps(self) -> Caps:
        """Return the caps."""
        return Caps(**self.model_dump())


class SandboxSpec(_Plain):
    """[sandbox]: engine and limits, see `Limits`."""

    engine: str = "auto"
    memory_mb: int = Field(default=512, ge=64, le=1_048_576)
    cpus: float = Field(default=1.0, gt=0, le=1024)
    timeout_s: float = Field(default=120.0, gt=0, le=86_400)
    processes: int = Field(default=64, ge=4, le=100_000)
    work_mb: int = Field(default=64, ge=1, le=1_048_576)
    output_kb: int = Field(default=256, ge=1, le=65_536)

    def limits(self) -> Limits:
        """Return the limits of one rollout."""
        return Limits(**self.model_dump(exclude={"engine"}))


class FinalSpec(_Section):
    """[final]: how the campaign ends.

    Attributes:
        test: `once` reads the test split for the winner, the best seed and the controls; `none` never reads it.
        finalists: Candidates that are raced on fresh val attempts before one is chosen.
        race_share: Share of the rollout budget for that race.
        controls: What the winner is measured against besides the seed: `bundled` (the best unevolved bundled harness,
            chosen on val) and `neighbours` (a nearest-neighbour vote over the fit examples, without a model).
    """

    test: Literal["once", "none"] = "once"
    finalists: int = Field(default=8, ge=1, le=64)
    race_share: float = Field(default=0.1, ge=0, le=0.5)
    controls: tuple[Literal["bundled", "neighbours"], ...] = ()


class CampaignSpec(_Section):
    """campaign.toml.

    Attributes:
        schema_version: 1.
        name: Name of the campaign in the archive.
        seeds: Bundled names, directories, or `archive:<campaign>/<candidate>`.
        scope: `harness` lets proposers change every editable file, `prompts` only prompts.
        random_seed: Seeds every random choice of the search.
        concurrency: Rollouts in parallel.
    """

    schema_version: Literal[1]
    name: str = Field(pattern=NAME_PATTERN)
    seeds: tuple[str, ...] = Field(min_length=1)
    scope: Literal["harness", "prompts"] = "harness"
    random_seed: int = Field(default=0, ge=0)
    concurrency: int = Field(default=2, ge=1, le=1024)
    model: ModelSpec
    environments: tuple[EnvironmentSpec, ...] = Field(min_length=1)
    proposers: Annotated[tuple[ProposerSpec, ...], Field(min_length=1)] = (ProposerSpec(kind="codemods"),)
    strategy: StrategySpec = StrategySpec()
    budget: BudgetSpec
    sandbox: SandboxSpec = SandboxSpec()
    final: FinalSpec = FinalSpec()

    @field_validator("seeds")
    @classmethod
    def _distinct(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value):
            raise ValueError("a seed is named twice")
        return value


def parse_spec(text: str, where: str = "campaign.toml") -> CampaignSpec:
    """Parse the text of a campaign.toml.

    Args:
        text: TOML.
        where: File name for messages.

    Raises:
        SpecError: One line that names file and field.
    """
    try:
        data: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{where}: not valid TOML: {error}") from error
    try:
        return CampaignSpec.model_validate(data)
    except ValidationError as error:
        raise SpecError(f"{where}: {first_error(error, CampaignSpec)}") from error


def load_spec(path: Path) -> CampaignSpec:
    """Read a campaign.toml.

    Raises:
        SpecError: It is missing, unreadable or not valid.
    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError as error:
        raise SpecError(f"{path}: no such file (`metaharness demo --spec-only` prints one to start from)") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: cannot be read: {error}") from error
    return parse_spec(text, str(path))
