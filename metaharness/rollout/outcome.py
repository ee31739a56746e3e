"""What came of a rollout, a fit or a check."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field

from metaharness.budget import Usage
from metaharness.score import Score
from metaharness.trajectory import RolloutStatus, Trajectory

MAX_ERROR_CHARS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutOutcome:
    """What came of one rollout.

    Attributes:
        status: How it ended.
        score: Present exactly when the status is `scored`.
        usage: What its model calls have cost (cached replies cost nothing); the rollout itself is not counted.
        seconds: Wall-clock seconds, preparation and scoring included.
        trajectory: What happened; None when nothing was started.
        error: One line for anything that is not `scored`; for `scored`, empty but when tidying up failed.
        answer: What the harness answered; online, the JSON list of all answers.
        stderr: What the harness printed, capped; a failure's traceback is its end.
    """

    status: RolloutStatus
    score: Score | None = None
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    trajectory: Trajectory | None = None
    error: str = ""
    answer: str | None = None
    stderr: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOutcome:
    """What came of `learn` and `save`.

    Attributes:
        status: `scored` when it worked (there is nothing to score in a fit), else how it failed.
        state: What `save` returned; None for a harness without `learn`.
        usage: What its model calls have cost.
        seconds: Wall-clock seconds.
        error: One line when it failed.
        stderr: As in `RolloutOutcome`.
    """

    status: RolloutStatus
    state: bytes | None = None
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    error: str = ""
    stderr: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Whether a harness can be imported and constructed.

    Attributes:
        status: `scored` when it can, `harness_error` when it cannot, `infra_error` when that could not be found out.
        methods: Which of learn, save, load and solve it has.
        asynchronous: Whether `solve` is an `async def`.
        seconds: Wall-clock seconds.
        error: One line when it cannot.
        stderr: As in `RolloutOutcome`.
    """

    status: RolloutStatus
    methods: tuple[str, ...] = ()
    asynchronous: bool = False
    seconds: float = 0.0
    error: str = ""
    stderr: str = ""

    @property
    def ok(self) -> bool:
        """Whether it can be imported and constructed."""
        return self.status is RolloutStatus.SCORED


def one_line(text: str, limit_chars: int = MAX_ERROR_CHARS) -> str:
    """Return text from a harness as one line: control and invisible characters become spaces, then it is cut."""
    plain = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in text[: 4 * limit_chars])
    line = " ".join(plain.split())
    return line if len(line) <= limit_chars else line[: limit_chars - 1] + "…"
