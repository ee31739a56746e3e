from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from metaharness.strategies.race import plan_rounds, race_order, survivors
from metaharness.task import Part
from tests.strategies.simulation import tasks


@given(entrants=st.integers(1, 64), rollouts=st.integers(0, 5000), count=st.integers(1, 300))
def test_rounds_stay_within_rollouts_and_tasks(entrants: int, rollouts: int, count: int) -> None:
    rounds = plan_rounds(entrants, rollouts, count)
    spent, seen = 0, 0
    for number in rounds:
        assert seen < number.tasks <= count
        spent += (number.tasks - seen) * number.entrants
        seen = number.tasks
    assert spent <= rollouts
    assert [r.entrants for r in rounds] == sorted((r.entrants for r in rounds), reverse=True)


def test_a_race_of_four_halves_twice() -> None:
    assert [(r.entrants, r.tasks) for r in plan_rounds(4, 160, 100)] == [(4, 20), (2, 60)]


def test_nobody_races_alone() -> None:
    assert plan_rounds(1, 100, 50) == []


def test_fresh_tasks_come_first_then_fresh_attempts() -> None:
    refs = tasks("env", Part.VAL, 3)
    used = {refs[0].task: 1, refs[1].task: 0, refs[2].task: 2}
    pairs = race_order(refs, lambda ref: used[ref.task], 5)
    assert [(ref.task[-1], attempt) for ref, attempt in pairs] == [("1", 0), ("0", 1), ("2", 2), ("1", 1), ("0", 2)]


def test_survivors_are_compared_on_shared_tasks_only() -> None:
    refs = tasks("env", Part.VAL, 3)
    keys = [(ref.environment, ref.task) for ref in refs]
    rewards = {
        "lucky": {keys[0]: 0.0, keys[2]: 1.0},
        "good": {keys[0]: 1.0, keys[1]: 0.0},
        "missing": {},
    }
    assert survivors(["missing", "lucky", "good"], rewards, refs, 2) == ["good", "lucky"]
