"""Generate the arithmetic word problems of this environment from `templates.toml`.

The same seed gives the same files, byte for byte, on every Python from 3.11 on::

    python envs/word_problems/generate.py            # write train.jsonl, val.jsonl and test.jsonl
    python envs/word_problems/generate.py --check    # exit 1 if a file differs from what would be written
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import random
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SEED = 20260118
CANARY = "metaharness-canary cd866447-a247-42aa-9244-ea6cfaebc6a5"
TASKS_PER_DIFFICULTY = {"train": 60, "val": 30, "test": 60}
DISTRACTOR_SHARE = 0.35
WORD_SHARE = 0.25
LARGEST_ANSWER = 5000
MAX_TRIES = 20_000
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
# fmt: off
NAMES = (
    "Amara", "Bilal", "Chiara", "Dmitri", "Elif", "Farid", "Greta", "Hiro", "Ines",
    "Jonas", "Kofi", "Leila", "Mateo", "Nadia", "Oskar", "Priya", "Quentin", "Rosa",
    "Samir", "Tala", "Umar", "Vera", "Wen", "Ximena", "Yusuf", "Zofia",
)
# fmt: on
_SENTENCE_START = re.compile(r"(?:^|(?<=[.?] ))[a-z]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One situation at one difficulty.

    Attributes:
        index: Position in the file; identifies the template.
        situation: Short name, for metadata.
        expression: Arithmetic over the names of the numbers.
        ranges: Lowest and highest value of each number.
        texts: Wordings, one for each split; `|` stands before the question.
        distractors: Sentences with a number `{x}` that does not matter.
    """

    index: int
    situation: str
    expression: str
    ranges: Mapping[str, tuple[int, int]]
    texts: tuple[str, ...]
    distractors: tuple[str, ...]

    @property
    def difficulty(self) -> int:
        """Number of arithmetic steps, 1 to 4."""
        return sum(isinstance(node, ast.BinOp) for node in ast.walk(ast.parse(self.expression)))


def load_templates(path: Path) -> list[Template]:
    """Read the templates.

    Args:
        path: A TOML file with one `[[template]]` table each.
    """
    entries: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))["template"]
    return [
        Template(
            index=index,
            situation=entry["situation"],
            expression=entry["expression"],
            ranges={name: (low, high) for name, (low, high) in entry["numbers"].items()},
            texts=tuple(entry["texts"]),
            distractors=tuple(entry["distractors"]),
        )
        for index, entry in enumerate(entries)
    ]


def evaluate(node: ast.expr, numbers: Mapping[str, int]) -> int | None:
    """Return the value of an expression, or None if a partial result is not a positive whole number.

    Args:
        node: Parsed arithmetic over names and whole numbers.
        numbers: Value of each name.
    """
    if isinstance(node, ast.Name):
        return numbers[node.id]
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if not isinstance(node, ast.BinOp):
        raise ValueError(f"no arithmetic: {ast.dump(node)}")
    left, right = evaluate(node.left, numbers), evaluate(node.right, numbers)
    if left is None or right is None:
        return None
    match node.op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right if left > right else None
        case ast.Mult():
            return left * right
        case ast.Div():
            return left // right if left % right == 0 else None
        case _:
            raise ValueError(f"no arithmetic: {ast.dump(node)}")


def draw_numbers(template: Template, rng: random.Random, seen: set[tuple[int, ...]]) -> tuple[dict[str, int], int]:
    """Draw numbers that give a whole answer and that this template has not had in any split.

    Args:
        template: Where the ranges and the expression come from.
        rng: Source of randomness.
        seen: Combinations already used, as (template, numbers in rising order); the new one is added.

    Returns:
        The numbers by name, and the answer.

    Raises:
        RuntimeError: The ranges hold too few fitting combinations.
    """
    tree = ast.parse(template.expression, mode="eval").body
    for _ in range(MAX_TRIES):
        numbers = {name: rng.randint(low, high) for name, (low, high) in template.ranges.items()}
        key = (template.index, *sorted(numbers.values()))
        if key in seen or len(set(numbers.values())) < len(numbers):
            continue
        answer = evaluate(tree, numbers)
        # An answer that stands in the text could be found by copying.
        if answer is not None and answer <= LARGEST_ANSWER and answer not in numbers.values():
            seen.add(key)
            return numbers, answer
    raise RuntimeError(f"template {template.index} ({template.situation}): too few fitting combinations of numbers")


