"""What every scorer shares: its options as read from `[scorer]`, checks of labels, and messages."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from pathlib import Path
from typing import ClassVar, Protocol

from pydantic import BaseModel, ConfigDict

from metaharness.environments.text import shorten
from metaharness.score import Score
from metaharness.task import Task

MAX_ANSWER_CHARS = 100_000
"""Longer answers get no reward from the built-in scorers: none of them has a use for one."""


class TaskScorer(Protocol):
    """A scorer as environments use it: `protocols.Scorer`, and what a loader must know."""

    @property
    def blocking(self) -> bool:
        """Whether `score` may take long, and so must run in a thread."""
        ...

    @property
    def needs_label(self) -> bool:
        """Whether every task must have an answer."""
        ...

    @property
    def label_is_answer(self) -> bool:
        """Whether a label, given as the answer, earns the full reward."""
        ...

    @property
    def reads_metadata(self) -> bool:
        """Whether the metadata of a task can change its score."""
        ...

    @property
    def identity(self) -> str:
        """Everything that can change a score, as text; part of the environment's digest."""
        ...

    def label_problem(self, task: Task) -> str | None:
        """Return why this label cannot be scored against, or None."""
        ...

    def score(self, task: Task, answer: str) -> Score:
        """Judge an answer.

        Raises:
            ScoringFailed: The label or the scorer is broken.
        """
        ...


class ScorerOptions(BaseModel):
    """Base of the `[scorer]` tables: a subclass names its options as fields, and builds the scorer.

    Attributes:
        kind: Name of the scorer.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    takes_choices: ClassVar[bool] = True
    """Whether declared choices make sense: a label is then one of them."""

    kind: str

    @abstractmethod
    def build(self, directory: Path) -> TaskScorer:
        """Return the scorer.

        Args:
            directory: The environment's directory.

        Raises:
            EnvironmentFormatError: Something that the options name is absent or broken.
        """


class PlainScorer(ScorerOptions):
    """Base of scorers that are their own options: pure, quick, and in need of a label."""

    revision: ClassVar[int] = 1
    """Raised when the rules change, so that old and new scores are not taken for comparable."""

    blocking: ClassVar[bool] = False
    needs_label: ClassVar[bool] = True
    label_is_answer: ClassVar[bool] = True
    reads_metadata: ClassVar[bool] = False

    @property
    def identity(self) -> str:
        """Kind, revision and options."""
        return f"{self.revision}:{self.model_dump_json()}"

    def build(self, directory: Path) -> TaskScorer:  # noqa: ARG002 - plain scorers read no files
        """Return itself."""
        return self

    def label_problem(self, task: Task) -> str | None:
        """Return why this label cannot be scored against, or None."""
        return None if task.answer and task.answer.strip() else "an empty label would reward an empty answer"

    def score(self, task: Task, answer: str) -> Score:
        """Judge an answer; one that is empty or endless gets nothing."""
        expected = task.answer or ""
        if not answer.strip():
            return Score(reward=0.0, feedback=f"empty answer; expected {shorten(expected)}")
        if len(answer) > MAX_ANSWER_CHARS:
            return Score(reward=0.0, feedback=f"the answer has {len(answer)} characters; at most {MAX_ANSWER_CHARS}")
        return self.judge(task, expected, answer)

    @abstractmethod
    def judge(self, task: Task, expected: str, answer: str) -> Score:
        """Judge an answer that is neither empty nor too long."""


def right_or_wrong(right: bool, task: Task, expected: str, answer: str, *, offered: bool | None = None) -> Score:
    """Return 1 or 0 with feedback that says what was expected and what came.

    Args:
        right: Whether the answer earns the reward.
        task: The task.
        expected: Its label.
        answer: The answer.
        offered: Whether the answer is one of the choices; None where there are none.
    """
    if right:
        return Score(reward=1.0)
    if offered is False and task.choices is not None:
        return Score(
            reward=0.0,
            feedback=f"answer {shorten(answer)} is not one of the {len(task.choices)} choices; "
            f"expected {shorten(expected)}",
        )
    return Score(reward=0.0, feedback=f"expected {shorten(expected)}, got {shorten(answer)}")


async def judge(scorer: TaskScorer, task: Task, answer: str) -> Score:
    """Judge an answer without blocking the event loop.

    Raises:
        ScoringFailed: The scorer broke or left its declared range.
    """
    if scorer.blocking:
        return await asyncio.to_thread(scorer.score, task, answer)
    return scorer.score(task, answer)
