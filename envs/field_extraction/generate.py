"""Generate the documents and questions of this environment from `templates.toml`.

The same seed gives the same files, byte for byte, on every Python from 3.11 on::

    python envs/field_extraction/generate.py            # write train.jsonl, val.jsonl and test.jsonl
    python envs/field_extraction/generate.py --check    # exit 1 if a file differs from what would be written
"""

from __future__ import annotations

import argparse
import json
import random
import re
import string
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

SEED = 20260119
CANARY = "metaharness-canary 1b00434b-59d6-40d5-a0fb-26a5a4cea289"
TASKS_PER_KIND = {"train": (8, 8, 4), "val": (4, 4, 2), "test": (8, 8, 4)}
"""Tasks of difficulty 1, 2 and 3 for each kind of document."""
FIELDS_ASKED = 3
ISO_SUFFIX = "_iso"
"""Ends the name of a date field that is asked as YYYY-MM-DD."""
MAX_TRIES = 200
FIRST_DAY = date(2026, 1, 1)
LATEST_FIRST_DATE_DAYS = 600
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
QUESTIONS = (
    "Give {0}, {1} and {2} as JSON.",
    "Extract as JSON: {0}, {1}, {2}.",
    "As a JSON object: {0}, {1}, {2}.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of document.

    Attributes:
        name: Short name, for metadata.
        ask: Fields that a task may ask for.
        dates: Date fields, in rising order of their values.
        values: How each other value is drawn.
        forms: Layouts with labels, one for each split.
        prose: Layouts in sentences, one for each split.
    """

    name: str
    ask: tuple[str, ...]
    dates: tuple[str, ...]
    values: Mapping[str, str]
    forms: tuple[str, ...]
    prose: tuple[str, ...]


def load_templates(path: Path) -> tuple[list[Kind], dict[str, list[str]]]:
    """Read the kinds of documents and the pools of values.

    Args:
        path: A TOML file with `[pools]` and one `[[kind]]` table each.
    """
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    kinds = [
        Kind(
            name=entry["name"],
            ask=tuple(entry["ask"]),
            dates=tuple(entry["dates"]),
            values=entry["values"],
            forms=tuple(entry["forms"]),
            prose=tuple(entry["prose"]),
        )
        for entry in data["kind"]
    ]
    return kinds, data["pools"]


def draw_value(how: str, pools: Mapping[str, Sequence[str]], rng: random.Random) -> str:
    """Draw one value.

    Args:
        how: As described at the top of `templates.toml`.
        pools: Lists to pick from.
        rng: Source of randomness.

    Raises:
        ValueError: `how` is none of the known ways.
    """
    way, _, detail = how.partition(" ")
    if way == "pick":
        return rng.choice(pools[detail])
    if way == "code":
        fill = {"#": string.digits[1:], "?": string.ascii_uppercase}
        return "".join(rng.choice(fill[mark]) if mark in fill else mark for mark in detail)
    low, high = (int(bound) for bound in detail.split())
    if way == "int":
        return str(rng.randint(low, high))
    if way == "money":
        return f"{rng.randint(low, high)}.{rng.choice(('00', '20', '45', '50', '75', '90'))}"
    if way == "time":
        return f"{rng.randint(low, high):02d}:{rng.choice(('00', '10', '15', '30', '45'))}"
    raise ValueError(f"unknown way to draw a value: {how!r}")


def write_date(day: date, difficulty: int, rng: random.Random) -> str:
    """Return a date as a document writes it; at difficulty 3 in more ways, as it is not to be copied there."""
    month = MONTHS[day.month - 1]
    plain = (f"{day.day} {month} {day.year}", f"{month} {day.day}, {day.year}")
    if difficulty < 3:
        return rng.choice(plain)
    ending = {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th") if day.day not in (11, 12, 13) else "th"
    return rng.choice(
        (
            *plain,
            f"{WEEKDAYS[day.weekday()]}, {day.day} {month} {day.year}",
            f"{month} {day.day}{ending}, {day.year}",
            f"{day.day} {month[:3]} {day.year}",
        )
    )


def occurrences(value: str, document: str) -> int:
    """Count where a value stands by itself, not inside a longer number, code or word."""
    return len(re.findall(rf"(?<![\w.:-]){re.escape(value)}(?![\w-]|[.,:]\d)", document))


def make_task(
    kind: Kind, layout: int, difficulty: int, pools: Mapping[str, Sequence[str]], rng: random.Random
) -> dict[str, Any]:
    """Return one task without its id.

    Args:
        kind: Kind of the document.
        layout: Which of the kind's forms or texts in sentences to fill.
        difficulty: 1: labels; 2: sentences; 3: sentences, and dates are asked as YYYY-MM-DD.
        pools: Lists to pick from.
        rng: Source of randomness.

    Raises:
        RuntimeError: No document was found in which each value stands exactly once.
    """
    for _ in range(MAX_TRIES):
        values = {field: draw_value(how, pools, rng) for field, how in kind.values.items()}
        day = FIRST_DAY + timedelta(days=rng.randrange(LATEST_FIRST_DATE_DAYS))
        days: dict[str, date] = {}
        for field in kind.dates:
            days[field] = day
            values[field] = write_date(day, difficulty, rng)
            day += timedelta(days=rng.randint(3, 40))
        document = (kind.forms if difficulty == 1 else kind.prose)[layout].strip().format(**values)
        if any(occurrences(value, document) != 1 for value in values.values()):
            continue
        asked = rng.sample(kind.ask, FIELDS_ASKED)
        if difficulty == 3 and not set(asked) & set(days):
            asked[rng.randrange(FIELDS_ASKED)] = rng.choice([field for field in kind.ask if field in days])
        answer: dict[str, str] = {}
        for field in asked:
            if difficulty == 3 and field in days:
                answer[f"{field}{ISO_SUFFIX}"] = days[field].isoformat()
            else:
                answer[field] = values[field]
        return {
            "input": f"{document}\n\n{rng.choice(QUESTIONS).format(*answer)}",
            "answer": json.dumps(answer, ensure_ascii=False),
            "metadata": {"kind": kind.name, "difficulty": difficulty},
        }
    raise RuntimeError(f"{kind.name}: the values of a document cannot be told apart")


def generate(kinds: Sequence[Kind], pools: Mapping[str, Sequence[str]], seed: int) -> dict[str, str]:
    """Return the text of each split's file.

    Args:
        kinds: All kinds of documents.
        pools: Lists to pick from.
        seed: Decides everything that is drawn.
    """
    rng = random.Random(seed)
    seen: set[str] = set()
    files: dict[str, str] = {}
    for position, (split, counts) in enumerate(TASKS_PER_KIND.items()):
        tasks: list[dict[str, Any]] = []
        for index, kind in enumerate(kinds):
            # Each split has its own layouts, so that learning layouts by heart does not pay; which has which rotates.
            layout = (index + position) % len(TASKS_PER_KIND)
            for difficulty, count in enumerate(counts, 1):
                wanted = len(tasks) + count
                while len(tasks) < wanted:
                    task = make_task(kind, layout, difficulty, pools, rng)
                    if task["input"] not in seen:
                        seen.add(task["input"])
                        tasks.append(task)
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
    parser = argparse.ArgumentParser(description="Generate the documents and questions, always the same ones.")
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    check: bool = parser.parse_args(arguments).check
    here = Path(__file__).resolve().parent
    wrong = []
    for name, text in generate(*load_templates(here / "templates.toml"), SEED).items():
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
