from __future__ import annotations

import pytest

from metaharness.task import Part, Split, Task, train_part


def task(**changes: object) -> Task:
    given = {"id": "t1", "environment": "env", "split": Split.TRAIN, "input": "hello", "answer": "greeting", **changes}
    return Task(**given)  # type: ignore[arg-type]


def test_the_digest_ignores_the_id_and_nothing_else_that_matters() -> None:
    assert task(id="t2").digest == task().digest
    assert task(metadata={"difficulty": 3}).digest == task().digest
    for change in ({"input": "x"}, {"answer": "x"}, {"instruction": "x"}, {"choices": ("x",)}, {"environment": "x"}):
        assert task(**change).digest != task().digest


def test_a_harness_sees_no_label_no_split_and_no_id() -> None:
    public = task(id="train-0001", metadata={"secret": 1}).public("opaque", 12.5)
    assert public == {"id": "opaque", "instruction": "", "input": "hello", "choices": None, "deadline": 12.5}


def test_an_unlabelled_task_is_no_example() -> None:
    with pytest.raises(ValueError, match="has no label"):
        task(answer=None).example()
    assert task().example().answer == "greeting"


def test_train_is_divided_by_hash_in_about_equal_parts() -> None:
    parts = [train_part(task(input=str(number)).digest) for number in range(2000)]
    assert 900 < parts.count(Part.FIT) < 1100
    assert set(parts) == {Part.FIT, Part.PRACTICE}
    assert train_part("x", fit_share=0.0) is Part.PRACTICE
    assert train_part("x", fit_share=1.0) is Part.FIT
