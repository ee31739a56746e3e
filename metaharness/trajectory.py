"""Trajectories: what happened in a rollout, recorded on the trusted side, as ATIF.

The Agent Trajectory Interchange Format is written as v1.7 and read from v1.0 to v1.8. What is ours goes under
`extra.metaharness`.
"""

from __future__ import annotations

import json
import os
import re
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from metaharness.errors import ArchiveError
from metaharness.validation import first_error

ATIF_VERSION = "ATIF-v1.7"


class RolloutStatus(StrEnum):
    """How a rollout ended.

    `infra_error` is never a score: it is retried, then missing. `harness_error` has reward 0.
    """

    SCORED = "scored"
    HARNESS_ERROR = "harness_error"
    INFRA_ERROR = "infra_error"
    BUDGET_STOPPED = "budget_stopped"
    CANCELLED = "cancelled"


class _Atif(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Agent(_Atif):
    """Who acted."""

    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None
    extra: dict[str, Any] | None = None


class AtifToolCall(_Atif):
    """A tool call of an agent step."""

    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]
    extra: dict[str, Any] | None = None


class ObservationResult(_Atif):
    """What came back for one tool call (or for none)."""

    source_call_id: str | None = None
    content: str | list[dict[str, Any]] | None = None
    subagent_trajectory_ref: list[dict[str, Any]] | None = None
    extra: dict[str, Any] | None = None


class Observation(_Atif):
    """What came back after a step."""

    results: list[ObservationResult] = Field(default_factory=list)


class Metrics(_Atif):
    """Tokens and dollars of an agent step; `prompt_tokens` includes the cached ones."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    extra: dict[str, Any] | None = None


class Step(_Atif):
    """One step; ids count from 1."""

    step_id: int
    timestamp: str | None = None
    source: Literal["system", "user", "agent"]
    message: str | list[dict[str, Any]] = ""
    model_name: str | None = None
    reasoning_effort: str | float | None = None
    reasoning_content: str | None = None
    tool_calls: list[AtifToolCall] | None = None
    observation: Observation | None = None
    metrics: Metrics | None = None
    is_copied_context: bool | None = None
    llm_call_count: int | None = None
    extra: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Step:
        if self.source != "agent":
            for name in ("model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} is only allowed in agent steps")
        known = {call.tool_call_id for call in self.tool_calls or ()}
        for result in self.observation.results if self.observation else ():
            if result.source_call_id is not None and result.source_call_id not in known:
                raise ValueError(f"source_call_id {result.source_call_id!r} names no tool call of this step")
        return self


class FinalMetrics(_Atif):
    """Totals."""

    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: float | None = None
    total_steps: int | None = None
    extra: dict[str, Any] | None = None


class Trajectory(_Atif):
    """One rollout as ATIF."""

    schema_version: str = ATIF_VERSION
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: Agent
    steps: list[Step] = Field(min_length=1)
    notes: str | None = None
    final_metrics: FinalMetrics | None = None
    continued_trajectory_ref: str | None = None
    extra: dict[str, Any] | None = None
    subagent_trajectories: list[dict[str, Any]] | None = None

    @model_validator(mode="after")
    def _well_formed(self) -> Trajectory:
        match = re.fullmatch(r"ATIF-v1\.(\d+)", self.schema_version)
        if not match or int(match.group(1)) > 8:
            raise ValueError(f"schema_version {self.schema_version!r} is not ATIF-v1.0 to ATIF-v1.8")
        if [step.step_id for step in self.steps] != list(range(1, len(self.steps) + 1)):
            raise ValueError("step_id must count 1, 2, …")
        return self

    @property
    def ours(self) -> dict[str, Any]:
        """What stands under `extra.metaharness`: unit, status, answer, score, error, harness log."""
        found = (self.extra or {}).get("metaharness", {})
        return found if isinstance(found, dict) else {}

    def to_text(self) -> str:
        """Return indented JSON with a final newline, absent fields left out: made to be grepped."""
        return json.dumps(self.model_dump(exclude_none=True), ensure_ascii=False, indent=1) + "\n"


def read_trajectory(path: Path) -> Trajectory:
    """Read a trajectory file.

    Raises:
        ArchiveError: It cannot be read or is no ATIF.
    """
    try:
        return Trajectory.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ArchiveError(f"{path}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise ArchiveError(f"{path}: not an ATIF trajectory: {first_error(error, Trajectory)}") from error


def write_durably(path: Path, data: bytes) -> None:
    """Write a file so that after a crash it is there whole or not at all: temporary file, fsync, rename, fsync."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())
    temporary.replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
