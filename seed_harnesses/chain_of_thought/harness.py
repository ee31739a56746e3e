"""Let the model think aloud, then ask it for the answer alone.

Source: Kojima et al. 2022, "Large language models are zero-shot reasoners", section 3.
"""

from __future__ import annotations

import re

from metaharness.runtime import Example, Model, Shell, Task

INSTRUCTION_PROMPT = "{instruction}"
INPUT_PROMPT = "Input: {input}"
THINKING_PROMPT = "Let's think step by step."
CONCLUSION_PROMPT = "So the answer alone is:"
THOUGHT_TOKENS = 48  # range: 16..192
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
    """Let the model think aloud first, then ask for the answer alone."""
    question = {"role": "user", "content": f"{prompt[-1]['content']}\n\n{THINKING_PROMPT}".strip()}
    thinking = [*prompt[:-1], question]
    thought = model.complete(thinking, max_tokens=THOUGHT_TOKENS).text
    ending = [{"role": "assistant", "content": thought}, {"role": "user", "content": CONCLUSION_PROMPT}]
    return model.complete([*thinking, *ending], max_tokens=CHOICE_TOKENS if task.choices else ANSWER_TOKENS).text


def parse_answer(text: str, task: Task) -> str:
    """Return the last choice named, the JSON object, or the last number, whichever the task is after."""
    answer = text.strip()
    if task.choices:
        found = {choice: answer.lower().rfind(choice.lower()) for choice in task.choices}
        named = [choice for choice, place in found.items() if place >= 0]
        return max(named, key=lambda choice: (found[choice], len(choice)), default=answer)
    if "json" in f"{task.instruction} {task.input}".lower():
        return answer[max(answer.find("{"), 0) : answer.rfind("}") + 1] or answer
    numbers = re.findall(r"-?\d+(?:[.,]\d+)*", answer)
    return numbers[-1].replace(",", "") if numbers else answer


class Harness:
    """Solves tasks by the steps above; learns nothing."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.examples: list[Example] = []

    def solve(self, task: Task, shell: Shell | None) -> str:
        """Return the answer to one task."""
        prompt = build_prompt(task, select_examples(self.examples, task))
        return parse_answer(ask(self.model, task, prompt, self.examples), task)
