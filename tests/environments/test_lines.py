from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metaharness.environments.config import parse_config
from metaharness.environments.lines import MAX_LINE_BYTES, TaskFile, read_tasks
from metaharness.errors import EnvironmentFormatError
from metaharness.task import Split
from tests.environments.support import CONFIG, check_one_line


def read(path: Path, data: bytes | str, config: str = CONFIG) -> TaskFile:
    path = path / "val.jsonl"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    parsed = parse_config(config)
    return read_tasks(path, Split.VAL, parsed, parsed.scorer.build(path.parent))


FREE = 'schema_version = 1\nname = "free"\n[scorer]\nkind = "exact"\n'
RED = '{"id": "a", "input": "tomato", "answer": "red"}'


def test_tasks_take_what_they_lack_from_the_config(tmp_path: Path) -> None:
    own = (
        '{"id": "b", "input": "2", "answer": "b", "instruction": "Pick.", "choices": ["a", "b"], "metadata": {"k": 1}}'
    )
    first, second = read(tmp_path, f"{RED}\n{own}\n").tasks
    assert (first.instruction, first.choices, first.metadata) == ("Name the colour.", ("red", "green"), {})
    assert (second.instruction, second.choices, second.metadata) == ("Pick.", ("a", "b"), {"k": 1})
    assert first.environment == "colours"
    assert first.split is Split.VAL


def test_an_empty_instruction_overrides(tmp_path: Path) -> None:
    (task,) = read(tmp_path, '{"id": "a", "input": "x", "answer": "red", "instruction": ""}').tasks
    assert task.instruction == ""


def test_blank_lines_canaries_and_foreign_line_ends(tmp_path: Path) -> None:
    canary = '{"canary": "some-canary-0123456789"}'
    found = read(tmp_path, b"\xef\xbb\xbf" + f"{canary}\r\n\r\n{RED}\r\n  \r\n".encode())
    assert found.canaries == ("some-canary-0123456789",)
    assert found.lines == (3,)
    assert found.tasks[0].input == "tomato"


