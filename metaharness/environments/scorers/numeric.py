"""`numeric`: the answer must be a number, near enough to the label."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

from pydantic import Field

from metaharness.environments.scorers.base import PlainScorer
from metaharness.environments.text import parse_number, shorten
from metaharness.score import Score
from metaharness.task import Task


class NumericScorer(PlainScorer):
    """`numeric`: the whole answer is one number (see `text.parse_number`), within a tolerance of the label.

    Attributes:
        tolerance: Largest absolute difference that counts as equal.
        relative_tolerance: Share of the label that is added to it.
    """

    kind: Literal["numeric"] = "numeric"
    tolerance: float = Field(default=0.0, ge=0)
    relative_tolerance: float = Field(default=0.0, ge=0, lt=1)

    def label_problem(self, task: Task) -> str | None:
        """A label must be a number."""
        if parse_number(task.answer or "") is None:
            return f"{shorten(task.answer or '')} is not a number, and the scorer is `numeric`"
        return None

    def judge(self, task: Task, expected: str, answer: str) -> Score:  # noqa: ARG002 - numbers alone decide
        """Compare as exact fractions, so that no rounding decides."""
        gold, given = parse_number(expected), parse_number(answer)
        if given is None or gold is None:
            return Score(
                reward=0.0, feedback=f"answer {shorten(answer)} is not just a number; expected {shorten(expected)}"
            )
        difference = abs(given - gold)
        allowed = Fraction(self.tolerance) + Fraction(self.relative_tolerance) * abs(gold)
        if difference <= allowed:
            return Score(reward=1.0)
        return Score(reward=0.0, feedback=f"expected {shorten(expected)}, got {shorten(answer)}")
