from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaharness.budget import Budget, Caps, Usage
from metaharness.errors import BudgetExhausted

USAGE = st.builds(
    Usage,
    rollouts=st.integers(0, 5),
    proposals=st.integers(0, 5),
    input_tokens=st.integers(0, 500),
    output_tokens=st.integers(0, 500),
    cost_usd=st.integers(0, 20).map(lambda cents: cents / 100),
)


@given(st.lists(st.tuples(USAGE, st.booleans(), st.floats(0, 1)), max_size=30))
def test_spent_and_reserved_never_exceed_a_cap(steps: list[tuple[Usage, bool, float]]) -> None:
    caps = Caps(rollouts=20, tokens=3000, usd=0.5)
    budget = Budget(caps)
    for amount, settle, _ in steps:
        try:
            reservation = budget.reserve(amount)
        except BudgetExhausted:
            continue
        total = budget.spent + budget.reserved
        assert total.rollouts <= 20
        assert total.tokens <= 3000
        assert total.cost_usd <= 0.5 + 1e-6
        if settle:
            budget.settle(reservation, Usage(rollouts=amount.rollouts, input_tokens=amount.input_tokens))


def test_64_threads_at_the_edge_do_not_overshoot() -> None:
    budget = Budget(Caps(rollouts=100))
    done = []

    def work() -> None:
        for _ in range(50):
            try:
                reservation = budget.reserve(Usage(rollouts=1))
            except BudgetExhausted:
                return
            budget.settle(reservation, Usage(rollouts=1))
            done.append(1)

    threads = [threading.Thread(target=work) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == budget.spent.rollouts == 100
    assert budget.left() == {"rollouts": 0}


def test_a_reservation_is_settled_once() -> None:
    budget = Budget(Caps(rollouts=2))
    reservation = budget.reserve(Usage(rollouts=2))
    assert budget.left() == {"rollouts": 0}
    with pytest.raises(BudgetExhausted, match="rollouts cap of 2"):
        budget.reserve(Usage(rollouts=1))
    budget.release(reservation)
    assert budget.left() == {"rollouts": 2}
    with pytest.raises(KeyError):
        budget.release(reservation)


def test_resizing_keeps_the_old_size_when_the_new_one_does_not_fit() -> None:
    budget = Budget(Caps(tokens=100))
    reservation = budget.reserve(Usage(input_tokens=40))
    grown = budget.resize(reservation, Usage(input_tokens=90))
    assert budget.left() == {"tokens": 10}
    with pytest.raises(BudgetExhausted):
        budget.resize(grown, Usage(input_tokens=101))
    assert budget.left() == {"tokens": 10}


def test_an_excess_over_a_reservation_counts() -> None:
    budget = Budget(Caps(tokens=100))
    budget.settle(budget.reserve(Usage(input_tokens=50)), Usage(input_tokens=120))
    assert budget.left() == {"tokens": -20}
    with pytest.raises(BudgetExhausted):
        budget.reserve(Usage(input_tokens=1))


@given(USAGE, USAGE)
def test_usage_adds_up_and_survives_json(one: Usage, two: Usage) -> None:
    assert (one + two - two).rollouts == one.rollouts
    assert (one + two).tokens == one.tokens + two.tokens
    assert Usage.from_json(one.to_json()) == one
