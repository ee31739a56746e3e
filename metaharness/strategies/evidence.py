"""What a strategy knows of one candidate: rewards by task, as an immutable value."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from metaharness.protocols import TaskRef
from metaharness.task import Part
from metaharness.trajectory import RolloutStatus
from metaharness.unit import RolloutRecord, RolloutUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Rollouts of one candidate.

    Attributes:
        candidate: Its id.
        dispatched: Units that are under way.
        rewards: Reward by unit; None where it is missing.
        errors: Rollouts that ended as `harness_error`.
    """

    candidate: str
    dispatched: frozenset[RolloutUnit] = frozenset()
    rewards: Mapping[RolloutUnit, float | None] = field(default_factory=dict)
    errors: int = 0

    def dispatch(self, unit: RolloutUnit) -> Evidence:
        """Return the evidence with `unit` under way."""
        return replace(self, dispatched=self.dispatched | {unit})

    def add(self, record: RolloutRecord) -> Evidence:
        """Return the evidence with a finished rollout."""
        if record.status in (RolloutStatus.CANCELLED, RolloutStatus.BUDGET_STOPPED):
            return replace(self, dispatched=self.dispatched - {record.unit})
        return replace(
            self,
            dispatched=self.dispatched - {record.unit},
            rewards={**self.rewards, record.unit: record.reward},
            errors=self.errors + (record.status is RolloutStatus.HARNESS_ERROR),
        )

    def todo(self, units: Iterable[RolloutUnit]) -> list[RolloutUnit]:
        """Return those of `units` that are neither done nor under way."""
        return [unit for unit in units if unit not in self.rewards and unit not in self.dispatched]

    def done(self, units: Iterable[RolloutUnit]) -> bool:
        """Return whether all of `units` have ended."""
        return all(unit in self.rewards for unit in units)

    def by_task(self, part: Part) -> dict[tuple[str, str], float]:
        """Return mean rewards by (environment, task), missing ones left out."""
        values: dict[tuple[str, str], list[float]] = {}
        for unit, reward in self.rewards.items():
            if unit.part is part and reward is not None:
                values.setdefault((unit.environment, unit.task), []).append(reward)
        return {key: sum(found) / len(found) for key, found in values.items()}


def weighted_mean(values: Mapping[tuple[str, str], float], tasks: Iterable[TaskRef]) -> float:
    """Return the weighted mean over the tasks that have a value; NaN without any."""
    pairs = [(ref.weight, values[ref.environment, ref.task]) for ref in tasks if (ref.environment, ref.task) in values]
    total = sum(weight for weight, _ in pairs)
    return sum(weight * value for weight, value in pairs) / total if total else math.nan


def shuffled(tasks: Iterable[TaskRef], random_seed: int) -> tuple[TaskRef, ...]:
    """Return tasks in an order that depends on their digests and the seed alone, environments interleaved.

    Every prefix holds each environment about equally often, so that small looks are fair to all of them.
    """

    def key(ref: TaskRef) -> str:
        return hashlib.sha256(f"{random_seed}:{ref.environment}:{ref.task}".encode()).hexdigest()

    by_environment: dict[str, list[TaskRef]] = {}
    for ref in sorted(tasks, key=key):
        by_environment.setdefault(ref.environment, []).append(ref)
    places = [
        ((index + 0.5) / len(refs), name, ref)
        for name, refs in sorted(by_environment.items())
        for index, ref in enumerate(refs)
    ]
    return tuple(ref for _, _, ref in sorted(places, key=lambda place: place[:2]))


def units_of(candidate: str, part: Part, tasks: Iterable[TaskRef], attempt: int = 0) -> list[RolloutUnit]:
    """Return one unit for each task."""
    return [
        RolloutUnit(candidate=candidate, environment=ref.environment, part=part, task=ref.task, attempt=attempt)
        for ref in tasks
    ]
