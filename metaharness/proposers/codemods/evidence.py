"""What the history says: how earlier attempts did, and how the base fails."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metaharness.runtime.history import (
    candidate_ids,
    read_manifest,
    read_proposals,
    read_rollouts,
    read_scorecard,
)

_WRONG_FORM = re.compile(
    r"not one of the|empty answer|a JSON object|not just a number|only the form|not match the pattern|; at most"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How often something helped.

    Attributes:
        wins: Children that did better than their base.
        losses: Children that did not, and proposals that became no candidate.
    """

    wins: int = 0
    losses: int = 0

    def draw(self, dice: random.Random) -> float:
        """Draw a rate of success from the posterior Beta(1 + wins, 1 + losses)."""
        return dice.betavariate(1 + self.wins, 1 + self.losses)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known before a proposal is made.

    Attributes:
        operators: Tally by operator.
        targets: Tally by operator and target: the first two words of a mechanism.
        mechanisms: Tally by mechanism: operator, target and, for example, donor.
        rollouts: Practice rollouts of the base that count.
        wrong: Digests of its practice tasks without the full reward on any attempt.
        malformed: Digests of those whose answer had the wrong form.
        crashed: Digests of those on which it ended in an error.
        settled: Steps of the base that were changed on its way from a seed, and did better for it.
        behind: Candidates that do worse than the base.
    """

    operators: Mapping[str, Tally] = field(default_factory=dict)
    targets: Mapping[str, Tally] = field(default_factory=dict)
    mechanisms: Mapping[str, Tally] = field(default_factory=dict)
    rollouts: int = 0
    wrong: tuple[str, ...] = ()
    malformed: tuple[str, ...] = ()
    crashed: tuple[str, ...] = ()
    settled: frozenset[str] = frozenset()
    behind: frozenset[str] = frozenset()

    @property
    def unusable(self) -> tuple[str, ...]:
        """Practice tasks on which there was no answer that could be right: of the wrong form, or none at all."""
        return tuple(dict.fromkeys((*self.malformed, *self.crashed)))

    def tally(self, mechanism: str) -> Tally:
        """Return what is known of a mechanism; of all with its target where it has not been tried."""
        return self.mechanisms.get(mechanism) or self.targets.get(target_of(mechanism)) or Tally()

    def share(self, tasks: tuple[str, ...]) -> float:
        """Return the share of the base's practice rollouts that these tasks are, in [0, 1]."""
        return min(1.0, len(tasks) / self.rollouts) if self.rollouts else 0.0


def target_of(mechanism: str) -> str:
    """Return operator and target of a mechanism."""
    return " ".join(mechanism.split()[:2])


def gather(history: Path, base: str, proposer: str) -> Evidence:
    """Read what the history says.

    Args:
        history: Root of the history tree.
        base: Candidate that is to be changed.
        proposer: Name whose proposals count.
    """
    known = frozenset(candidate_ids(history))
    cards: dict[str, Mapping[str, Any]] = {}

    def card(candidate: str) -> Mapping[str, Any]:
        if candidate not in cards:
            cards[candidate] = (read_scorecard(history, candidate) or {}) if candidate in known else {}
        return cards[candidate]

    operators: dict[str, Tally] = {}
    targets: dict[str, Tally] = {}
    mechanisms: dict[str, Tally] = {}
    for row in read_proposals(history):
        mechanism = str(row.get("mechanism") or "")
        parents = row.get("parents") or []
        if row.get("proposer") != proposer or not mechanism or not parents:
            continue
        child = row.get("candidate")
        won: bool | None = False
        if row.get("verdict") == "accepted":
            won = _did_better(card(str(child)), card(str(parents[0])))
        if won is not None:
            keys = (mechanism.partition(" ")[0], target_of(mechanism), mechanism)
            for table, key in zip((operators, targets, mechanisms), keys, strict=True):
                before = table.get(key, Tally())
                table[key] = Tally(wins=before.wins + won, losses=before.losses + (not won))
    behind = frozenset(other for other in known if _did_better(card(base), card(other)))
    settled = _settled(history, base, known, card)
    return Evidence(
        operators=operators,
        targets=targets,
        mechanisms=mechanisms,
        settled=settled,
        behind=behind,
        **_failures(history, base, known),
    )


def _settled(
    history: Path, base: str, known: frozenset[str], card: Callable[[str], Mapping[str, Any]]
) -> frozenset[str]:
    """Follow the first parents from the base to a seed."""
    parent_of = {row["candidate"]: row["parents"][0] for row in read_proposals(history) if row["verdict"] == "accepted"}
    found: set[str] = set()
    current = base
    while current in known and current in parent_of:
        if _did_better(card(current), card(parent_of[current])):
            target = (read_manifest(history, current).get("extra") or {}).get("target", ())
            found.update([target] if isinstance(target, str) else target)
        current = parent_of.pop(current)
    return frozenset(found)


def _did_better(child: Mapping[str, Any], parent: Mapping[str, Any]) -> bool | None:
    """Compare the means on val, else on practice; None when one of them has none yet."""
    for part in ("val", "practice"):
        ours, theirs = (((one.get("parts") or {}).get(part) or {}).get("mean") for one in (child, parent))
        if ours is not None and theirs is not None:
            return bool(ours > theirs)
    return None


def _failures(history: Path, base: str, known: frozenset[str]) -> dict[str, Any]:
    rollouts = [one for one in read_rollouts(history, base) if one.reward is not None] if base in known else []
    solved = {one.task for one in rollouts if not one.failed}
    failed = [one for one in rollouts if one.failed and one.task not in solved]
    return {
        "rollouts": len({one.task for one in rollouts}),
        "wrong": _distinct(one.task for one in failed),
        "malformed": _distinct(one.task for one in failed if _WRONG_FORM.search(one.feedback)),
        "crashed": _distinct(one.task for one in failed if one.status == "harness_error"),
    }


def _distinct(tasks: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tasks))
