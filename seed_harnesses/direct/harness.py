"""Ask the model once, without examples: the plainest harness."""

from __future__ import annotations

from metaharness.runtime import Example, Model, Shell, Task

INSTRUCTION_PROMPT = "{instruction}"
INPUT_PROMPT = "Input: {input}"
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
    """Solves tasks by the steps above; learns nothing."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.examples: list[Example] = []

    def solve(self, task: Task, shell: Shell | None) -> str:
        """Return the answer to one task."""
        prompt = build_prompt(task, select_examples(self.examples, task))
        return parse_answer(ask(self.model, task, prompt, self.examples), task)
