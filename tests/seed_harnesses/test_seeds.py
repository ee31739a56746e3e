from __future__ import annotations

import ast
import json
import sys
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaharness.gate.contract import check_harness
from metaharness.proposers.codemods.module import StepModule
from metaharness.proposers.codemods.move_constant import bounded_constants
from metaharness.source import SourceTree
from tests.seed_harnesses.double import (
    CHOICE_TASK,
    EXAMPLES,
    INTENTS,
    NAMES,
    NUMBER_TASK,
    OBJECT_TASK,
    SEEDS,
    TASKS,
    WEIRD,
    Parrot,
    load,
    run,
    seed_code,
)

IDEAS = {
    "chain_of_thought",
    "direct",
    "few_shot",
    "json_repair",
    "label_scoring",
    "nearest_examples",
    "neighbour_vote",
    "program_of_thought",
    "vote",
}
STEPS = ("select_examples", "show_answer", "build_prompt", "ask", "parse_answer")
MODULES = {name: load(seed_code(name), name) for name in NAMES}


def test_all_ideas_are_there() -> None:
    assert set(NAMES) == IDEAS


@pytest.mark.parametrize("name", NAMES)
def test_it_is_small_documented_and_keeps_the_contract(name: str) -> None:
    tree = SourceTree.from_directory(SEEDS / name)
    code = tree.text("harness.py")
    assert len(code.splitlines()) < 120
    assert tree.config.name == name
    assert tree.config.description
    assert tree.text("README.md").startswith(f"# {name}\n")
    assert check_harness(tree) == []
    ast.parse(code, feature_version=(3, 9))
    imported = {node.module for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)}
    assert {str(m).split(".")[0] for m in imported} <= {"metaharness", *sys.stdlib_module_names}
    for node in ast.parse(code).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            assert ast.get_docstring(node), node.name


@pytest.mark.parametrize("name", NAMES)
def test_every_number_declares_bounds_that_hold(name: str) -> None:
    module = StepModule.parse(seed_code(name))
    assert module is not None
    bounded = bounded_constants(module)
    numbers = {
        key
        for key in module.constants
        if isinstance(getattr(MODULES[name], key), int | float) and not isinstance(getattr(MODULES[name], key), bool)
    }
    assert set(bounded) == numbers
    for key, constant in bounded.items():
        assert constant.low <= constant.value <= constant.high, key
        assert constant.steps(), key


def test_steps_have_the_same_names_and_signatures() -> None:
    signatures: dict[str, set[str]] = {}
    for name in NAMES:
        module = StepModule.parse(seed_code(name))
        assert module is not None
        assert set(STEPS) <= set(module.functions), name
        for step, signature in module.signatures.items():
            signatures.setdefault(step, set()).add(signature)
    assert {step: len(found) for step, found in signatures.items() if len(found) > 1} == {}
    assert "weigh_choices" in signatures


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("name", NAMES)
def test_it_solves_every_kind_of_task(name: str, kind: str) -> None:
    good = {"choice": "delivery", "number": "3 * 12 - 4", "object": '{"guest": "Ann Lee", "nights": "5"}'}[kind]
    for able in (True, False):
        answer = run(MODULES[name], kind, Parrot([good], able=able))
        if name == "neighbour_vote":
            assert answer in {example.answer for example in EXAMPLES[kind]}
        elif kind == "choice":
            assert answer in INTENTS
        elif kind == "object":
            assert json.loads(answer) == json.loads(good)
        elif name == "program_of_thought":
            assert answer == "32"


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("name", NAMES)
def test_no_reply_makes_it_raise(name: str, kind: str) -> None:
    for reply in WEIRD:
        run(MODULES[name], kind, Parrot([reply]))
    run(MODULES[name], kind, Parrot(WEIRD, able=False))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(replies=st.lists(st.text(max_size=60), min_size=1, max_size=4), kind=st.sampled_from(sorted(TASKS)))
def test_no_text_makes_it_raise(name: str, replies: list[str], kind: str) -> None:
    run(MODULES[name], kind, Parrot(replies, able=len(replies) % 2 == 0))


@pytest.mark.parametrize("name", NAMES)
def test_it_works_without_having_learned(name: str) -> None:
    for task in TASKS.values():
        assert isinstance(MODULES[name].Harness(Parrot()).solve(task, None), str)


def test_learning_goes_on_in_a_stream() -> None:
    harness = MODULES["few_shot"].Harness(Parrot())
    harness.learn(EXAMPLES["choice"][:2])
    harness.learn(EXAMPLES["choice"][2:])
    assert len(json.loads(harness.save())) == len(EXAMPLES["choice"])


