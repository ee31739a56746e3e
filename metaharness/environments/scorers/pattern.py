"""`regex`: the label is a pattern which the whole answer must match."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, Literal

from pydantic import ValidationError
from pydantic_core import SchemaError, SchemaValidator, core_schema

from metaharness.environments.scorers.base import PlainScorer
from metaharness.environments.text import shorten
from metaharness.errors import ScoringFailed
from metaharness.score import Score
from metaharness.task import Task


class RegexScorer(PlainScorer):
    """`regex`: the whole answer, white space around it apart, matches the label.

    Patterns have the syntax of Rust's `regex` crate, whose matching time is linear in the answer: an answer cannot
    stall the scorer. Look-around and back references do not exist there, and are refused on loading.

    Attributes:
        ignore_case: Match without case.
    """

    kind: Literal["regex"] = "regex"
    ignore_case: bool = False

    takes_choices: ClassVar[bool] = False
    label_is_answer: ClassVar[bool] = False

    def label_problem(self, task: Task) -> str | None:
        """A label must be a pattern, and not one that an empty answer matches."""
        try:
            matches_empty = _matches(_matcher(task.answer or "", self.ignore_case), "")
        except SchemaError as error:
            return f"pattern {shorten(task.answer or '')} cannot be used: {_reason(error)}"
        if matches_empty:
            return f"pattern {shorten(task.answer or '')} matches an empty answer"
        return None

    def judge(self, task: Task, expected: str, answer: str) -> Score:
        """Match the whole answer."""
        try:
            matcher = _matcher(expected, self.ignore_case)
        except SchemaError as error:
            raise ScoringFailed(f"task {task.id!r}: pattern cannot be used: {_reason(error)}") from error
        if _matches(matcher, answer.strip()):
            return Score(reward=1.0)
        return Score(reward=0.0, feedback=f"answer {shorten(answer)} does not match the pattern {shorten(expected)}")


@lru_cache(maxsize=4096)
def _matcher(pattern: str, ignore_case: bool) -> SchemaValidator:
    # Alone first: `a)|(b` is no pattern, though it becomes one inside a group.
    _compile(pattern)
    return _compile(rf"\A(?{'i' if ignore_case else ''}:{pattern})\z")


def _compile(pattern: str) -> SchemaValidator:
    return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))


def _matches(matcher: SchemaValidator, text: str) -> bool:
    try:
        matcher.validate_python(text)
    except ValidationError:
        return False
    return True


def _reason(error: SchemaError) -> str:
    return " ".join(str(error).split()).rsplit("error: ", 1)[-1]
