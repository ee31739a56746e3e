"""Show the same labelled examples with every task, then ask once.

Source: Brown et al. 2020, section 2.
"""

from __future__ import annotations

import json
from itertools import zip_longest

from metaharness.runtime import Example, Model, Shell, Task

INSTRUCTION_PROMPT = "{instruction}"
INPUT_PROMPT = "Input: {input}"
SHOTS = 8  # range: 0..24
ANSWER_TOKENS = 96  # range: 16..256
CHOICE_TOKENS = 8  # range: 4..48


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
    """Ask once."""
    return model.complete(prompt, max_tokens=CHOICE_TOKENS if task.choices else ANSWER_TOKENS).text


def parse_answer(text: str, task: Task) -> str:
    """Return the choice that is named first; the whole reply where there are no choices or none is named."""
    answer = text.strip()
    found = {choice: answer.lower().find(choice.lower()) for choice in task.choices or ()}
    named = [choice for choice, place in found.items() if place >= 0]
    return min(named, key=lambda choice: (found[choice], -len(choice)), default=answer)


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
