"""Sequential halving: which of a few candidates is best, for a fixed number of rollouts.

Source: Karnin, Koren, Somekh 2013, algorithm 1 (here with the evidence of earlier rounds kept).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from metaharness.protocols import TaskRef
from metaharness.unit import RolloutUnit

TaskAttempt = tuple[TaskRef, int]
Rewards = Callable[[RolloutUnit], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round of the race: how many candidates enter and how many tasks all of them have then been run on."""

    entrants: int
    tasks: int


def plan_rounds(entrants: int, rollouts: int, tasks: int) -> list[Round]:
    """Divide `rollouts` evenly over the rounds of a halving race.

    Args:
        entrants: Candidates that start, at least 1.
        rollouts: Most rollouts in all.
        tasks: Most tasks (and attempts) that there are for each.
    """
    if entrants <= 1 or rollouts < entrants:
        return []
    count = math.ceil(math.log2(entrants))
    rounds: list[Round] = []
    seen, left, remaining = 0, entrants, rollouts
    for number in range(count):
        more = min(remaining // (count - number) // left, tasks - seen)
        if more > 0:
            seen += more
            remaining -= more * left
            rounds.append(Round(entrants=left, tasks=seen))
        left = math.ceil(left / 2)
    return rounds


def race_order(tasks: Sequence[TaskRef], used: Callable[[TaskRef], int], rollouts_each: int) -> list[TaskAttempt]:
    """Return task and attempt pairs for a race, the freshest first.

    Args:
        tasks: Val tasks; the order among equals.
        used: How many attempts of a task any entrant has had in the search.
        rollouts_each: Most pairs that are needed.
    """
    order = sorted(tasks, key=used)
    pairs: list[TaskAttempt] = []
    lap = 0
    while order and len(pairs) < rollouts_each:
        pairs.extend((ref, used(ref) + lap) for ref in order)
        lap += 1
    return pairs[:rollouts_each]


def survivors(
    entrants: Sequence[str], rewards: Mapping[str, Mapping[tuple[str, str], float]], tasks: Sequence[TaskRef], keep: int
) -> list[str]:
    """Return the `keep` best of `entrants` by weighted mean on the tasks that all of them have; ties keep the order.

    A candidate without any reward comes last: it is indecisive, not 0.
    """
    shared = [
        ref for ref in tasks if all((ref.environment, ref.task) in rewards[name] for name in entrants if rewards[name])
    ]

    def mean(name: str) -> float:
        total = sum(ref.weight for ref in shared)
        if not rewards[name] or not total:
            return -1.0
        return sum(ref.weight * rewards[name][ref.environment, ref.task] for ref in shared) / total

    return sorted(entrants, key=lambda name: -mean(name))[:keep]
