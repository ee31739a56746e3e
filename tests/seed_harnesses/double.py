"""A model double for harnesses that run in this process, and one task of each kind."""

from __future__ import annotations

import hashlib
import json
import linecache
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from metaharness.runtime import Example, Model, Reply, Task, Unsupported

SEEDS = Path(__file__).parents[2] / "seed_harnesses"
NAMES = sorted(path.parent.name for path in SEEDS.glob("*/harness.toml"))

INTENTS = ["billing", "delivery", "refund"]
CHOICE_TASK = Task(
    id="a", instruction="Which topic? Answer with one word.", input="where is my parcel", choices=INTENTS
)
NUMBER_TASK = Task(
    id="b",
    instruction="Solve the word problem. Answer with the number alone, in digits.",
    input="Tom has 3 boxes of 12 eggs and eats 4 of them. How many eggs are left?",
)
OBJECT_TASK = Task(
    id="c",
    instruction="Answer with one JSON object that holds the fields asked for.",
    input="Hotel Miramar, guest Ann Lee, 5 nights.\n\nAs a JSON object: guest, nights.",
)
TASKS = {"choice": CHOICE_TASK, "number": NUMBER_TASK, "object": OBJECT_TASK}
EXAMPLES = {
    "choice": [
        Example(CHOICE_TASK.instruction, text, answer, INTENTS)
        for text, answer in (
            ("the parcel has not come", "delivery"),
            ("you charged me twice", "billing"),
            ("money back please", "refund"),
            ("when does the courier come", "delivery"),
            ("what is this fee", "billing"),
        )
    ],
    "number": [
        Example(NUMBER_TASK.instruction, "2 bags hold 7 apples each. How many apples are there?", "14"),
        Example(NUMBER_TASK.instruction, "Five birds sit there, 2 fly off. How many are left?", "3"),
        Example(NUMBER_TASK.instruction, "Nothing here can be added up.", "41"),
    ],
    "object": [
        Example(OBJECT_TASK.instruction, "Guest Bo. As JSON: guest, hotel.", '{"guest": "Bo", "hotel": "Linde"}'),
        Example(OBJECT_TASK.instruction, "Two nights. As JSON: nights.", '{"nights": "2"}'),
    ],
}
WEIRD = ("", " ", "\n\n", "{", '{"guest": "Ann', "```json\n{'guest': 'Ann',}\n```", "3 * 12 - 4", "1 / 0", "9" * 5000)
WEIRD += (
    "((((",
    "3 + ...",
    "[1, 2]",
    "nul\x00l",
    "it is DELIVERY or refund",
    "\ud800",
    "7,200.50",
    "{" * 300,
    "{1: {2, 3}}",
)


class Parrot:
    """Replies with given texts in turn, whatever is asked; log-probabilities come from a hash.

    Args:
        replies: Texts.
        able: Whether it can choose and obey a schema.
    """

    def __init__(self, replies: Sequence[str] = ("delivery",), *, able: bool = True) -> None:
        self.requests: list[Any] = []
        self._replies = list(replies)
        self._able = able

    def complete(self, messages: Any, *, max_tokens: int = 256, **options: Any) -> Reply:
        check_messages(messages)
        assert max_tokens >= 1
        if options.get("schema") is not None and not self._able:
            raise Unsupported("no schema")
        self.requests.append((messages, options))
        return Reply(self._replies[(len(self.requests) - 1) % len(self._replies)])

    def choose(self, prompt: str, choices: Sequence[str]) -> list[float]:
        if not self._able:
            raise Unsupported("no log-probabilities")
        self.requests.append((prompt, list(choices)))
        return [-1.0 - hashlib.sha256(f"{prompt}{choice}".encode()).digest()[0] / 64 for choice in choices]


def check_messages(messages: Any) -> None:
    """Assert what the host would refuse."""
    assert isinstance(messages, (str, list))
    for message in messages if isinstance(messages, list) else []:
        assert isinstance(message, Mapping)
        assert message["role"] in ("user", "assistant")
        assert isinstance(message["content"], str)
    json.dumps(messages)


def load(code: str, name: str = "harness") -> types.ModuleType:
    """Run the code of a harness as a module."""
    module = types.ModuleType(f"seed_{name}")
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    exec(compile(code, name, "exec"), module.__dict__)
    return module


def seed_code(name: str) -> str:
    return (SEEDS / name / "harness.py").read_text("utf-8")


def run(module: types.ModuleType, kind: str, model: Model) -> str:
    """Fit as the host does, then solve one task in a fresh harness."""
    harness = module.Harness(model)
    if hasattr(harness, "learn"):
        harness.learn(list(EXAMPLES[kind]))
        state = harness.save()
        assert isinstance(state, bytes)
        harness = module.Harness(model)
        harness.load(state)
    answer = harness.solve(TASKS[kind], None)
    assert isinstance(answer, str)
    return answer
