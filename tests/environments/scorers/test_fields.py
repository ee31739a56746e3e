from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaharness.environments.scorers.fields import JsonFieldsScorer
from metaharness.errors import ScoringFailed
from tests.environments.support import task

LABEL = {"vendor": "Acme Ltd.", "total": 12.5, "paid": True, "note": None}


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        (LABEL, 1.0),
        ({"vendor": "acme ltd", "total": "12.50", "paid": "true"}, 1.0),
        ({**LABEL, "extra": 1}, 1.0),
        ({**LABEL, "total": 12}, 0.75),
        ({**LABEL, "note": "none"}, 0.75),
        ({"vendor": "Acme Ltd.", "total": None}, 0.5),
        ({}, 0.25),
        ({**LABEL, "paid": 1}, 0.75),
        ({**LABEL, "vendor": ["Acme Ltd."]}, 0.75),
    ],
)
def test_share_of_fields(answer: dict[str, object], reward: float) -> None:
    assert JsonFieldsScorer().score(task(json.dumps(LABEL)), json.dumps(answer)).reward == reward


def test_named_fields_alone_count() -> None:
    scorer = JsonFieldsScorer(fields=("total", "paid"))
    score = scorer.score(task(json.dumps(LABEL)), '{"total": 12.5, "paid": false}')
    assert score.reward == 0.5
    assert score.components == {"total": 1.0, "paid": 0.0}
    assert score.feedback == "paid: expected 'true', got 'false'"


def test_nested_values() -> None:
    label = task('{"items": [{"name": "Tea", "price": 3}, {"name": "Milk", "price": 1.50}]}')
    scorer = JsonFieldsScorer()
    assert (
        scorer.score(label, '{"items": [{"name": "tea", "price": "3"}, {"name": "milk", "price": "1.5"}]}').reward == 1
    )
    assert scorer.score(label, '{"items": [{"name": "milk", "price": 1.5}, {"name": "tea", "price": 3}]}').reward == 0
    assert (
        scorer.score(label, '{"items": [{"name": "Tea", "price": 3, "vat": 1}, {"name": "Milk", "price": 1.5}]}').reward
        == 0
    )


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("total is 3", "expected a JSON object, got 'total is 3' (Expecting value: line 1 column 1 (char 0))"),
        ("[1]", "expected a JSON object, got '[1]' (it is a JSON array)"),
        ('"x"', "(it is a JSON string)"),
        ("null", "(it is a JSON null)"),
        ('{"total": NaN}', "NaN is not JSON"),
        ("[" * 50_000, "recursion"),
        ('```json\n{"total": 3}\n```', "expected a JSON object"),
    ],
)
def test_unparsable_answers_get_nothing_and_say_why(answer: str, problem: str) -> None:
    score = JsonFieldsScorer().score(task('{"total": 3}'), answer)
    assert score.reward == 0
    assert problem in score.feedback


@pytest.mark.parametrize(
    ("fields", "label", "problem"),
    [
        ((), "x", "no JSON object"),
        ((), "[]", "no JSON object"),
        ((), "{}", "null or there is none"),
        ((), '{"a": null}', "null or there is none"),
        (("b",), '{"a": 1}', "no field 'b'"),
    ],
)
def test_labels_that_cannot_be_scored_against(fields: tuple[str, ...], label: str, problem: str) -> None:
    found = JsonFieldsScorer(fields=fields).label_problem(task(label))
    assert found is not None
    assert problem in found


def test_a_broken_label_is_a_failure_of_the_scorer() -> None:
    with pytest.raises(ScoringFailed, match="the label is no JSON object"):
        JsonFieldsScorer().score(task("x"), "{}")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(label=st.dictionaries(st.text(), JSON, min_size=1, max_size=4), answer=JSON | st.text())
def test_any_answer_gets_a_reward_and_the_label_all_of_it(label: dict[str, object], answer: object) -> None:
    labelled = task(json.dumps(label))
    scorer = JsonFieldsScorer()
    given_text = answer if isinstance(answer, str) else json.dumps(answer)
    assert 0 <= scorer.score(labelled, given_text).reward <= 1
    if scorer.label_problem(labelled) is None:
        assert scorer.score(labelled, json.dumps(label)).reward == 1
        assert scorer.score(labelled, "").reward == 0
