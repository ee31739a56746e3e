from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaharness.score import Score, combine, combine_comparisons, compare, estimate, task_means

REWARDS = st.lists(st.floats(0, 1), min_size=1, max_size=60)


@pytest.mark.parametrize("reward", [-0.1, 1.1, math.nan, math.inf])
def test_a_reward_outside_its_range_is_refused(reward: float) -> None:
    with pytest.raises(ValueError, match=r"is not in \[0, 1\]"):
        Score(reward=reward)


def test_attempts_are_averaged_within_a_task_and_missing_ones_do_not_count() -> None:
    means = task_means([("a", 1.0), ("a", 0.0), ("b", None), ("b", 1.0), ("c", None)])
    assert means == {"a": 0.5, "b": 1.0}


def test_wilson_interval_against_the_textbook_value() -> None:
    """Brown, Cai, DasGupta 2001: 15 of 50."""
    found = estimate([1.0] * 15 + [0.0] * 35)
    assert found.mean == pytest.approx(0.3)
    assert (found.low, found.high) == (pytest.approx(0.191, abs=1e-3), pytest.approx(0.438, abs=1e-3))


@given(REWARDS)
def test_an_interval_holds_its_mean_and_stays_in_range(values: list[float]) -> None:
    found = estimate(values)
    assert 0.0 <= found.low <= found.mean + 1e-9
    assert found.mean - 1e-9 <= found.high <= 1.0
    assert found.high > found.low


def test_equal_values_do_not_pretend_certainty() -> None:
    assert estimate([0.5] * 5).high - estimate([0.5] * 5).low > 0.3
    assert estimate([1.0] * 10).low < 0.75


def test_no_tasks_is_no_number() -> None:
    assert math.isnan(estimate([]).mean)
    assert estimate([], missing=3).to_json() == {"mean": None, "interval": [None, None], "tasks": 0, "missing": 3}


def test_paired_interval_against_agresti_and_min() -> None:
    """Table 1 of Agresti and Min 2005 has 1600 pairs; here the same formula by hand for 100 pairs, 20 up, 5 down."""
    first = {str(i): float(i < 5) for i in range(100)}
    second = {str(i): float(5 <= i < 25) for i in range(100)}
    found = compare(first, second)
    centre = 15 / 102
    half = 1.959964 * math.sqrt(26 - 15 * 15 / 102) / 102
    assert (found.gained, found.lost, found.tasks) == (20, 5, 100)
    assert found.difference == pytest.approx(0.15)
    assert (found.low, found.high) == (pytest.approx(centre - half, abs=1e-6), pytest.approx(centre + half, abs=1e-6))
    assert found.verdict == "better"
    assert found.p_value == pytest.approx(0.004077, abs=1e-5)


def test_a_one_task_win_is_indecisive() -> None:
    first = {str(i): 0.0 for i in range(20)}
    assert compare(first, {**first, "0": 1.0}).verdict == "indecisive"


@given(REWARDS, st.randoms(use_true_random=False))
def test_swapping_the_two_mirrors_the_comparison(values: list[float], draw: random.Random) -> None:
    first = {str(i): value for i, value in enumerate(values)}
    second = {key: draw.random() for key in first}
    forth, back = compare(first, second), compare(second, first)
    assert forth.difference == pytest.approx(-back.difference)
    assert forth.low == pytest.approx(-back.high)
    assert (forth.gained, forth.lost) == (back.lost, back.gained)


def test_only_shared_tasks_are_paired() -> None:
    found = compare({"a": 1.0, "b": 0.0}, {"b": 1.0, "c": 1.0})
    assert (found.tasks, found.unpaired, found.difference) == (1, 2, 1.0)
    assert compare({"a": 1.0}, {"b": 1.0}).verdict == "indecisive"


def test_coverage_of_the_paired_interval() -> None:
    """The true difference lies inside about 95 times of 100."""
    draw = random.Random(1)
    inside = 0
    for _ in range(400):
        first, second = {}, {}
        for task in range(60):
            difficulty = draw.random()
            first[str(task)] = float(draw.random() < 0.6 * difficulty)
            second[str(task)] = float(draw.random() < 0.6 * difficulty + 0.2)
        found = compare(first, second)
        inside += found.low <= 0.2 <= found.high
    assert 0.92 <= inside / 400 <= 0.985


def test_a_mean_over_environments_is_weighted_and_wider_than_its_parts_shares() -> None:
    one, two = estimate([1.0] * 40), estimate([0.0] * 40)
    both = combine([(3.0, one), (1.0, two)])
    assert both.mean == pytest.approx(0.75)
    assert both.low < 0.75 < both.high
    assert both.tasks == 80
    assert combine([(1.0, one)]).low == pytest.approx(one.low)
    assert combine([(1.0, estimate([])), (2.0, one)]).mean == 1.0


def test_comparisons_of_environments_are_combined() -> None:
    up = compare({str(i): 0.0 for i in range(30)}, {str(i): float(i < 15) for i in range(30)})
    flat = compare({str(i): 1.0 for i in range(30)}, {str(i): 1.0 for i in range(30)})
    both = combine_comparisons([(0.5, up), (0.5, flat)])
    assert both.difference == pytest.approx(0.25)
    assert both.verdict == "better"
    assert both.p_value < 0.05
    assert combine_comparisons([]).verdict == "indecisive"
