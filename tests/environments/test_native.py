from __future__ import annotations

from pathlib import Path

import pytest

from metaharness.environments.native import NativeEnvironment
from metaharness.errors import EnvironmentFormatError, UnsupportedRequest
from metaharness.protocols import Environment
from metaharness.task import Split
from tests.environments.support import CONFIG, SPLITS, write_environment


async def test_an_environment_from_files(tmp_path: Path) -> None:
    environment = NativeEnvironment(write_environment(tmp_path))
    assert isinstance(environment, Environment)
    info = environment.info
    assert (info.name, info.protocol, info.can_fit, info.has_shell) == ("colours", "offline", True, False)
    assert [task.id for task in environment.tasks(Split.VAL)] == ["val-0", "val-1"]
    session = await environment.open(environment.tasks(Split.VAL)[0])
    assert session.stream is None
    assert (await session.score("red")).reward == 1
    assert (await session.score("blue")).feedback == "answer 'blue' is not one of the 2 choices; expected 'red'"
    with pytest.raises(UnsupportedRequest, match="'colours' has no shell"):
        await session.shell("ls", 1)
    await session.aclose()


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({"val": []}, "val.jsonl: no tasks; the val split must have at least one"),
        (
            {"val": [{"id": "train-0", "input": "x", "answer": "red"}]},
            "val.jsonl:1: id: 'train-0' is also the id of {d}/train.jsonl:1",
        ),
        (
            {"val": [SPLITS["val"][0], {**SPLITS["val"][0], "id": "val-9"}]},
            "val.jsonl:2: input: the same task as {d}/val.jsonl:1 (input and answer)",
        ),
        (
            {"val": [{"id": "val-0", "input": " A fire  ENGINE! ", "answer": "red"}]},
            "test.jsonl:1: input: the same as {d}/val.jsonl:1 but for case and punctuation at most: a task in both "
            "val and test would leak",
        ),
        (
            {"test": [{"id": "test-0", "input": "thing 0 of the train split", "answer": "green"}]},
            "a task in both train and test would leak",
        ),
        ({"test": [{"id": "test-0", "input": "x", "answer": "blue"}]}, "test.jsonl:1: answer: label 'blue' outside"),
    ],
)
def test_errors_name_file_line_and_field(tmp_path: Path, splits: dict[str, list[dict[str, str]]], message: str) -> None:
    write_environment(tmp_path, splits=splits)
    with pytest.raises(EnvironmentFormatError) as caught:
        NativeEnvironment(tmp_path)
    assert message.replace("{d}", str(tmp_path)) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_tells_two_tasks_apart(tmp_path: Path) -> None:
    same_input = {
        "val": [
            {"id": "v0", "input": "x", "answer": "red"},
            {"id": "v1", "input": "x", "answer": "green"},
        ],
        "test": [
            {"id": "t0", "input": "x", "answer": "red", "instruction": "Another question."},
            {"id": "t1", "input": "x", "answer": "red", "choices": ["red", "blue"]},
        ],
    }
    environment = NativeEnvironment(write_environment(tmp_path, splits=same_input))
    assert len({task.digest for split in Split for task in environment.tasks(split)}) == 12


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ("Which colour a thing has.", "Another description.", False),
        ("[scorer]", 'license = "MIT"\nversion = "2"\n[scorer]', False),
        ("Name the colour.", "Say the colour.", True),
        ('"red", "green"', '"green", "red"', True),
        ('kind = "exact"', 'kind = "normalised"', True),
        ('name = "colours"', 'name = "colors"', True),
        ("[scorer]", 'protocol = "online"\nonline = {streams_per_split = 1}\n[scorer]', True),
    ],
)
def test_the_digest_covers_what_matters(tmp_path: Path, old: str, new: str, changes: bool) -> None:
    before = NativeEnvironment(write_environment(tmp_path)).info.digest
    after = NativeEnvironment(write_environment(tmp_path, CONFIG.replace(old, new, 1))).info.digest
    assert (before != after) == changes


def test_tasks_and_their_split_are_part_of_the_digest_and_ids_are_not(tmp_path: Path) -> None:
    def digest(splits: dict[str, list[dict[str, object]]]) -> str:
        return NativeEnvironment(write_environment(tmp_path, splits=splits)).info.digest

    val, test = ([dict(line) for line in SPLITS[name]] for name in ("val", "test"))
    renamed = [{**line, "id": f"other-{n}", "metadata": {"n": n}} for n, line in enumerate(val)]
    assert digest({}) == digest({"val": renamed})
    assert len({digest({}), digest({"val": val[:1]}), digest({"val": test, "test": val})}) == 3


def test_unlabelled_train_tasks_cannot_be_fitted(tmp_path: Path) -> None:
    config = CONFIG.replace('kind = "exact"', 'kind = "custom"\nfunction = "env.py:score"\nneeds_label = false')
    train = [{"id": "a", "input": "write a poem"}]
    code = {"env.py": "def score(task, answer): return 1\n"}
    assert not NativeEnvironment(write_environment(tmp_path, config, {"train": train}, code)).info.can_fit
    assert NativeEnvironment(write_environment(tmp_path, config, files=code)).info.can_fit
