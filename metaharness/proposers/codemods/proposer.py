"""`Codemods`: changes a harness without a model."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metaharness.candidate import Manifest, Proposal
from metaharness.errors import ProposalFailed
from metaharness.proposers.codemods.evidence import Evidence, Tally, gather
from metaharness.proposers.codemods.material import Material, Move, Source, same_code_key
from metaharness.proposers.codemods.operators import OPERATORS
from metaharness.protocols import ProposalContext
from metaharness.runtime.history import HistoryError, candidate_ids, read_frontier, read_source
from metaharness.source import SourceTree

MOST_DONORS = 8
"""Leading candidates to graft from, besides the donors."""
MOST_AIMS = 20
"""Tasks named in a manifest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    move: Move
    tree: SourceTree
    tried: int


class Codemods:
    """Proposes by libcst operators: numbers, prompts, votes, retries, grafts and crossover.

    Operators are drawn by their past success (Thompson sampling over whether a child did better than its base), steered
    by how the base fails. Equal contexts give equal proposals.

    Args:
        donors: Harnesses to graft from, by name.
    """

    name = "codemods"

    def __init__(self, *, donors: Mapping[str, SourceTree]) -> None:
        self._donors = tuple(Source(name=name, tree=tree) for name, tree in sorted(donors.items()))
        self._keys: dict[str, str] = {}

    async def propose(self, context: ProposalContext) -> Sequence[Proposal]:
        """Return one changed harness that no candidate equals yet.

        Raises:
            ProposalFailed: No operator can change this harness into anything new, or the history cannot be read.
        """
        try:
            return [await asyncio.to_thread(self._propose, context)]
        except HistoryError as error:
            raise ProposalFailed(f"the history cannot be read: {error}") from error

    def _propose(self, context: ProposalContext) -> Proposal:
        base = context.parents[0]
        evidence = gather(context.history, base.id, self.name)
        known = _known_trees(context)
        material = Material(
            base=context.base,
            editable=context.editable,
            donors=(*self._donors, *_leading(context, known)),
            partner=_partner(context, known),
            evidence=evidence,
        )
        dice = random.Random(context.random_seed)  # noqa: S311 - a search, not a secret
        result = self._first_new(material, [context.base, *known.values()], dice)
        move = result.move
        parents = (base.id, move.donor) if move.donor and move.donor != base.id else (base.id,)
        extra: dict[str, Any] = {"operator": move.operator, **move.details, "moves_tried": result.tried}
        aims = getattr(evidence, OPERATORS[move.operator].aims)[:MOST_AIMS]
        return Proposal(
            parents=parents,
            tree=result.tree,
            manifest=Manifest(
                hypothesis=move.hypothesis[:2000], mechanism=move.mechanism, expected_flips=aims, extra=extra
            ),
            proposer=self.name,
        )

    def _first_new(self, material: Material, known: Sequence[SourceTree], dice: random.Random) -> _Result:
        """Make moves in the order of the draw until one gives a tree that is new in more than form."""
        keys = {self._key(tree) for tree in known}
        tried = 0
        for move in _drawn(material, dice):
            tried += 1
            tree = move.apply()
            if tree is not None and self._key(tree) not in keys:
                return _Result(move=move, tree=tree, tried=tried)
        if not tried:
            what = ", ".join(material.editable) or "nothing"
            raise ProposalFailed(f"no operator applies to this harness (editable: {what})")
        raise ProposalFailed(f"all {tried} possible changes give a harness that is there already, or do not fit")

    def _key(self, tree: SourceTree) -> str:
        if tree.digest not in self._keys:
            self._keys[tree.digest] = same_code_key(tree)
        return self._keys[tree.digest]


def _drawn(material: Material, dice: random.Random) -> Iterator[Move]:
    """Yield all moves: an operator is drawn by its success, then one of its moves likewise, without replacement."""
    evidence = material.evidence
    names = list(OPERATORS)
    left: dict[str, list[Move]] = {}
    while names:
        name = max(names, key=lambda name: _draw_operator(name, evidence, dice))
        if name not in left:
            left[name] = OPERATORS[name].moves(material)
        if not left[name]:
            names.remove(name)
            continue
        draws = [move.weight * evidence.tally(move.mechanism).draw(dice) for move in left[name]]
        yield left[name].pop(max(range(len(draws)), key=draws.__getitem__))


def _draw_operator(name: str, evidence: Evidence, dice: random.Random) -> float:
    return OPERATORS[name].promise(evidence) * evidence.operators.get(name, Tally()).draw(dice)


def _known_trees(context: ProposalContext) -> dict[str, SourceTree]:
    ids = candidate_ids(context.history)
    return {identifier: SourceTree(read_source(context.history, identifier)) for identifier in ids}


def _leading(context: ProposalContext, known: Mapping[str, SourceTree]) -> list[Source]:
    taken = {parent.id for parent in context.parents}
    leaders = [str(entry.get("candidate")) for entry in read_frontier(context.history)]
    leaders = [name for name in leaders if name in known and name not in taken][:MOST_DONORS]
    return [Source(name=name, tree=known[name], candidate=name) for name in leaders]


def _partner(context: ProposalContext, known: Mapping[str, SourceTree]) -> Source | None:
    for parent in context.parents[1:]:
        if parent.id in known:
            return Source(name=parent.id, tree=known[parent.id], candidate=parent.id)
    return None
