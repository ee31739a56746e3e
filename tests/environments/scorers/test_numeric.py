from __future__ import annotations

import pytest

from metaharness.environments.scorers.numeric import NumericScorer
from tests.environments.support import task


@pytest.mark.parametrize(
    ("options", "label", "answer", "reward"),
    [
        ({}, "42", "42", 1),
        ({}, "42", "$42.00", 1),
        ({}, "1200", "1,200 apples", 1),
        ({}, "0.1", ".1", 1),
        ({}, "42", "41.999", 0),
        ({}, "42", "The answer is 42", 0),
        ({}, "42", "42 or 43", 0),
        ({"tolerance": 0.5}, "42", "41.5", 1),
        ({"tolerance": 0.5}, "42", "41.49", 0),
        ({"relative_tolerance": 0.1}, "-100", "-109", 1),
        ({"relative_tolerance": 0.1}, "-100", "-111", 0),
    ],
)
def test_numeric(options: dict[str, float], label: str, answer: str, reward: float) -> None:
    assert NumericScorer(**options).score(task(label), answer).reward == reward


def test_feedback() -> None:
    scorer = NumericScorer()
    assert scorer.score(task("42"), "so 42").feedback == "answer 'so 42' is not just a number; expected '42'"
    assert scorer.score(task("42"), "41").feedback == "expected '42', got '41'"


def test_options_change_the_identity() -> None:
    assert NumericScorer().identity != NumericScorer(tolerance=1).identity
