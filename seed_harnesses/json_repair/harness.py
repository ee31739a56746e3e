"""Constrain the reply to the shape of the answer, and repair what is malformed all the same."""

from __future__ import annotations

import ast
import json
import re
from itertools import zip_longest
from typing import Any

from metaharness.runtime import Example, Model, Shell, Task, Unsupported

INSTRUCTION_PROMPT = "{instruction}"
INPUT_PROMPT = "Input: {input}"
SHOTS = 4  # range: 0..12
ANSWER_TOKENS = 128  # range: 16..256


def read_object(text: str) -> dict[str, Any]:
    """Return the first JSON object of a text, also one with wrong quotes or without its end; empty without one."""
    start, end = text.find("{"), text.rfind("}")
    body = re.sub(r",\s*}", "}", text[start : end + 1] if end > start else text[max(start, 0) :].rstrip(" \n,`"))
    for attempt in (body, body + "}", body + '"}'):
        for read in (json.loads, ast.literal_eval):
            try:
                found = read(attempt)
            except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                continue
            if isinstance(found, dict):
                return {str(name): value for name, value in found.items()}
    return {}


def answer_schema(task: Task, examples: list[Example]) -> dict[str, Any] | None:
    """Return the JSON schema of the answer: the choices, a number, or the known fields that the task names."""
    if task.choices:
        return {"type": "string", "enum": task.choices}
    if examples and all(re.fullmatch(r"-?\d+", example.answer) for example in examples):
        return {"type": "integer"}
    fields = {name for example in examples for name in read_object(example.answer)}
    text = f"{task.instruction}\n{task.input}"
    places = {name: re.search(rf"\b{re.escape(name)}\b", text) for name in fields}
    asked = sorted((place.start(), name) for name, place in places.items() if place)
    properties = {name: {"type": "string"} for _, name in asked}
    return {"type": "object", "properties": properties, "required": list(properties)} if asked else None


def select_examples(examples: list[Example], task: Task) -> list[Example]:
    """Show the same examples for every task: of each choice in turn, the shortest first."""
    groups: dict[str, list[Example]] = {}
    for example in sorted(examples, key=lambda e: len(e.input)):
        groups.setdefault(example.answer if task.choices else "", []).append(example)
    rounds = zip_longest(*(groups[answer] for answer in sorted(groups)))
    in_turn = [example for one_round in rounds for example in one_round if example is not None]
    return in_turn[:SHOTS]


def show_answer(example: Example) -> str:
    """Show the answer as it is."""
    return example.answer


def build_prompt(task: Task, shots: list[Example]) -> list[dict[str, str]]:
    """Lay out instruction, solved examples and input as a chat; what is the same for every task comes first."""
    messages = []
    for shot in shots:
        messages.append({"role": "user", "content": INPUT_PROMPT.format(input=shot.input)})
        messages.append({"role": "assistant", "content": show_answer(shot)})
    messages.append({"role": "user", "content": INPUT_PROMPT.format(input=task.input)})
    opening = INSTRUCTION_PROMPT.format(instruction=task.instruction, choices=", ".join(task.choices or [])).strip()
    messages[0]["content"] = f"{opening}\n\n{messages[0]['content']}".strip()
    return messages


def ask(model: Model, task: Task, prompt: list[dict[str, str]], examples: list[Example]) -> str:
    """Ask for a reply of the right shape; ask freely where the backend cannot constrain replies."""
    try:
        return model.complete(prompt, max_tokens=ANSWER_TOKENS, schema=answer_schema(task, examples)).text
    except Unsupported:
        return model.complete(prompt, max_tokens=ANSWER_TOKENS).text


def parse_answer(text: str, task: Task) -> str:
    """Return the choice that is named, or the object written anew; else the reply."""
    named = [choice for choice in task.choices or () if choice.lower() in text.lower()]
    found = {} if task.choices else read_object(text)
    written = json.dumps(found, ensure_ascii=False, skipkeys=True, default=str) if found else text.strip()
    return named[0] if named else written


class Harness:
    """Solves tasks by the steps above, with the labelled examples that it was given."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.examples: list[Example] = []

    def learn(self, examples: list[Example]) -> None:
        """Keep the examples."""
        self.examples.extend(examples)

    def save(self) -> bytes:
        """Return the examples as JSON."""
        return json.dumps([[e.instruction, e.input, e.answer, e.choices] for e in self.examples]).encode()

    def load(self, state: bytes) -> None:
        """Take back what `save` returned."""
        self.examples = [Example(*row) for row in json.loads(state)]

    def solve(self, task: Task, shell: Shell | None) -> str:
        """Return the answer to one task."""
        prompt = build_prompt(task, select_examples(self.examples, task))
        return parse_answer(ask(self.model, task, prompt, self.examples), task)
