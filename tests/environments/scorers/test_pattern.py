from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaharness.environments.scorers.pattern import RegexScorer
from metaharness.errors import ScoringFailed
from tests.environments.support import task


@pytest.mark.parametrize(
    ("pattern", "answer", "reward"),
    [
        (r"yes|no", "yes", 1),
        (r"yes|no", " no\n", 1),
        (r"yes|no", "yes or no", 0),
        (r"yes|no", "yesno", 0),
        (r"\d{4}-\d{2}", "2024-05", 1),
        (r"a.c", "a\nc", 0),
        (r"a$", "a", 1),
        (r"(?i)paris", "PARIS", 1),
        (r"Paris", "paris", 0),
    ],
)
def test_the_whole_answer_must_match(pattern: str, answer: str, reward: float) -> None:
    assert RegexScorer().score(task(pattern), answer).reward == reward


def test_ignore_case() -> None:
    assert RegexScorer(ignore_case=True).score(task("Paris"), "paris").reward == 1


def test_feedback() -> None:
    assert RegexScorer().score(task("a+"), "b").feedback == "answer 'b' does not match the pattern 'a+'"


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(", "unclosed group"),
        ("a)|(b", "unopened group"),
        ("(?=a)b", "look-around"),
        (r"(a)\1", "backreferences are not supported"),
        ("a*", "matches an empty answer"),
        (r"(\w{1,500}){1,500}", "exceeds size limit"),
        ("(?x)a # c", "unclosed group"),
    ],
)
def test_patterns_that_cannot_be_used(pattern: str, problem: str) -> None:
    found = RegexScorer().label_problem(task(pattern))
    assert found is not None
    assert problem in found
    assert "\n" not in found


def test_a_broken_pattern_is_a_failure_of_the_scorer() -> None:
    with pytest.raises(ScoringFailed, match="task 't': pattern cannot be used: unclosed group"):
        RegexScorer().score(task("("), "x")


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|aa)+b", "(.*)*b", "(a|a)*b"])
def test_no_answer_stalls_the_scorer(pattern: str) -> None:
    started = time.process_time()
    assert RegexScorer().score(task(pattern), "a" * 50_000).reward == 0
    assert time.process_time() - started < 2


@settings(deadline=None)
@given(pattern=st.text(alphabet="ab()[]|*+?{}^$.\\0,-", max_size=20), answer=st.text())
def test_any_pattern_is_refused_or_works(pattern: str, answer: str) -> None:
    labelled = task(pattern)
    if RegexScorer().label_problem(labelled) is None:
        assert RegexScorer().score(labelled, answer).reward in (0, 1)
        assert RegexScorer().score(labelled, "").reward == 0
