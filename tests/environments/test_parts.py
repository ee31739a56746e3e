from __future__ import annotations

from pathlib import Path

import pytest

from metaharness.environments.native import NativeEnvironment
from metaharness.environments.parts import fit_set, split_parts
from metaharness.errors import EnvironmentFormatError
from metaharness.task import Part, Split, train_part
from tests.environments.support import SPLITS, write_environment


def test_train_is_divided_by_hash_and_the_rest_is_whole(tmp_path: Path) -> None:
    environment = NativeEnvironment(write_environment(tmp_path))
    parts = split_parts(environment)
    train = environment.tasks(Split.TRAIN)
    for part in (Part.FIT, Part.PRACTICE):
        assert parts[part] == [task for task in train if train_part(task.digest) is part]
        assert parts[part]
    assert parts[Part.VAL] == list(environment.tasks(Split.VAL))
    assert parts[Part.TEST] == list(environment.tasks(Split.TEST))


def test_the_fit_set_holds_the_labels_of_fit_alone(tmp_path: Path) -> None:
    environment = NativeEnvironment(write_environment(tmp_path))
    fitted = fit_set(environment)
    assert [example.input for example in fitted.examples] == [t.input for t in split_parts(environment)[Part.FIT]]
    assert {example.answer for example in fitted.examples} <= {"red", "green"}
    assert fit_set(environment) == fitted


def test_the_digest_follows_the_examples(tmp_path: Path) -> None:
    whole = fit_set(NativeEnvironment(write_environment(tmp_path)))
    train = [line for line in SPLITS["train"] if line["input"] != whole.examples[0].input]
    fewer = fit_set(NativeEnvironment(write_environment(tmp_path, splits={"train": train})))
    assert fewer.examples == whole.examples[1:]
    assert whole.digest != fewer.digest


def test_nothing_to_practise_on(tmp_path: Path) -> None:
    environment = NativeEnvironment(write_environment(tmp_path))
    fitted = {task.id for task in split_parts(environment)[Part.FIT]}
    train = [line for line in SPLITS["train"] if line["id"] in fitted]
    starved = NativeEnvironment(write_environment(tmp_path, splits={"train": train}))
    with pytest.raises(EnvironmentFormatError, match=f"all {len(train)} train tasks fall to the fit set"):
        split_parts(starved)
