"""A world in which a strategy can be run in milliseconds: candidates with known true scores, coin-flip rollouts."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field
from typing import Any

from metaharness.candidate import candidate_id
from metaharness.protocols import (
    Dispatched,
    Evaluate,
    ProposalEnded,
    Propose,
    RolloutEnded,
    Room,
    SearchSetup,
    Stop,
    Strategy,
    TaskRef,
    Wait,
)
from metaharness.score import Score
from metaharness.task import Part
from metaharness.trajectory import RolloutStatus
from metaharness.unit import ProposalRecord, RolloutRecord, RolloutUnit


def tasks(environment: str, part: Part, count: int, weight: float = 1.0) -> tuple[TaskRef, ...]:
    return tuple(
        TaskRef(environment=environment, task=f"{environment}-{part}-{number:04d}", weight=weight / count)
        for number in range(count)
    )


@dataclass
class World:
    """`truth` by candidate id; a child's truth is its base's plus a step drawn from `steps`."""

    truth: dict[str, float]
    steps: tuple[float, ...] = (0.1, 0.05, -0.05, -0.1)
    failing: frozenset[str] = frozenset()
    noisy: bool = True
    rollouts: list[RolloutUnit] = field(default_factory=list)
    parents: dict[str, tuple[str, ...]] = field(default_factory=dict)
    seed: int = 0

    def run(self, unit: RolloutUnit) -> RolloutRecord:
        self.rollouts.append(unit)
        if unit.candidate in self.failing:
            return RolloutRecord(unit=unit, status=RolloutStatus.HARNESS_ERROR, error="broken")
        key = f"{self.seed}:{unit.candidate}:{unit.task}:{unit.attempt}"
        draw = random.Random(hashlib.sha256(key.encode()).digest()).random()
        truth = self.truth[unit.candidate]
        reward = float(draw < truth) if self.noisy else truth
        return RolloutRecord(unit=unit, status=RolloutStatus.SCORED, score=Score(reward=reward))

    def propose(self, number: int, parents: tuple[str, ...]) -> ProposalRecord:
        name = candidate_id(len(self.truth))
        draw = random.Random(f"{self.seed}:{number}")
        self.truth[name] = min(1.0, max(0.0, self.truth[parents[0]] + draw.choice(self.steps)))
        self.parents[name] = parents
        return ProposalRecord(number=number, parents=parents, proposer="simulated", candidate=name)


def search(strategy: Strategy[Any], setup: SearchSetup, world: World, rollouts: int) -> tuple[Any, str]:
    """Run a strategy to its end, one decision at a time; returns its last state and the reason to stop."""
    state = strategy.start(setup)
    proposals = 0
    while True:
        room = Room(rollouts=rollouts - len(world.rollouts), fraction=1 - len(world.rollouts) / rollouts)
        decision = strategy.decide(state, room)
        match decision:
            case Stop(reason=reason):
                return state, reason
            case Wait():
                raise AssertionError("waits although nothing is under way")
            case Evaluate(unit=unit):
                assert unit not in world.rollouts, "a rollout is asked for twice"
                state = strategy.observe(state, Dispatched(decision=decision))
                state = strategy.observe(state, RolloutEnded(record=world.run(unit)))
            case Propose(parents=parents):
                state = strategy.observe(state, Dispatched(decision=decision))
                state = strategy.observe(state, ProposalEnded(record=world.propose(proposals, parents)))
                proposals += 1