def test_few_shot_shows_every_answer_in_turn() -> None:
    few = MODULES["few_shot"]
    shots = few.select_examples(EXAMPLES["choice"], CHOICE_TASK)
    assert [shot.answer for shot in shots[:3]] == INTENTS
    messages = few.build_prompt(CHOICE_TASK, shots)
    assert [m["role"] for m in messages] == ["user", "assistant"] * len(shots) + ["user"]
    assert messages[0]["content"].startswith(CHOICE_TASK.instruction)
    assert messages[-1]["content"] == f"Input: {CHOICE_TASK.input}"


def test_nearest_examples_puts_the_nearest_last() -> None:
    shots = MODULES["nearest_examples"].select_examples(EXAMPLES["choice"], CHOICE_TASK)
    assert shots[-1].input == "the parcel has not come"


def test_neighbour_vote_never_asks() -> None:
    model = Parrot()
    assert run(MODULES["neighbour_vote"], "choice", model) == "delivery"
    assert model.requests == []


class Biased:
    """Prefers one choice whatever the input, and another a little for one input."""

    def complete(self, messages: object, **options: object) -> object:
        raise AssertionError("log-probabilities are there")

    def choose(self, prompt: str, choices: list[str]) -> list[float]:
        gain: Mapping[str, float] = {" refund": 0.0, " billing": -2.0, " delivery": -3.0}
        return [gain[choice] + (1.5 if "parcel" in prompt and choice == " delivery" else 0.0) for choice in choices]


def test_label_scoring_takes_the_models_bias_out() -> None:
    module = load(seed_code("label_scoring"))
    assert module.Harness(Biased()).solve(CHOICE_TASK, None) == "delivery"
    module.CALIBRATION = 0.0
    assert module.Harness(Biased()).solve(CHOICE_TASK, None) == "refund"


def test_vote_returns_the_most_frequent_allowed_answer() -> None:
    replies = ["refund", "no idea", "delivery", "no idea", "delivery", "no idea"]
    assert run(MODULES["vote"], "choice", Parrot(replies)) == "delivery"


def test_chain_of_thought_asks_for_the_answer_after_thinking() -> None:
    model = Parrot(["36 eggs, 4 eaten, so 32.", "The answer is 32 eggs."])
    assert run(MODULES["chain_of_thought"], "number", model) == "32"
    assert [len(messages) for messages, _ in model.requests] == [1, 3]


def test_json_repair_constrains_and_repairs() -> None:
    module = MODULES["json_repair"]
    assert module.answer_schema(CHOICE_TASK, [])["enum"] == INTENTS
    assert module.answer_schema(NUMBER_TASK, EXAMPLES["number"]) == {"type": "integer"}
    assert list(module.answer_schema(OBJECT_TASK, EXAMPLES["object"])["properties"]) == ["guest", "nights"]
    assert module.answer_schema(OBJECT_TASK, []) is None
    for text in ("```json\n{'a': 'b',}\n```", '{"a": "b', '{"a": "b"', 'So: {"a": "b"} I think'):
        assert module.read_object(text) == {"a": "b"}, text


@given(st.text(max_size=80))
def test_reading_an_object_never_raises(text: str) -> None:
    assert isinstance(MODULES["json_repair"].read_object(text), dict)


@pytest.mark.parametrize(
    ("text", "value"),
    [("3 * 12 - 4", "32"), ("(1 + 2) * 3 = 9", "9"), ("7 / 2", "3.5"), ("1,200 + 1", "1201"), ("1 / 0", ""), ("x", "")],
)
def test_program_of_thought_evaluates_arithmetic_alone(text: str, value: str) -> None:
    assert MODULES["program_of_thought"].evaluate(text) == value


@pytest.mark.parametrize("text", ["2 ** 9 ** 9", "().__class__", "1 if 1 else 2", "1 + ...", "0x" + "f" * 99, "1_0"])
def test_program_of_thought_evaluates_nothing_else(text: str) -> None:
    assert MODULES["program_of_thought"].evaluate(text) in ("", "0", "1")


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 60), min_size=2, max_size=4), st.data())
def test_a_found_expression_gives_the_target(numbers: list[int], data: st.DataObject) -> None:
    module = MODULES["program_of_thought"]
    first, second = data.draw(st.permutations(numbers))[:2]
    target = data.draw(st.sampled_from([first + second, first * second, first - second]))
    text = ", then ".join(map(str, numbers))
    expression = module.find_expression(text, target)
    assert module.evaluate(expression) == str(target)


def test_the_demonstrations_are_expressions() -> None:
    shown = [MODULES["program_of_thought"].show_answer(example) for example in EXAMPLES["number"]]
    assert shown == ["2 * 7", "5 - 2", "41"]