def write_out(number: int, rng: random.Random) -> str:
    """Return the number in digits, or sometimes as a word if it is small."""
    return WORDS[number] if number < len(WORDS) and rng.random() < WORD_SHARE else str(number)


def make_task(template: Template, wording: int, rng: random.Random, seen: set[tuple[int, ...]]) -> dict[str, Any]:
    """Return one task without its id.

    Args:
        template: What to fill.
        wording: Which of the template's texts to use.
        rng: Source of randomness.
        seen: Combinations of numbers already used; see `draw_numbers`.
    """
    numbers, answer = draw_numbers(template, rng, seen)
    story, question = (part.strip() for part in template.texts[wording].split("|"))
    has_distractor = rng.random() < DISTRACTOR_SHARE
    extra = 0
    if has_distractor:
        taken = {*numbers.values(), answer}
        extra = rng.choice([value for value in range(2, 60) if value not in taken])
        distractor = rng.choice(template.distractors)
        story = f"{distractor} {story}" if rng.random() < 0.5 else f"{story} {distractor}"
    name, other = rng.sample(NAMES, 2)
    values = {key: write_out(value, rng) for key, value in {**numbers, "x": extra}.items()}
    text = f"{story} {question}".format(name=name, other=other, **values)
    expression = ast.unparse(_Fill(numbers).visit(ast.parse(template.expression, mode="eval")))
    return {
        "input": _SENTENCE_START.sub(lambda match: match[0].upper(), text),
        "answer": str(answer),
        "metadata": {
            "difficulty": template.difficulty,
            "situation": template.situation,
            "expression": expression,
            "distractor": has_distractor,
        },
    }


class _Fill(ast.NodeTransformer):
    """Replaces the names in an expression by their numbers."""

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self._numbers = numbers

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self._numbers[node.id])


def generate(templates: list[Template], seed: int) -> dict[str, str]:
    """Return the text of each split's file.

    Args:
        templates: All templates; each difficulty from 1 to 4 has some.
        seed: Decides everything that is drawn.
    """
    rng = random.Random(seed)
    seen: set[tuple[int, ...]] = set()
    files: dict[str, str] = {}
    for position, (split, per_difficulty) in enumerate(TASKS_PER_DIFFICULTY.items()):
        tasks: list[dict[str, Any]] = []
        for difficulty in (1, 2, 3, 4):
            pool = [template for template in templates if template.difficulty == difficulty]
            rng.shuffle(pool)
            # Every template in turn, so that each split holds as many tasks of one as of another.
            for template in itertools.islice(itertools.cycle(pool), per_difficulty):
                # Each split has its own wordings, so that learning them by heart does not pay; which has which rotates.
                wording = (template.index + position) % len(TASKS_PER_DIFFICULTY)
                tasks.append(make_task(template, wording, rng, seen))
        rng.shuffle(tasks)
        rows = [{"id": f"{split}-{i:04d}", **task} for i, task in enumerate(tasks, 1)]
        if split != "train":
            rows.insert(0, {"canary": CANARY})
        files[f"{split}.jsonl"] = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return files


def main(arguments: list[str]) -> int:
    """Write or check the files beside this one.

    Args:
        arguments: Command line without the program's name.

    Returns:
        The exit code: 0, or 1 if `--check` found a difference.
    """
    parser = argparse.ArgumentParser(description="Generate the word problems, always the same ones.")
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    check: bool = parser.parse_args(arguments).check
    here = Path(__file__).resolve().parent
    wrong = []
    for name, text in generate(load_templates(here / "templates.toml"), SEED).items():
        path, data = here / name, text.encode()
        if not check:
            path.write_bytes(data)
        elif not path.is_file() or path.read_bytes() != data:
            wrong.append(name)
    if wrong:
        print(f"differs from what generate.py makes: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
