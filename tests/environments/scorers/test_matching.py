from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaharness.environments.scorers.base import MAX_ANSWER_CHARS
from metaharness.environments.scorers.matching import ExactScorer, NormalisedScorer, TokenF1Scorer
from metaharness.environments.scorers.numeric import NumericScorer
from tests.environments.support import task

CHOICES = ("billing", "delivery", "refund")


@pytest.mark.parametrize(
    ("answer", "reward", "feedback"),
    [
        ("delivery", 1.0, ""),
        (" delivery\n", 1.0, ""),
        ("Delivery.", 0.0, "expected exactly 'delivery', got 'Delivery.': only the form differs"),
        ("billing", 0.0, "expected 'delivery', got 'billing'"),
        ("parcel", 0.0, "answer 'parcel' is not one of the 3 choices; expected 'delivery'"),
        ("", 0.0, "empty answer; expected 'delivery'"),
        (" \n", 0.0, "empty answer; expected 'delivery'"),
        ("x" * (MAX_ANSWER_CHARS + 1), 0.0, f"the answer has 100001 characters; at most {MAX_ANSWER_CHARS}"),
    ],
)
def test_exact(answer: str, reward: float, feedback: str) -> None:
    score = ExactScorer().score(task("delivery", choices=CHOICES), answer)
    assert (score.reward, score.feedback) == (reward, feedback)


def test_exact_without_choices_names_none() -> None:
    assert ExactScorer().score(task("x"), "y").feedback == "expected 'x', got 'y'"


@pytest.mark.parametrize("answer", ["Delivery.", "'delivery'", "  DELIVERY ", "**delivery**", "\uff44elivery"])
def test_normalised_forgives_form(answer: str) -> None:
    assert NormalisedScorer().score(task("delivery"), answer).reward == 1


@pytest.mark.parametrize(("label", "answer"), [("-5", "5"), ("5%", "5"), ("c++", "c"), ("delivery", "a delivery")])
def test_normalised_keeps_what_has_meaning(label: str, answer: str) -> None:
    assert NormalisedScorer().score(task(label), answer).reward == 0


def test_normalised_feedback() -> None:
    score = NormalisedScorer().score(task("delivery", choices=CHOICES), "I think it is delivery")
    assert score.feedback == "answer 'I think it is delivery' is not one of the 3 choices; expected 'delivery'"
    assert NormalisedScorer().score(task("delivery", choices=CHOICES), "Refund").feedback.startswith("expected ")


@pytest.mark.parametrize(
    ("label", "answer", "reward", "precision", "recall"),
    [
        ("the Eiffel Tower", "Eiffel tower", 1.0, 1.0, 1.0),
        ("Eiffel Tower", "The Eiffel Tower in Paris", 2 * 2 / (2 + 4), 0.5, 1.0),
        ("a b b c", "b b b", 2 * 2 / (3 + 3), 2 / 3, 2 / 3),
        ("Paris", "London", 0.0, 0.0, 0.0),
    ],
)
def test_token_f1(label: str, answer: str, reward: float, precision: float, recall: float) -> None:
    score = TokenF1Scorer().score(task(label), answer)
    assert score.reward == pytest.approx(reward)
    assert score.components == pytest.approx({"precision": precision, "recall": recall})
    assert (score.feedback == "") == (reward == 1)


@pytest.mark.parametrize(
    ("scorer", "label", "choices", "problem"),
    [
        (ExactScorer(), " ", None, "empty label"),
        (NormalisedScorer(), "...", None, "nothing is left"),
        (NormalisedScorer(), "Yes", ("Yes", "yes!"), "differ in case or punctuation only"),
        (TokenF1Scorer(), "the", None, "no word is left"),
        (NumericScorer(), "many", None, "'many' is not a number"),
    ],
)
def test_labels_that_cannot_be_scored_against(
    scorer: ExactScorer, label: str, choices: tuple[str, ...] | None, problem: str
) -> None:
    found = scorer.label_problem(task(label, choices=choices))
    assert found is not None
    assert problem in found


SCORERS = [ExactScorer(), NormalisedScorer(), TokenF1Scorer(), NumericScorer(tolerance=0.5)]


@pytest.mark.parametrize("scorer", SCORERS, ids=lambda s: s.kind)
@settings(deadline=None)
@given(label=st.text(), answer=st.text())
def test_any_answer_gets_a_reward(scorer: ExactScorer, label: str, answer: str) -> None:
    score = scorer.score(task(label), answer)
    assert 0 <= score.reward <= 1
    assert "\n" not in score.feedback


@pytest.mark.parametrize("scorer", SCORERS, ids=lambda s: s.kind)
@settings(deadline=None)
@given(label=st.text() | st.integers().map(str))
def test_a_label_that_is_accepted_earns_the_reward_and_an_empty_answer_does_not(
    scorer: ExactScorer, label: str
) -> None:
    labelled = task(label)
    if scorer.label_problem(labelled) is None:
        assert scorer.score(labelled, label).reward == 1
        assert scorer.score(labelled, "").reward == 0
