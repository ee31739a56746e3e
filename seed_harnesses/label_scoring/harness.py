"""Compare the log-probabilities of the choices, calibrated by an input without content.

Source: Zhao et al. 2021, "Calibrate before use", section 5.
"""

from __future__ import annotations

import json
import math
from collections import Counter

from metaharness.runtime import Example, Model, Shell, Task, Unsupported

INSTRUCTION_PROMPT = "{instruction}"
INPUT_PROMPT = "Input: {input}"
NEUTRAL_PROMPT = "N/A"
ANSWER_PROMPT = "Answer:"
CALIBRATION = 1.0  # range: 0.0..1.5
PRIOR_WEIGHT = 1.0  # range: 0.0..4.0
SMOOTHING = 0.05  # range: 0.005..1.0, log
ANSWER_TOKENS = 96  # range: 16..256
CHOICE_TOKENS = 8  # range: 4..48


def select_examples(examples: list[Example], task: Task) -> list[Example]:
    """Show no example."""
    return []


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


def weigh_choices(examples: list[Example], task: Task) -> dict[str, float]:
    """Weigh each answer before the model is asked: how often it occurs among the examples."""
    return {answer: float(count) for answer, count in Counter(example.answer for example in examples).items()}


def as_text(prompt: list[dict[str, str]]) -> str:
    """Write a chat as plain text that ends where the answer would begin."""
    parts = [f"{m['content']}\n{ANSWER_PROMPT}" if m["role"] == "user" else f" {m['content']}\n\n" for m in prompt]
    return "".join(parts)


def score_choices(model: Model, task: Task, prompt: list[dict[str, str]], choices: list[str]) -> list[float]:
    """Return how far the input raises the log-probability of each choice over that for an input without content."""
    last = prompt[-1]["content"]
    head, _, tail = last.rpartition(task.input) if task.input else (last, "", "")
    neutral = [*prompt[:-1], {"role": "user", "content": head + NEUTRAL_PROMPT + tail}]
    continuations = [f" {choice}" for choice in choices]
    given, without = (model.choose(as_text(chat), continuations) for chat in (prompt, neutral))
    return [one - CALIBRATION * other for one, other in zip(given, without)]


def ask(model: Model, task: Task, prompt: list[dict[str, str]], examples: list[Example]) -> str:
    """Return the choice with the best score; ask for a reply where there are no choices or no log-probabilities."""
    choices = task.choices or []
    try:
        scores = score_choices(model, task, prompt, choices) if choices else []
    except Unsupported:
        scores = []
    if not scores:
        return model.complete(prompt, max_tokens=CHOICE_TOKENS if choices else ANSWER_TOKENS).text
    weights = weigh_choices(examples, task)
    floor = SMOOTHING * (sum(weights.values()) or 1.0)
    prior = [PRIOR_WEIGHT * math.log(weights.get(choice, 0.0) + floor) for choice in choices]
    return max(zip(choices, scores, prior), key=lambda row: row[1] + row[2])[0]


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
