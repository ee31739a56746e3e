"""Small environments on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from metaharness.protocols import EnvironmentInfo, EnvironmentSession
from metaharness.task import Split, Task

CONFIG = """\
schema_version = 1
name = "colours"
description = "Which colour a thing has."
instruction = "Name the colour."
choices = ["red", "green"]

[scorer]
kind = "exact"
"""

SPLITS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "train": [
        {"id": f"train-{n}", "input": f"thing {n} of the train split", "answer": ("red", "green")[n % 2]}
        for n in range(8)
    ],
    "val": [
        {"id": "val-0", "input": "a ripe tomato", "answer": "red"},
        {"id": "val-1", "input": "a fresh lettuce", "answer": "green"},
    ],
    "test": [
        {"id": "test-0", "input": "a fire engine", "answer": "red"},
        {"id": "test-1", "input": "a spruce in winter", "answer": "green"},
    ],
}


def write_environment(
    directory: Path,
    config: str = CONFIG,
    splits: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    files: Mapping[str, str] | None = None,
) -> Path:
    """Write an environment; `splits` overrides single splits, `files` adds or overrides files as text."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "env.toml").write_text(config)
    for name, lines in {**SPLITS, **(splits or {})}.items():
        (directory / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    for name, text in (files or {}).items():
        (directory / name).write_text(text)
    return directory


def task(answer: str | None = None, *, choices: Sequence[str] | None = None, **fields: Any) -> Task:
    """Return a practice task."""
    return Task(
        **{"id": "t", "environment": "e", "split": Split.TRAIN, "input": "i", **fields},
        answer=answer,
        choices=tuple(choices) if choices is not None else None,
    )


def check_one_line(error: Exception, start: str = "") -> None:
    """Check that a message is one line, and begins as it should."""
    assert len(str(error).splitlines()) == 1
    assert str(error).startswith(start)


class ToyEnvironment:
    """An environment by `module:Class`."""

    info = EnvironmentInfo(name="toy", digest="0" * 64)

    def tasks(self, split: Split) -> Sequence[Task]:
        return [
            Task(id=f"{split.value}-{n}", environment="toy", split=split, input=f"{split.value} {n}", answer=str(n))
            for n in range(10)
        ]

    async def open(self, task: Task) -> EnvironmentSession:
        raise NotImplementedError


class NoEnvironment:
    """Has none of the methods."""


class BrokenEnvironment:
    """Cannot be made."""

    def __init__(self) -> None:
        raise RuntimeError("no luck")
