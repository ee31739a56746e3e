"""The bundled environments' data, read straight from the files: sizes, balance, distinctness, answers derived again."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from datetime import date, datetime
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ENVS = Path(__file__).resolve().parents[2] / "envs"
NAMES = ("support_intents", "word_problems", "field_extraction")
GENERATED = ("word_problems", "field_extraction")
SIZES = {
    "support_intents": {"train": 240, "val": 160, "test": 240},
    "word_problems": {"train": 240, "val": 120, "test": 240},
    "field_extraction": {"train": 200, "val": 100, "test": 200},
}
CANARY = re.compile(r"metaharness-canary [0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
LARGEST_SHARED = 0.6
"""Share of word 3-grams above which two messages count as near-duplicates."""
NUMBER_WORDS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
NUMBER_WORDS |= {"eleven": 11, "twelve": 12}


@cache
def config(name: str) -> dict[str, Any]:
    return tomllib.loads((ENVS / name / "env.toml").read_text(encoding="utf-8"))


@cache
def rows(name: str, split: str) -> list[dict[str, Any]]:
    text = (ENVS / name / f"{split}.jsonl").read_text(encoding="utf-8")
    assert text.endswith("\n")
    return [json.loads(line) for line in text[:-1].split("\n")]


def tasks(name: str, split: str) -> list[dict[str, Any]]:
    return [row for row in rows(name, split) if "canary" not in row]


def all_tasks(name: str) -> list[dict[str, Any]]:
    return [task for split in SIZES[name] for task in tasks(name, split)]


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.replace("'", "").lower())


def runs(text: str, length: int) -> set[tuple[str, ...]]:
    found = words(text)
    return {tuple(found[start : start + length]) for start in range(len(found) - length + 1)}


def trigrams(text: str) -> set[tuple[str, ...]]:
    return runs(text, 3) or {tuple(words(text))}


def shared(left: set[tuple[str, ...]], right: set[tuple[str, ...]]) -> float:
    return len(left & right) / min(len(left), len(right))


@pytest.mark.parametrize("name", NAMES)
def test_config(name: str) -> None:
    settings = config(name)
    assert settings["name"] == name
    assert settings["schema_version"] == 1
    assert settings["protocol"] == "offline"
    assert settings["license"] == "Apache-2.0"
    assert settings["instruction"]
    assert settings["splits"] == {split: f"{split}.jsonl" for split in SIZES[name]}
    assert (ENVS / name / "README.md").is_file()


def test_every_bundled_environment_is_checked_here() -> None:
    assert {path.parent.name for path in ENVS.glob("*/env.toml")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_sizes_ids_and_fields(name: str) -> None:
    assert {split: len(tasks(name, split)) for split in SIZES[name]} == SIZES[name]
    ids = [task["id"] for task in all_tasks(name)]
    assert len(set(ids)) == len(ids)
    for split in SIZES[name]:
        for task in tasks(name, split):
            assert re.fullmatch(rf"{split}-\d{{4}}", task["id"])
            assert set(task) <= {"id", "input", "answer", "metadata"}
            assert task["input"].strip() == task["input"] != ""
            assert task["answer"].strip() == task["answer"] != ""


@pytest.mark.parametrize("name", NAMES)
def test_inputs_are_distinct(name: str) -> None:
    counts = Counter(" ".join(words(task["input"])) for task in all_tasks(name))
    assert [text for text, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("name", NAMES)
def test_no_eight_words_in_a_row_occur_in_two_splits(name: str) -> None:
    found = {split: set().union(*(runs(task["input"], 8) for task in tasks(name, split))) for split in SIZES[name]}
    assert all(found.values())
    assert not found["train"] & (found["val"] | found["test"])
    assert not found["val"] & found["test"]


@pytest.mark.parametrize("name", NAMES)
def test_val_and_test_begin_with_the_canary(name: str) -> None:
    canary = config(name)["canary"]
    assert CANARY.fullmatch(canary)
    for split in SIZES[name]:
        lines = [index for index, row in enumerate(rows(name, split)) if "canary" in row]
        assert lines == ([] if split == "train" else [0])
        assert split == "train" or rows(name, split)[0] == {"canary": canary}


def test_canaries_differ() -> None:
    assert len({config(name)["canary"] for name in NAMES}) == len(NAMES)


@pytest.mark.parametrize("name", GENERATED)
def test_generator_reproduces_the_files(name: str, tmp_path: Path) -> None:
    copy = tmp_path / name
    copy.mkdir()
    for part in ("generate.py", "templates.toml"):
        shutil.copy(ENVS / name / part, copy)
    write = [sys.executable, str(copy / "generate.py")]
    subprocess.run(write, check=True, timeout=120)
    for split in SIZES[name]:
        assert (copy / f"{split}.jsonl").read_bytes() == (ENVS / name / f"{split}.jsonl").read_bytes()

    check = [*write, "--check"]
    subprocess.run(check, check=True, timeout=120)
    with (copy / "val.jsonl").open("ab") as file:
        file.write(b"\n")
    (copy / "test.jsonl").unlink()
    changed = subprocess.run(check, capture_output=True, text=True, timeout=120)
    assert changed.returncode == 1
    assert changed.stderr.strip().endswith(": val.jsonl, test.jsonl")


# ---------------------------------------------------------------------------------------------------- support_intents


def test_intents_are_balanced() -> None:
    choices = config("support_intents")["choices"]
    assert len(choices) == len(set(choices)) == 8
    for split, size in SIZES["support_intents"].items():
        counts = Counter(task["answer"] for task in tasks("support_intents", split))
        assert counts == dict.fromkeys(choices, size // 8)


def test_ambiguous_messages_are_few_and_spread_evenly() -> None:
    choices = config("support_intents")["choices"]
    for split, each in (("train", 2), ("val", 1), ("test", 2)):
        marked = [task for task in tasks("support_intents", split) if "metadata" in task]
        assert all(task["metadata"] == {"ambiguous": True} for task in marked)
        assert Counter(task["answer"] for task in marked) == dict.fromkeys(choices, each)


def test_message_lengths() -> None:
    lengths = sorted(len(task["input"].split()) for task in all_tasks("support_intents"))
    assert lengths[0] >= 3
    assert 12 <= lengths[len(lengths) // 2] <= 18
    assert 50 <= lengths[-1] <= 60


def test_near_duplicates_are_recognised() -> None:
    first = trigrams("Where is my parcel? It was due on Monday.")
    assert shared(first, trigrams("where is my parcel, it was due on Tuesday")) > LARGEST_SHARED
    assert shared(first, trigrams("Where is my refund? I was promised it weeks ago.")) < LARGEST_SHARED


def test_no_message_is_nearly_another() -> None:
    found = [(task["id"], trigrams(task["input"])) for task in all_tasks("support_intents")]
    near = [
        (left, right, round(shared(a, b), 2))
        for index, (left, a) in enumerate(found)
        for right, b in found[:index]
        if shared(a, b) > LARGEST_SHARED
    ]
    assert near == []


def test_labels_are_rarely_said() -> None:
    said = [task for task in all_tasks("support_intents") if task["answer"] in words(task["input"])]
    assert len(said) < 0.15 * len(all_tasks("support_intents"))


# ------------------------------------------------------------------------------------------------------ word_problems


def value_of(node: ast.expr) -> Fraction:
    """Work out an expression in exact fractions, so that a division that is not even would show."""
    if isinstance(node, ast.Constant):
        assert isinstance(node.value, int)
        return Fraction(node.value)
    assert isinstance(node, ast.BinOp)
    left, right = value_of(node.left), value_of(node.right)
    match node.op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div():
            return left / right
    raise AssertionError(ast.dump(node))


def numbers_in(text: str) -> Counter[int]:
    return Counter(int(word) if word.isdigit() else NUMBER_WORDS[word] for word in words(text) if is_number(word))


def is_number(word: str) -> bool:
    return word.isdigit() or word in NUMBER_WORDS


def numbers_of(expression: str) -> Counter[int]:
    return Counter(int(number) for number in re.findall(r"\d+", expression))


def test_word_problem_answers_follow_from_the_numbers_in_the_text() -> None:
    for task in all_tasks("word_problems"):
        metadata, tree = task["metadata"], ast.parse(task["metadata"]["expression"], mode="eval").body
        assert value_of(tree) == int(task["answer"]) > 0, task["id"]
        assert sum(isinstance(node, ast.BinOp) for node in ast.walk(tree)) == metadata["difficulty"], task["id"]
        used = numbers_of(metadata["expression"])
        if metadata["situation"] == "ages":
            used = Counter(set(used))  # the younger one's age counts twice and is said once
        assert not used - numbers_in(task["input"]), task["id"]
        assert task["input"].endswith("?"), task["id"]


def test_word_problem_kinds() -> None:
    for split, size in SIZES["word_problems"].items():
        found = [task["metadata"] for task in tasks("word_problems", split)]
        assert Counter(metadata["difficulty"] for metadata in found) == dict.fromkeys((1, 2, 3, 4), size // 4)
        assert len({metadata["situation"] for metadata in found}) >= 12
        assert 0.2 < sum(metadata["distractor"] for metadata in found) / size < 0.5


def test_no_word_problem_recurs_with_the_same_numbers() -> None:
    def shape(expression: str) -> str:
        return re.sub(r"\d+", "n", expression)

    seen = Counter(
        (
            task["metadata"]["situation"],
            shape(task["metadata"]["expression"]),
            tuple(sorted(numbers_of(task["metadata"]["expression"]).elements())),
        )
        for task in all_tasks("word_problems")
    )
    assert [key for key, count in seen.items() if count > 1] == []


# --------------------------------------------------------------------------------------------------- field_extraction


def split_question(task: dict[str, Any]) -> tuple[str, str]:
    document, question = task["input"].rsplit("\n\n", 1)
    return document, question


def dates_in(document: str) -> set[date]:
    plain = re.sub(r"(\d)(?:st|nd|rd|th)\b", r"\1", document)
    found = set()
    for pattern, formats in (
        (r"\d{1,2} [A-Z][a-z]+ \d{4}", ("%d %B %Y", "%d %b %Y")),
        (r"[A-Z][a-z]+ \d{1,2}, \d{4}", ("%B %d, %Y",)),
    ):
        for text in re.findall(pattern, plain):
            for form in formats:
                try:
                    found.add(datetime.strptime(text, form).date())
                except ValueError:
                    continue
    return found


def test_fields_stand_in_the_document() -> None:
    for task in all_tasks("field_extraction"):
        document, question = split_question(task)
        answer = json.loads(task["answer"])
        assert len(answer) == 3, task["id"]
        assert any(field.endswith("_iso") for field in answer) == (task["metadata"]["difficulty"] == 3), task["id"]
        for field, value in answer.items():
            assert field in words(question), task["id"]
            assert isinstance(value, str), task["id"]
            if field.endswith("_iso"):
                assert date.fromisoformat(value) in dates_in(document), (task["id"], value)
            else:
                alone = rf"(?<![\w.:-]){re.escape(value)}(?![\w-]|[.,:]\d)"
                assert len(re.findall(alone, document)) == 1, (task["id"], value)


def test_weekdays_in_documents_are_right() -> None:
    checked = 0
    for task in all_tasks("field_extraction"):
        for weekday, text in re.findall(r"([A-Z]\w+day), (\d{1,2} \w+ \d{4})", task["input"]):
            assert datetime.strptime(text, "%d %B %Y").strftime("%A") == weekday, task["id"]
            checked += 1
    assert checked > 10


def test_document_kinds_and_lengths() -> None:
    for split, size in SIZES["field_extraction"].items():
        found = tasks("field_extraction", split)
        kinds = Counter(task["metadata"]["kind"] for task in found)
        assert set(kinds.values()) == {size // 10}
        assert Counter(task["metadata"]["difficulty"] for task in found) == {
            1: size * 4 // 10,
            2: size * 4 // 10,
            3: size * 2 // 10,
        }
        assert all(30 <= len(split_question(task)[0].split()) <= 80 for task in found)
