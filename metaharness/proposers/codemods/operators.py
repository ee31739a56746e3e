"""The table of operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from metaharness.proposers.codemods import combine, graft, move_constant, rewrite_prompt, wrap_retry, wrap_vote
from metaharness.proposers.codemods.evidence import Evidence
from metaharness.proposers.codemods.material import Material, Move

IDLE = 0.02
"""Weight of a repair where there is nothing to repair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A kind of change.

    Attributes:
        moves: Lists the changes that it could make.
        weight: How promising it is before anything is known, 1 is usual.
        aims: Names the field of `Evidence` with the practice tasks that it is for.
        steered: How much a full share of those failures adds to its weight.
        repairs: Whether it can help nothing but those failures.
    """

    moves: Callable[[Material], list[Move]]
    weight: float = 1.0
    aims: str = "wrong"
    steered: float = 0.0
    repairs: bool = False

    def promise(self, evidence: Evidence) -> float:
        """Return its weight in the light of how the base fails."""
        share = evidence.share(getattr(evidence, self.aims))
        weight = IDLE if self.repairs and evidence.rollouts and not share else self.weight
        return weight + self.steered * share


OPERATORS: Mapping[str, Operator] = {
    move_constant.NAME: Operator(moves=move_constant.moves, weight=0.7),
    rewrite_prompt.NAME: Operator(moves=rewrite_prompt.moves, weight=0.6),
    wrap_vote.NAME: Operator(moves=wrap_vote.moves, weight=0.4),
    wrap_retry.NAME: Operator(moves=wrap_retry.moves, weight=0.3, aims="unusable", steered=0.7, repairs=True),
    graft.NAME: Operator(moves=graft.moves, weight=0.9, steered=0.6),
    combine.NAME: Operator(moves=combine.moves, weight=1.2),
}
"""Operators by name. Grafts change most: they come first while much is wrong, numbers and words later."""