@pytest.mark.parametrize(
    ("value", "answer"), [(42, "42"), (1.5, "1.5"), (True, "true"), ({"é": 1}, '{"é": 1}'), ([1], "[1]")]
)
def test_labels_that_are_no_texts_stand_for_their_json(tmp_path: Path, value: Any, answer: str) -> None:
    (task,) = read(tmp_path, json.dumps({"id": "a", "input": "x", "answer": value}), FREE).tasks
    assert task.answer == answer


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not valid JSON: EOF while parsing an object, column 1"),
        ("", "no tasks; the val split must have at least one"),
        ('{"canary": "alone-is-not-enough"}', "no tasks; the val split must have at least one"),
        ('{"canary": 3}', ":1: canary: must be a text"),
        ('{"canary": "c", "id": "a", "input": "x", "answer": "red"}', ":1: canary: unknown field"),
        (b'{"id": "\xff"}', "not UTF-8 (byte 8 of the line)"),
        ('{"id": "\\ud800", "input": "x"}', "not valid JSON"),
        ("[1]", ":1: input should be an object"),
        ("3", ":1: input should be an object"),
        ('{"input": "x", "answer": "red"}', ":1: id: missing"),
        ('{"id": "a", "answer": "red"}', ":1: input: missing"),
        ('{"id": 3, "input": "x"}', ":1: id: input should be a valid string (got 3)"),
        ('{"id": "", "input": "x"}', ":1: id: string should have at least 1 character"),
        ('{"id": "a\\u0007", "input": "x"}', ":1: id: string should match pattern"),
        ('{"id": "a", "input": null}', ":1: input: input should be a valid string"),
        ('{"id": "a", "input": "x", "anwser": "red"}', ":1: anwser: unknown field; did you mean 'answer'?"),
        ('{"id": "a", "input": "x"}', ":1: answer: missing, and the scorer compares with it"),
        ('{"id": "a", "input": "x", "answer": "blue"}', "label 'blue' outside its choices: unknown choice"),
        ('{"id": "a", "input": "x", "answer": "Red"}', "did you mean 'red'?"),
        ('{"id": "a", "input": "x", "answer": "red", "choices": ["red", "red"]}', "choices: a choice is named twice"),
        ('{"id": "a", "input": "x", "answer": "red", "choices": []}', ":1: choices: tuple should have at least 1 item"),
        ('{"id": "a", "input": "x", "answer": "red", "choices": "red"}', ":1: choices: input should be a valid"),
        ('{"id": "a", "input": "x", "answer": "red", "metadata": {"x": NaN}}', "metadata: NaN and infinity are no"),
        ('{"id": "a", "input": "x", "answer": {"x": Infinity}}', ":1: answer: NaN and infinity are not JSON"),
        ('{"id": "a", "input": "x", "metadata": ' + "[" * 500, "not valid JSON: recursion limit exceeded"),
        ('{"id": "a", "input": "x", "metadata": "' + "y" * 9999 + '"}', ":1: metadata: input should be"),
        ('{"id": "a", "input": "' + "x" * MAX_LINE_BYTES + '"}', f":1: a line of over {MAX_LINE_BYTES} bytes"),
    ],
)  # fmt: skip
def test_errors_name_file_line_and_field(tmp_path: Path, line: str | bytes, message: str) -> None:
    with pytest.raises(EnvironmentFormatError) as caught:
        read(tmp_path, line)
    assert message in str(caught.value)
    assert "val.jsonl" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("scorer", "label", "message"),
    [
        ('kind = "numeric"', '"many"', ":2: answer: 'many' is not a number"),
        ('kind = "regex"', '"("', ":2: answer: pattern '(' cannot be used: unclosed group"),
        ('kind = "json_fields"', '"x"', ":2: answer: the label is no JSON object"),
        ('kind = "token_f1"', '"the"', ":2: answer: no word is left"),
        ('kind = "exact"', '""', ":2: answer: an empty label would reward an empty answer"),
        ('kind = "regex"', '"a", "choices": ["a"]', ":2: choices: the scorer regex compares with no fixed choices"),
    ],
)
def test_labels_that_the_scorer_cannot_use(tmp_path: Path, scorer: str, label: str, message: str) -> None:
    config = f'schema_version = 1\nname = "x"\n[scorer]\n{scorer}\n'
    with pytest.raises(EnvironmentFormatError) as caught:
        read(tmp_path, f'\n{{"id": "a", "input": "x", "answer": {label}}}', config)
    assert message in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    config = parse_config(CONFIG)
    scorer = config.scorer.build(tmp_path)
    with pytest.raises(EnvironmentFormatError, match=r"absent\.jsonl: no such file, and env\.toml names it"):
        read_tasks(tmp_path / "absent.jsonl", Split.VAL, config, scorer)
    with pytest.raises(EnvironmentFormatError, match="not a file"):
        read_tasks(tmp_path, Split.VAL, config, scorer)
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(EnvironmentFormatError, match="cannot be read: Too many levels of symbolic links"):
        read_tasks(tmp_path / "a", Split.VAL, config, scorer)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("red"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(["id", "input", "answer", "instruction", "choices", "metadata", "canary", "extra"])
LINES = st.one_of(
    st.dictionaries(FIELDS, JSON).map(json.dumps).map(str.encode),
    st.fixed_dictionaries({"id": st.text(), "input": st.text(), "answer": JSON}).map(json.dumps).map(str.encode),
    JSON.map(json.dumps).map(str.encode),
    st.binary(),
)


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(LINES, max_size=4), st.sampled_from([CONFIG, FREE]))
def test_any_lines_give_tasks_or_one_clear_line(tmp_path: Path, lines: list[bytes], config: str) -> None:
    try:
        found = read(tmp_path, b"\n".join(lines), config)
    except EnvironmentFormatError as error:
        check_one_line(error)
    else:
        assert found.tasks
        assert all(len(task.digest) == 64 and task.answer for task in found.tasks)
        assert json.dumps([task.public("x", None) for task in found.tasks], allow_nan=False)
