from __future__ import annotations

import json
from pathlib import Path

import pytest

from metaharness.candidate import Finding
from metaharness.environments.native import NativeEnvironment
from metaharness.gate.leaks import LeakIndex
from metaharness.gate.parse import parse_tree
from metaharness.source import SourceTree
from tests.environments.support import write_environment
from tests.gate.support import HARNESS, tree

CANARY = "metaharness-canary 1b0e7a52-5f0c-4c8c-9a44-0123456789ab"
CONFIG = f"""\
schema_version = 1
name = "letters"
instruction = "Read the letter and say in one of the given words what it is about, please."
canary = "{CANARY}"
[scorer]
kind = "normalised"
"""
SEALED = "My grandmother's silver teapot arrived with a dent in its lid on Tuesday."
HELD_OUT = "Could somebody finally explain why the lift\nin building seven stops between floors?"
TRAINED = "The tenant on the third floor plays the trombone every single night."
SHARED = "I am writing to you because of the following matter."
SPLITS = {
    "train": [
        {"id": "train-0", "input": f"{SHARED} {TRAINED}", "answer": "a complaint about noise at night"},
        {"id": "train-1", "input": "A short one.", "answer": "billing"},
    ],
    "val": [
        {"canary": CANARY},
        {"id": "val-0", "input": f"{SHARED} {SEALED}", "answer": "damage on the way to the customer"},
        {"id": "val-1", "input": "where is my lost umbrella", "answer": "delivery"},
    ],
    "test": [
        {"id": "test-0", "input": HELD_OUT, "answer": "repair"},
        {"id": "test-1", "input": "Ein Brief", "answer": "internationalisation", "choices": ["internationalisation"]},
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> LeakIndex:
    directory = tmp_path_factory.mktemp("letters")
    return LeakIndex([NativeEnvironment(write_environment(directory, CONFIG, SPLITS))])


def scan(index: LeakIndex, checked: SourceTree) -> list[Finding]:
    return index.scan(checked, parse_tree(checked))


FATAL = {
    "whole_input": f'HINT = "{SEALED}"',
    "eight_words": 'HINT = "silver teapot arrived with a dent in its"',
    "other_case_and_punctuation": "# SILVER-TEAPOT: arrived, with a dent; in its",
    "over_lines": 'HINT = (\n    "grandmother\'s silver teapot arrived "\n    "with a dent in its lid"\n)',
    "joined": 'HINT = "the lift in building " + "seven stops between floors"',
    "escaped": 'HINT = "explain why the lift\\nin building seven stops between"',
    "hidden_by_escapes": 'HINT = "explain \\x77hy the li\\u0066t in building seven stops between"',
    "in_an_identifier": "why_the_lift_in_building_seven_stops_between = 1",
    "answer": 'ANSWERS = ["damage on the way to the customer"]',
    "canary": f"# {CANARY}",
    "canary_in_part": "# 1B0E7A52-5F0C-4C8C-9A44-0123456789AB",
}


@pytest.mark.parametrize("name", FATAL)
def test_copies_of_val_and_test_are_fatal(index: LeakIndex, name: str) -> None:
    source = f"{HARNESS}\n{FATAL[name]}\n"
    line = HARNESS.count("\n") + 2
    found = scan(index, tree(source))
    assert found
    assert all(finding.fatal and finding.check == "leak" and finding.path == "harness.py" for finding in found)
    assert line in [finding.line for finding in found] or name == "over_lines"
    told = " ".join(map(str, found)).casefold()
    assert not any(word in told for word in ("teapot", "umbrella", "lift", "val-0", "test-0", "letters", "damage"))


FLAGGED = {
    "train_input": f'HINT = "{TRAINED}"',
    "train_answer": 'ANSWERS = ["a complaint about noise at night"]',
    "short_val_input": 'EXAMPLE = "Where is my lost umbrella?"',
    "shared_phrase": f'HINT = "{SHARED}"',
}


@pytest.mark.parametrize("name", FLAGGED)
def test_copies_of_train_and_of_short_texts_are_flagged(index: LeakIndex, name: str) -> None:
    found = scan(index, tree(f"{HARNESS}\n{FLAGGED[name]}\n"))
    assert found
    assert not any(finding.fatal for finding in found)
    assert {finding.line for finding in found} == {HARNESS.count("\n") + 2}


CLEAN = {
    "nothing": "",
    "instruction": 'PROMPT = "Read the letter and say in one of the given words what it is about, please."',
    "seven_words": 'HINT = "teapot arrived with a dent in its"',
    "a_choice": 'LABEL = "internationalisation"',
    "a_short_answer": 'LABEL = "delivery"',
    "part_of_a_short_input": 'EXAMPLE = "is my lost umbrella"',
    "words_in_another_order": 'HINT = "its in dent a with arrived teapot silver"',
}


@pytest.mark.parametrize("name", CLEAN)
def test_what_is_no_copy(index: LeakIndex, name: str) -> None:
    assert scan(index, tree(f"{HARNESS}\n{CLEAN[name]}\n")) == []


def test_every_file_is_read(index: LeakIndex) -> None:
    (first,) = scan(index, tree(files={"prompts/a.md": f"\n\n{SEALED}"}))[:1]
    assert str(first) == (
        "leak: prompts/a.md:3: 8 words in a row, or a whole answer, of a val or test task"
    )  # fmt: skip
    assert scan(index, tree(files={"data.json": json.dumps({"x": SEALED})}))


def test_findings_are_limited(index: LeakIndex) -> None:
    assert len(scan(index, tree(files={"prompts/a.md": f"{SEALED}\n" * 100}))) == 5


def test_streams_are_covered_and_their_lists_of_labels_are_not(tmp_path: Path) -> None:
    config = CONFIG.replace("[scorer]", 'protocol = "online"\n[online]\nstreams_per_split = 1\n[scorer]')
    many = [{"id": f"v{n}", "input": f"{SEALED} {n}", "answer": "ab"[n % 2]} for n in range(20)]
    streamed = LeakIndex([NativeEnvironment(write_environment(tmp_path, config, {**SPLITS, "val": many}))])
    assert scan(streamed, tree(FATAL["whole_input"]))
    assert scan(streamed, tree("LABELS = 'a b a b a b a b a b b a b a b a b a b a'\n")) == []


def test_without_environments_nothing_leaks() -> None:
    assert scan(LeakIndex([]), tree(FATAL["whole_input"])) == []
