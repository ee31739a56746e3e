from __future__ import annotations

from typing import Any

import pytest

from metaharness.errors import SpecError, UserError
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
    Wait,
)
from metaharness.strategies import strategy_registry
from metaharness.strategies.evidence import shuffled
from metaharness.task import Part
from metaharness.trajectory import RolloutStatus
from metaharness.unit import ProposalRecord, RolloutRecord
from tests.strategies.simulation import World, search, tasks

NAMES = ["greedy", "independent"]


def setup(**options: Any) -> SearchSetup:
    both = {part: tasks("env", part, 60) for part in (Part.PRACTICE, Part.VAL)}
    return SearchSetup(seeds=("c0000",), tasks=both, options=options)


@pytest.fixture(params=NAMES)
def strategy(request: pytest.FixtureRequest) -> Strategy[Any]:
    return strategy_registry().load(request.param)()


def test_stays_within_its_rollouts_and_never_repeats_one(strategy: Strategy[Any]) -> None:
    world = World(truth={"c0000": 0.3})
    state, reason = search(strategy, setup(), world, rollouts=500)
    assert len(world.rollouts) == 500
    assert "used up" in reason
    found = strategy.finalists(state, 4)
    assert 1 <= len(found) <= 4
    assert len(set(found)) == len(found)


def test_greedy_climbs_and_beats_independent() -> None:
    truth = {}
    for name in NAMES:
        scores = []
        for seed in range(4):
            world = World(truth={"c0000": 0.2}, seed=seed)
            chosen: Strategy[Any] = strategy_registry().load(name)()
            state, _ = search(chosen, setup(), world, rollouts=1200)
            scores.append(world.truth[chosen.finalists(state, 1)[0]])
        truth[name] = sum(scores) / len(scores)
    assert truth["greedy"] > 0.4
    assert truth["greedy"] > truth["independent"] > 0.2


def test_a_broken_challenger_costs_only_the_first_look() -> None:
    world = World(truth={"c0000": 0.3}, failing=frozenset({"c0001"}))
    search(strategy_registry().load("greedy")(), setup(practice=8), world, rollouts=200)
    assert sum(unit.candidate == "c0001" for unit in world.rollouts) == 8


def test_a_clearly_worse_challenger_is_dropped_before_val() -> None:
    world = World(truth={"c0000": 0.9}, steps=(-0.8,), noisy=False)
    search(strategy_registry().load("greedy")(), setup(practice=8), world, rollouts=200)
    assert {unit.part for unit in world.rollouts if unit.candidate == "c0001"} == {Part.PRACTICE}


def test_a_challenger_that_changes_nothing_is_dropped_at_the_second_rung() -> None:
    world = World(truth={"c0000": 0.5}, steps=(0.0,), noisy=False)
    search(strategy_registry().load("greedy")(), setup(practice=4, rungs=[6, 12, 24]), world, rollouts=200)
    assert sum(unit.candidate == "c0001" for unit in world.rollouts) == 4 + 12


def test_missing_rewards_are_not_zeros(strategy: Strategy[Any]) -> None:
    """A candidate whose rollouts are all missing must not be ranked below one that fails."""
    state = strategy.start(setup(practice=2, rungs=[2]))
    room = Room(rollouts=100)
    for _ in range(4):
        decision = strategy.decide(state, room)
        assert isinstance(decision, Evaluate)
        state = strategy.observe(state, Dispatched(decision=decision))
        record = RolloutRecord(unit=decision.unit, status=RolloutStatus.INFRA_ERROR, error="provider gone")
        assert record.reward is None
        state = strategy.observe(state, RolloutEnded(record=record))
    assert isinstance(strategy.decide(state, room), Propose)


def test_waits_for_what_is_under_way(strategy: Strategy[Any]) -> None:
    state = strategy.start(setup(practice=1, rungs=[1]))
    room = Room(rollouts=100)
    first = strategy.decide(state, room)
    assert isinstance(first, Evaluate)
    state = strategy.observe(state, Dispatched(decision=first))
    seen = {first.unit}
    while isinstance(decision := strategy.decide(state, room), Evaluate):
        assert decision.unit not in seen
        seen.add(decision.unit)
        state = strategy.observe(state, Dispatched(decision=decision))
    assert isinstance(decision, Wait)


def test_a_cancelled_rollout_is_asked_for_again(strategy: Strategy[Any]) -> None:
    state = strategy.start(setup())
    decision = strategy.decide(state, Room(rollouts=100))
    assert isinstance(decision, Evaluate)
    state = strategy.observe(state, Dispatched(decision=decision))
    state = strategy.observe(
        state, RolloutEnded(record=RolloutRecord(unit=decision.unit, status=RolloutStatus.CANCELLED))
    )
    assert strategy.decide(state, Room(rollouts=100)) == decision


def test_folding_the_same_events_gives_the_same_state(strategy: Strategy[Any]) -> None:
    world = World(truth={"c0000": 0.3})
    events: list[Any] = []
    state = strategy.start(setup())
    proposals = 0
    for _ in range(300):
        decision = strategy.decide(state, Room(rollouts=1000))
        if isinstance(decision, Evaluate):
            events.append(RolloutEnded(record=world.run(decision.unit)))
        else:
            assert isinstance(decision, Propose)
            events.append(ProposalEnded(record=world.propose(proposals, decision.parents)))
            proposals += 1
        state = strategy.observe(state, Dispatched(decision=decision))
        state = strategy.observe(state, events[-1])
    # A resume knows what ended, not what was dispatched.
    again = strategy.start(setup())
    for event in events:
        again = strategy.observe(again, event)
    assert strategy.finalists(again, 5) == strategy.finalists(state, 5)
    assert strategy.decide(again, Room(rollouts=9)) == strategy.decide(state, Room(rollouts=9))


def test_stops_when_proposals_bring_nothing_new(strategy: Strategy[Any]) -> None:
    state = strategy.start(setup(practice=1, rungs=[1]))
    world = World(truth={"c0000": 0.5})
    for number in range(100):
        decision = strategy.decide(state, Room(rollouts=1000))
        if isinstance(decision, Stop):
            assert "no new candidate" in decision.reason
            return
        assert isinstance(decision, Evaluate | Propose)
        state = strategy.observe(state, Dispatched(decision=decision))
        if isinstance(decision, Evaluate):
            state = strategy.observe(state, RolloutEnded(record=world.run(decision.unit)))
        else:
            record = ProposalRecord(number=number, parents=decision.parents, proposer="x", verdict="failed")
            state = strategy.observe(state, ProposalEnded(record=record))
    pytest.fail("never stopped")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"practise": 3}, "strategy.options.practise: unknown field; did you mean 'practice'?"),
        ({"rungs": [24, 12]}, "strategy.options.rungs: give growing numbers"),
        ({"rungs": []}, "strategy.options.rungs: give growing numbers"),
        ({"practice": -1}, "strategy.options.practice"),
    ],
)
def test_wrong_options_are_named(strategy: Strategy[Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        strategy.start(setup(**options))
    assert message in str(caught.value)


def test_an_unknown_strategy_is_named_with_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"unknown strategy 'greddy'; did you mean 'greedy'"):
        strategy_registry().load("greddy")


def test_order_interleaves_environments_and_depends_on_the_seed_alone() -> None:
    refs = tasks("a", Part.VAL, 40) + tasks("b", Part.VAL, 10)
    order = shuffled(refs, 0)
    assert shuffled(tuple(reversed(refs)), 0) == order
    assert shuffled(refs, 1) != order
    assert sum(ref.environment == "b" for ref in order[:10]) == 2
