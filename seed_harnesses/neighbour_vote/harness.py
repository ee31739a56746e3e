"""Answer by a vote of the labelled examples that resemble the task most, without asking the model."""

from __future__ import annotations

import json
import math
import re
from collections import Counter

from metaharness.runtime import Example, Model, Shell, Task

INSTRUCTION_PROMPT = "{instruction}"
INPUT_PROMPT = "Input: {input}"
NEIGHBOURS = 20  # range: 1..60, log
SHARPNESS = 2.0  # range: 0.5..6.0
NGRAM = 4  # range: 2..6


def terms_of(text: str) -> Counter[str]:
    """Count the words of a text, their pairs, and the character n-grams of each word."""
    words = re.findall(r"\w+", text.lower())
    terms = Counter(words)
    terms.update(f"{first} {second}" for first, second in zip(words, words[1:]))
    for word in words:
        padded = f"<{word}>"
        terms.update(padded[i : i + NGRAM] for i in range(len(padded) - NGRAM + 1))
    return terms


def similarities(examples: list[Example], text: str) -> list[float]:
    """Return the cosine of the TF-IDF vectors of each example's input and the text, in [0, 1]."""
    counts = [terms_of(example.input) for example in examples]
    occurs_in = Counter(term for count in counts for term in count)
    weight = {term: math.log((1 + len(counts)) / (1 + number)) + 1 for term, number in occurs_in.items()}

    def unit(count: Counter[str]) -> dict[str, float]:
        vector = {term: (1 + math.log(n)) * weight[term] for term, n in count.items() if term in weight}
        length = math.sqrt(sum(value * value for value in vector.values())) or 1.0
        return {term: value / length for term, value in vector.items()}

    query = unit(terms_of(text))
    return [sum(value * query.get(term, 0.0) for term, value in unit(count).items()) for count in counts]


def weigh_choices(examples: list[Example], task: Task) -> dict[str, float]:
    """Weigh each answer before the model is asked: by the similarity of the nearest examples that have it."""
    scores = similarities(examples, task.input)
    nearest = sorted(range(len(examples)), key=lambda i: (-scores[i], i))[:NEIGHBOURS]
    weights: dict[str, float] = {}
    for i in nearest:
        weights[examples[i].answer] = weights.get(examples[i].answer, 0.0) + scores[i] ** SHARPNESS
    return weights


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


def ask(model: Model, task: Task, prompt: list[dict[str, str]], examples: list[Example]) -> str:
    """Return the answer with the greatest weight; the model is not asked."""
    weights = weigh_choices(examples, task)
    return max(weights, key=lambda answer: weights[answer], default=(task.choices or [""])[0])


def parse_answer(text: str, task: Task) -> str:
    """Take the answer as it is."""
    return text


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
