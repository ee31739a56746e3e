"""`EnvironmentConfig`: env.toml as a validated value."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, ValidationError, field_validator, model_validator

from metaharness.environments.scorers import SCORERS
from metaharness.environments.scorers.base import ScorerOptions
from metaharness.errors import EnvironmentFormatError, UserError
from metaharness.source import path_problem
from metaharness.task import Split
from metaharness.validation import first_error

CONFIG_FILE = "env.toml"
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SplitFiles(_Section):
    """[splits]: names of the task files, inside the environment's directory."""

    train: str = "train.jsonl"
    val: str = "val.jsonl"
    test: str = "test.jsonl"

    @field_validator("train", "val", "test")
    @classmethod
    def _inside(cls, value: str) -> str:
        if problem := path_problem(value):
            raise ValueError(f"{problem}; name a file inside the environment's directory")
        return value

    @model_validator(mode="after")
    def _distinct(self) -> SplitFiles:
        if len({self.train, self.val, self.test}) < 3:
            raise ValueError("two splits share a file")
        return self

    def of(self, split: Split) -> str:
        """Return the file of a split."""
        return {Split.TRAIN: self.train, Split.VAL: self.val, Split.TEST: self.test}[split]


class OnlineOptions(_Section):
    """[online]: how the tasks of a split become streams. Each task is in exactly one stream.

    Attributes:
        streams_per_split: Streams that each split is dealt into; they are the statistical unit.
        batch: Tasks that are answered before their labels are shown.
        seed: Seeds the order.
    """

    streams_per_split: int = Field(default=4, ge=1, le=10_000)
    batch: int = Field(default=8, ge=1, le=10_000)
    seed: int = Field(default=0, ge=0)


class EnvironmentConfig(_Section):
    """env.toml.

    Attributes:
        schema_version: 1.
        name: Name of the environment; part of every task's digest.
        description: One line.
        version: Version of its content, for people.
        protocol: `offline`, or `online`: a rollout is a whole stream.
        license: Licence of the data, as SPDX expression where there is one.
        instruction: What is to be done, for tasks that have no instruction of their own.
        choices: Allowed answers, for tasks that have no choices of their own.
        canary: Marker that the val and test files hold; the gate finds copies by it.
        splits: The task files.
        scorer: How answers are judged.
        online: Streams; only with `protocol = "online"`.
    """

    schema_version: Literal[1]
    name: str = Field(pattern=NAME_PATTERN)
    description: str = Field(default="", max_length=500)
    version: str = "1"
    protocol: Literal["offline", "online"] = "offline"
    license: str = ""
    instruction: str = ""
    choices: tuple[str, ...] | None = Field(default=None, min_length=1)
    canary: str = Field(default="", max_length=200)
    splits: SplitFiles = SplitFiles()
    scorer: SerializeAsAny[ScorerOptions]
    online: OnlineOptions | None = None

    @field_validator("choices")
    @classmethod
    def _choices(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if problem := choices_problem(value):
            raise ValueError(problem)
        return value

    @field_validator("canary")
    @classmethod
    def _long_enough(cls, value: str) -> str:
        if value and len(value.strip()) < 16:
            raise ValueError("a canary needs at least 16 characters, so that no text holds it by accident")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> EnvironmentConfig:
        if self.online is not None and self.protocol != "online":
            raise ValueError('[online] needs protocol = "online"')
        if self.choices is not None and not self.scorer.takes_choices:
            raise ValueError(f"choices: the scorer {self.scorer.kind} compares with no fixed choices")
        return self

    @property
    def streams(self) -> OnlineOptions | None:
        """[online] with its defaults; None for an offline environment."""
        return (self.online or OnlineOptions()) if self.protocol == "online" else None


def choices_problem(choices: tuple[str, ...] | None) -> str | None:
    """Return why choices cannot be used, or None."""
    if choices is None:
        return None
    if any(not choice.strip() for choice in choices):
        return "a choice is empty"
    return "a choice is named twice" if len(set(choices)) < len(choices) else None


def parse_config(text: str, where: str = CONFIG_FILE) -> EnvironmentConfig:
    """Parse the text of an env.toml.

    Args:
        text: TOML.
        where: File name for messages.

    Raises:
        EnvironmentFormatError: One line that names file and field.
    """
    try:
        data: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise EnvironmentFormatError(f"{where}: not valid TOML: {error}") from error
    except RecursionError as error:
        raise EnvironmentFormatError(f"{where}: not valid TOML: nested too deeply") from error
    if "scorer" in data:
        data["scorer"] = _scorer_options(data["scorer"], where)
    try:
        return EnvironmentConfig.model_validate(data)
    except ValidationError as error:
        raise EnvironmentFormatError(f"{where}: {first_error(error, EnvironmentConfig)}") from error


def _scorer_options(table: Any, where: str) -> ScorerOptions:
    if not isinstance(table, dict) or not isinstance(table.get("kind"), str):
        raise EnvironmentFormatError(f"{where}: scorer.kind: missing (known: {', '.join(sorted(SCORERS.targets()))})")
    try:
        options = SCORERS.load(table["kind"])
    except UserError as error:
        raise EnvironmentFormatError(f"{where}: scorer.kind: {error}") from error
    if not (isinstance(options, type) and issubclass(options, ScorerOptions)):
        raise EnvironmentFormatError(f"{where}: scorer.kind: {table['kind']!r} is no ScorerOptions class")
    try:
        return options.model_validate(table)
    except ValidationError as error:
        raise EnvironmentFormatError(f"{where}: scorer.{first_error(error, options)}") from error


def load_config(directory: Path) -> EnvironmentConfig:
    """Read the env.toml of a directory.

    Raises:
        EnvironmentFormatError: It is missing, unreadable or not valid.
    """
    path = directory / CONFIG_FILE
    if directory.exists() and not directory.is_dir():
        raise EnvironmentFormatError(f"{directory}: a file; an environment is a directory with an {CONFIG_FILE}")
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError as error:
        raise EnvironmentFormatError(f"{path}: no such file; an environment is a directory with one") from error
    except OSError as error:
        raise EnvironmentFormatError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise EnvironmentFormatError(f"{path}: not UTF-8 (byte {error.start})") from error
    return parse_config(text, str(path))
