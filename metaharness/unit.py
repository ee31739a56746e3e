"""The unit of work, one rollout, and the rows that the ledger keeps of rollouts and proposals."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from metaharness.budget import Usage
from metaharness.score import Score
from metaharness.task import Part
from metaharness.trajectory import RolloutStatus

CONTROL_PREFIX = "control-"
"""Begins the ids of harnesses that are measured beside the candidates and are none: `control-few_shot`."""


class Purpose(StrEnum):
    """Why a rollout was run; search-time evidence and final readings are never mixed."""

    SEARCH = "search"
    RACE = "race"
    CONTROL = "control"
    TEST = "test"


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutUnit:
    """One candidate on one task, attempt k: what is paid for once.

    Attributes:
        candidate: Candidate id inside its campaign.
        environment: Environment name.
        part: practice, val or test (fit tasks are never rolled out).
        task: Task digest.
        attempt: From 0.
    """

    candidate: str
    environment: str
    part: Part
    task: str
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRecord:
    """A finished rollout.

    Attributes:
        unit: What was run.
        purpose: Why.
        status: How it ended.
        score: Present exactly when the status is `scored`; `reward` gives 0 for `harness_error`.
        usage: What it has cost (cached replies cost nothing).
        seconds: Wall-clock seconds.
        trajectory: Path below the campaign's directory; empty when none was written.
        error: One line for anything that is not `scored`.
        answer_preview: First characters of the answer.
        inherited_from: Candidate with the same tree whose rollout this repeats, if any.
        finished_at: Unix time in seconds.
    """

    unit: RolloutUnit
    purpose: Purpose = Purpose.SEARCH
    status: RolloutStatus
    score: Score | None = None
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    trajectory: str = ""
    error: str = ""
    answer_preview: str = ""
    inherited_from: str | None = None
    finished_at: float = 0.0

    @property
    def reward(self) -> float | None:
        """Reward in [0, 1]; 0 for `harness_error`; None when it is missing (never a score)."""
        if self.status is RolloutStatus.SCORED and self.score is not None:
            return self.score.reward
        return 0.0 if self.status is RolloutStatus.HARNESS_ERROR else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalRecord:
    """A finished proposal.

    Attributes:
        number: From 0, in the order in which proposals were started.
        parents: Candidate ids; the first is the base.
        proposer: Name of the proposer.
        mechanism: From the manifest; for `codemods`, the operator.
        candidate: Id of the new candidate, or None when the gate stopped it or none was made.
        verdict: `accepted`, `duplicate`, `rejected` or `failed`.
        reason: Finding or error in one line.
        usage: What it has cost.
        seconds: Wall-clock seconds.
        finished_at: Unix time in seconds.
    """

    number: int
    parents: tuple[str, ...]
    proposer: str
    mechanism: str = ""
    candidate: str | None = None
    verdict: str = "accepted"
    reason: str = ""
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    finished_at: float = 0.0
