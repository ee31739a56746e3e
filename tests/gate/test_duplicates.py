from __future__ import annotations

import re

import pytest

from metaharness.gate import normalised_digest
from metaharness.gate.duplicates import KnownTrees
from metaharness.gate.parse import parse_tree
from tests.gate.support import HARNESS, tree

SAME = {
    "comment": ("# what is asked", "# something else"),
    "white_space": ("PROMPT + task.input", "(PROMPT  +\n                task.input)"),
    "blank_lines": ("    def solve", "\n\n    def solve"),
    "docstring": ('"""One question."""', '"""Another text."""'),
    "no_module_docstring": ('"""Ask once."""', ""),
    "local": ("text", "question"),
    "argument": ("task", "job"),
    "quotes": ('"Name the colour of the thing."', "'Name the colour of the thing.'"),
    "joined": ('"Name the colour of the thing."', '("Name the colour "\n    "of the thing.")'),
}

OTHER = {
    "prompt": ("Name the colour", "Say the colour"),
    "global": ("PROMPT", "QUESTION"),
    "attribute": (".complete(", ".choose("),
    "method": ("def solve", "def answer"),
    "order": ("PROMPT + task.input", "task.input + PROMPT"),
    "class_name": ("class Harness", "class Other"),
}


@pytest.mark.parametrize("name", SAME)
def test_form_does_not_count(name: str) -> None:
    old, new = SAME[name]
    assert old in HARNESS
    changed = tree(
        HARNESS.replace(old, new).replace(
            "self.model.complete(question).question", "self.model.complete(question).text"
        )
    )
    assert changed.digest != tree().digest
    assert normalised_digest(changed) == normalised_digest(tree())


@pytest.mark.parametrize("name", OTHER)
def test_substance_counts(name: str) -> None:
    old, new = OTHER[name]
    assert old in HARNESS
    assert normalised_digest(tree(HARNESS.replace(old, new))) != normalised_digest(tree())


def test_swapped_locals_are_another_program() -> None:
    first = "def f(a, b):\n    return a - b\n"
    assert normalised_digest(tree(first)) != normalised_digest(tree("def f(a, b):\n    return b - a\n"))
    assert normalised_digest(tree(first)) == normalised_digest(tree("def f(b, a):\n    return b - a\n"))


FORMS = """\
def f(values, *rest, key=None, **more):
    import json as j
    global COUNT
    COUNT = 1
    def inner(x):
        nonlocal key
        key = x
        return lambda y: y + x
    try:
        with open("a") as handle:
            total = [n for n in values if (m := n)]
    except OSError as error:
        raise ValueError(error)
    match values:
        case [first, *others]:
            return first, others, j, handle, total, m
        case {"a": one, **two}:
            return one, two
    for i, (p, q) in enumerate(rest):
        more[i] = f"{p} {q!r}"
    return inner
"""


def test_every_way_to_bind_a_local_name() -> None:
    renamed = FORMS
    for name in ("values", "rest", "key", "more", "inner", "handle", "total", "error", "first", "others", "one", "two"):
        renamed = re.sub(rf"\b{name}\b", f"{name}_2", renamed)
    assert normalised_digest(tree(renamed)) == normalised_digest(tree(FORMS))
    assert normalised_digest(tree(FORMS.replace("COUNT", "NUMBER"))) != normalised_digest(tree(FORMS))


def test_other_files_count_up_to_white_space() -> None:
    first = normalised_digest(tree(files={"prompts/a.md": "one\ntwo\n"}))
    assert normalised_digest(tree(files={"prompts/a.md": "one  \n\ntwo"})) == first
    assert normalised_digest(tree(files={"prompts/a.md": "one\nthree\n"})) != first
    assert normalised_digest(tree(files={"prompts/b.md": "one\ntwo\n"})) != first
    assert normalised_digest(tree(files={"b.bin": b"\0 \n"})) != normalised_digest(tree(files={"b.bin": b"\0\n"}))


def test_files_that_do_not_parse_count_as_they_are() -> None:
    assert normalised_digest(tree("def f(:\n")) != normalised_digest(tree("def g(:\n"))


def test_known_trees() -> None:
    known = KnownTrees({"d" * 64: "c0007"}, {})
    renamed = tree(HARNESS.replace("# what is asked", ""))
    assert known.same(tree()) is None
    known.add("c0001", tree())
    known.add("c0002", tree())
    assert known.same(tree()) == "c0001"
    assert known.same(renamed) is None
    assert known.similar(renamed, parse_tree(renamed)) == "c0001"
    assert known.similar(tree("x = 1\n"), parse_tree(tree("x = 1\n"))) is None
