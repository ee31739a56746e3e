"""Let the model write an arithmetic expression, and work it out here (Chen et al. 2022, "Program of thoughts")."""

from __future__ import annotations

import ast
import json
import operator
import re

from metaharness.runtime import Example, Model, Shell, Task

INSTRUCTION_PROMPT = "{instruction}"
PROGRAM_PROMPT = "Write the arithmetic expression that solves the problem, with numbers only."
INPUT_PROMPT = "Input: {input}"
SHOTS = 8  # range: 0..16
ANSWER_TOKENS = 96  # range: 16..256
NUMBER_WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def find_expression(text: str, target: int) -> str:
    """Return an expression over few of the whole numbers of a text that gives the target, or an empty text."""
    words = [word for word in re.findall(r"\d+|[a-z]+", text.lower()) if word.isdigit() or word in NUMBER_WORDS]
    numbers = tuple(int(word) if word.isdigit() else NUMBER_WORDS.index(word) + 1 for word in words[:5])
    level = {(n, numbers[:i] + numbers[i + 1 :]): str(n) for i, n in enumerate(numbers)}
    found = ""
    while level and not found:
        longer: dict[tuple[int, tuple[int, ...]], str] = {}
        for (value, left), form in level.items():
            inner = f"({form})" if re.search(r" [+-] ", form) else form
            for i, n in enumerate(left):
                rest = left[:i] + left[i + 1 :]
                steps = [(value * n, rest, f"{inner} * {n}"), (value + n, rest, f"{form} + {n}")]
                steps += [(value - n, rest, f"{form} - {n}"), (n - value, rest, f"{n} - {inner}")]
                steps += [(value // n, rest, f"{inner} / {n}")] if n and value % n == 0 else []
                steps += [(value + n * m, rest[:j] + rest[j + 1 :], f"{form} + {n} * {m}") for j, m in enumerate(rest)]
                for result, others, expression in steps:
                    longer.setdefault((result, others), expression)
        found = next((form for (value, _), form in longer.items() if value == target), "")
        level = longer
    return found


def evaluate(text: str) -> str:
    """Return the value of the arithmetic expression that a text begins with, or an empty text."""

    def value_of(node: ast.expr) -> float:
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
            return OPERATIONS[type(node.op)](value_of(node.left), value_of(node.right))
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            return node.value
        raise ValueError("not arithmetic")

    expression = re.sub(r"[^\d\s.+*/()-].*", "", text.replace(",", ""), flags=re.DOTALL)
    try:
        return f"{value_of(ast.parse(expression.strip(), mode='eval').body):.10g}"
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        return ""


def select_examples(examples: list[Example], task: Task) -> list[Example]:
    """Show the same short examples for every task."""
    return sorted(examples, key=lambda e: len(e.input))[:SHOTS]


def show_answer(example: Example) -> str:
    """Show an expression that gives the answer, where one is found; else the answer as it is."""
    number = not example.choices and re.fullmatch(r"-?\d{1,9}", example.answer)
    return (find_expression(example.input, int(example.answer)) if number else "") or example.answer


def build_prompt(task: Task, shots: list[Example]) -> list[dict[str, str]]:
    """Lay out instruction, solved examples and input as a chat; what is the same for every task comes first."""
    messages = []
    for shot in shots:
        messages.append({"role": "user", "content": INPUT_PROMPT.format(input=shot.input)})
        messages.append({"role": "assistant", "content": show_answer(shot)})
    messages.append({"role": "user", "content": INPUT_PROMPT.format(input=task.input)})
    plain = task.choices or "json" in f"{task.instruction} {task.input}".lower()
    opening = (INSTRUCTION_PROMPT if plain else PROGRAM_PROMPT).format(instruction=task.instruction).strip()
    messages[0]["content"] = f"{opening}\n\n{messages[0]['content']}".strip()
    return messages


def ask(model: Model, task: Task, prompt: list[dict[str, str]], examples: list[Example]) -> str:
    """Ask once; an equals sign or a new line ends the expression."""
    return model.complete(prompt, max_tokens=ANSWER_TOKENS, stop=["=", "\n"]).text


def parse_answer(text: str, task: Task) -> str:
    """Return the choice that is named, or the value of the expression that the reply begins with; else the reply."""
    named = [choice for choice in task.choices or () if choice.lower() in text.lower()]
    return named[0] if named else ("" if task.choices else evaluate(text)) or text.strip()


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
