"""Tasks and splits, on the trusted side."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

FIT_SHARE = 0.5
"""Share of the train split that `learn` receives; the rest is practice."""


class Split(StrEnum):
    """A split of an environment, as its files are named."""

    TRAIN = "train"
    VAL = "val"
    TEST = "test"


class Part(StrEnum):
    """What a task is used for: train is divided into fit and practice, val and test are used whole."""

    FIT = "fit"
    PRACTICE = "practice"
    VAL = "val"
    TEST = "test"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A labelled input, as `learn` receives it."""

    input: str
    answer: str
    instruction: str = ""
    choices: tuple[str, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that goes over the stream."""
        return {
            "instruction": self.instruction,
            "input": self.input,
            "answer": self.answer,
            "choices": list(self.choices) if self.choices is not None else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task with its label; never leaves the host whole.

    Attributes:
        id: Unique within its environment.
        environment: Name of the environment.
        split: Split that it belongs to.
        input: Text to work on.
        answer: Label that the scorer compares with; None where a verifier decides.
        instruction: What is to be done.
        choices: Declared answers, if any.
        metadata: Free-form, for people and reports; no harness sees it.
    """

    id: str
    environment: str
    split: Split
    input: str
    answer: str | None = None
    instruction: str = ""
    choices: tuple[str, ...] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 (hex, 64 characters) of what the task asks and how it is judged; the id does not count."""
        body = [self.environment, self.instruction, self.input, self.answer, self.choices]
        return hashlib.sha256(json.dumps(body, ensure_ascii=False, sort_keys=True).encode()).hexdigest()

    def example(self) -> Example:
        """Return the task as a labelled example.

        Raises:
            ValueError: The task has no label.
        """
        if self.answer is None:
            raise ValueError(f"task {self.id!r} has no label")
        return Example(input=self.input, answer=self.answer, instruction=self.instruction, choices=self.choices)

    def public(self, opaque_id: str, deadline: float | None) -> dict[str, Any]:
        """Return what a harness may see, as the JSON object that goes over the stream."""
        return {
            "id": opaque_id,
            "instruction": self.instruction,
            "input": self.input,
            "choices": list(self.choices) if self.choices is not None else None,
            "deadline": deadline,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSet:
    """The labelled examples that `learn` receives, and their digest."""

    examples: tuple[Example, ...]
    digest: str


def train_part(digest: str, fit_share: float = FIT_SHARE) -> Part:
    """Return the part of a train task: fit or practice, by hash, so that it stays when tasks are added.

    Args:
        digest: `Task.digest`.
        fit_share: Share of fit, in [0, 1].
    """
    position = int(hashlib.sha256(f"train-part:{digest}".encode()).hexdigest()[:8], 16) / 0x1_0000_0000
    return Part.FIT if position < fit_share else Part.PRACTICE
