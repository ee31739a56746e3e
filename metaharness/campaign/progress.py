"""What can be said of a running campaign at any moment; commands render it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from metaharness.budget import Caps, Usage
from metaharness.score import Estimate
from metaharness.unit import ProposalRecord, RolloutRecord


@dataclass(slots=True, kw_only=True)
class Progress:
    """A live view; the campaign changes it, observers only read.

    Attributes:
        name: Name of the campaign.
        phase: `search`, `race`, `controls`, `test` or `done`.
        caps: Hard caps of the budget.
        spent: What is spent, over all resumes.
        running_s: Seconds of running, over all resumes.
        planned: Rollouts that the current phase has planned; None when it is open.
        done: Rollouts that the current phase has finished.
        best: Id of the best candidate so far.
        best_val: Its val estimate; exploratory, it was selected on.
        seed_val: Val estimate of the first seed.
        candidates: Candidates so far.
        proposals: Latest proposals, newest last.
        missing: Rollouts that infrastructure broke for good.
        last: The rollout that ended last.
        notes: Warnings for the reader.
    """

    name: str
    phase: str = "search"
    caps: Caps
    spent: Usage = field(default_factory=Usage)
    running_s: float = 0.0
    planned: int | None = None
    done: int = 0
    best: str | None = None
    best_val: Estimate | None = None
    seed_val: Estimate | None = None
    candidates: int = 0
    proposals: list[ProposalRecord] = field(default_factory=list)
    missing: int = 0
    last: RolloutRecord | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def fraction(self) -> float:
        """Share of the tightest cap that is used, in [0, 1]."""
        shares = [
            used / cap
            for used, cap in (
                (self.spent.rollouts, self.caps.rollouts),
                (self.spent.tokens, self.caps.tokens),
                (self.spent.cost_usd, self.caps.usd),
                (self.running_s / 3600, self.caps.hours),
            )
            if cap
        ]
        return min(1.0, max(shares, default=0.0))

    @property
    def seconds_left(self) -> float | None:
        """Estimate from the tightest cap and the pace so far; None before there is a pace."""
        if self.phase == "done":
            return 0.0
        if self.fraction <= 0.02 or self.running_s <= 0:
            return None
        left = self.running_s * (1 - self.fraction) / self.fraction
        if self.caps.hours is not None:
            left = min(left, max(0.0, self.caps.hours * 3600 - self.running_s))
        return left


Observer = Callable[[Progress], None]
