from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaharness.proposers.codemods import OPERATORS
from metaharness.proposers.codemods.module import StepModule
from metaharness.proposers.codemods.move_constant import Bounded, bounded_constants
from tests.proposers.world import harness, material

CODE = '''"""Mine."""

SHOTS = 4  # range: 0..24
HEAT: float = 0.5  # range: 0.0..1.0
SMALL = 0.01  # range: 0.001..1.0, log
LOSS = -3  # how much; range: -10..-1
FREE = 7
TEXT = "4"  # range: 0..9
FLAG = True  # range: 0..1
WRONG = 4  # range: 9..1


class Harness:
    def __init__(self, model):
        self.model = model

    def solve(self, task, shell):
        return str((SHOTS, HEAT, SMALL, LOSS, FREE, TEXT, FLAG, WRONG))
'''


def test_only_numbers_with_bounds_are_found() -> None:
    module = StepModule.parse(CODE)
    assert module is not None
    assert list(bounded_constants(module)) == ["SHOTS", "HEAT", "SMALL", "LOSS"]


def test_a_move_changes_the_number_and_nothing_else() -> None:
    for move in OPERATORS["move_constant"].moves(material(harness(CODE))):
        tree = move.apply()
        assert tree is not None
        old, new = CODE.splitlines(), tree.text("harness.py").splitlines()
        changed = [(a, b) for a, b in zip(old, new, strict=True) if a != b]
        assert len(changed) == 1
        before, after = changed[0]
        assert before.partition("#")[2] == after.partition("#")[2]
        assert move.details["to"] in after
        assert move.mechanism.split()[1] == after.split()[0].rstrip(":")


bounds = st.tuples(st.integers(-50, 400), st.integers(1, 400)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(bounds, st.floats(0, 1), st.booleans(), st.booleans())
def test_steps_stay_within_the_bounds(ends: tuple[int, int], place: float, whole: bool, log: bool) -> None:
    low, high = ends
    value = low + place * (high - low)
    constant = Bounded(value=float(round(value)) if whole else value, low=low, high=high, log=log, whole=whole)
    for step in constant.steps():
        assert low <= step <= high
        assert step != constant.value
        written = ast.literal_eval(constant.written(step))
        assert written == step
        assert isinstance(written, int if whole else float)


@pytest.mark.parametrize(
    ("constant", "expected"),
    [
        (Bounded(value=8, low=0, high=24, log=False, whole=True), {2.0, 4.0, 6.0, 10.0, 11.0, 14.0, 16.0}),
        (Bounded(value=0.1, low=0.01, high=1, log=True, whole=False), {0.05, 0.071, 0.14, 0.2}),
        (Bounded(value=2, low=1, high=3, log=False, whole=True), {1.0, 3.0}),
    ],
)
def test_wide_ranges_are_also_doubled_and_halved(constant: Bounded, expected: set[float]) -> None:
    assert set(constant.steps()) == expected
