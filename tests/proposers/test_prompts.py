from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaharness.proposers.codemods import OPERATORS
from metaharness.proposers.codemods.module import StepModule
from metaharness.proposers.codemods.phrases import LIBRARY, fields_of
from metaharness.proposers.codemods.rewrite_prompt import keeps_fields, literal, offered_fields, prompt_constants
from tests.proposers.world import harness, material
from tests.seed_harnesses.double import seed_code

NAMES = ("INSTRUCTION_PROMPT", "INPUT_PROMPT", "ANSWER_PROMPT", "NEUTRAL_PROMPT", "THINKING_PROMPT", "RETRY_PROMPT")


def test_names_in_the_library_are_unique() -> None:
    assert len({phrase.name for phrase in LIBRARY}) == len(LIBRARY)


@given(st.sampled_from(NAMES), st.text(max_size=80))
def test_no_transformation_raises_or_changes_nothing(name: str, text: str) -> None:
    for phrase in LIBRARY:
        changed = phrase.apply(name, text)
        assert changed is None or changed != text


@given(st.sampled_from(NAMES), st.sampled_from(["{a} b. C {a}!", "Input: {input}", "Please do {x}. Now.", "plain"]))
def test_kept_changes_can_be_formatted_as_before(name: str, text: str) -> None:
    fields = fields_of(text)
    assert fields is not None
    for phrase in LIBRARY:
        changed = phrase.apply(name, text)
        if changed is not None and keeps_fields(text, changed, frozenset()):
            changed.format(**dict.fromkeys(fields, "value"))


@given(st.text(max_size=400), st.integers(10, 110))
def test_a_literal_means_the_text(text: str, room: int) -> None:
    assert ast.literal_eval(literal(text, room)) == text


def test_long_prompts_are_written_in_several_lines() -> None:
    lines = literal("word " * 60, 100).splitlines()
    assert len(lines) > 3
    assert max(map(len, lines)) <= 120


def test_fields_offered_by_every_format_call_may_be_used() -> None:
    module = StepModule.parse(seed_code("direct"))
    assert module is not None
    assert offered_fields(module, "INSTRUCTION_PROMPT") == {"instruction", "choices"}
    moves = OPERATORS["rewrite_prompt"].moves(material("direct"))
    names = {move.details["transformation"] for move in moves if move.details["target"] == "INSTRUCTION_PROMPT"}
    assert {"one_word", "restate_choices", "choices_alone", "no_instruction"} <= names
    program = OPERATORS["rewrite_prompt"].moves(material("program_of_thought"))
    names = {move.details["transformation"] for move in program if move.details["target"] == "INSTRUCTION_PROMPT"}
    assert "restate_choices" not in names  # nobody fills it in there


@pytest.mark.parametrize(("old", "new", "kept"), [("{a", "{a b", True), ("{a", "a", False), ("{a}", "x", False)])
def test_fields_and_braces_stay(old: str, new: str, kept: bool) -> None:
    assert keeps_fields(old, new, frozenset()) is kept


def test_only_literal_strings_are_prompts() -> None:
    code = 'A_PROMPT = "x " "y"\nB_PROMPT = f"{A_PROMPT}"\nC_PROMPT: str = "z"\nD = "no"\nE_PROMPT = 3\n'
    module = StepModule.parse(code)
    assert module is not None
    assert prompt_constants(module) == {"A_PROMPT": "x y", "C_PROMPT": "z"}


def test_prompt_files_are_rewritten_where_code_may_not_be() -> None:
    tree = harness(seed_code("direct"), **{"prompts/system.txt": "Please answer. Be short.\n"})
    here = material(tree, "few_shot", editable=("prompts/**",))
    for name, operator in OPERATORS.items():
        moves = operator.moves(here)
        assert bool(moves) == (name == "rewrite_prompt"), name
        for move in moves:
            changed = move.apply()
            assert changed is not None
            assert tree.changed_paths(changed) == ["prompts/system.txt"]
            assert changed.text("prompts/system.txt").endswith("\n")
