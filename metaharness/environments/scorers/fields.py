"""`json_fields`: the share of fields of a JSON object that are right."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Literal

from pydantic import Field

from metaharness.environments.scorers.base import PlainScorer
from metaharness.environments.text import normalise, parse_number, shorten
from metaharness.errors import ScoringFailed
from metaharness.score import Score
from metaharness.task import Task

_MAX_DEPTH = 20


class JsonFieldsScorer(PlainScorer):
    """`json_fields`: label and answer are JSON objects; the reward is the share of fields with equal values.

    Numbers are compared as numbers (`"12.50"` equals 12.5), texts by their normal form, lists in order; a null field
    equals an absent one; fields that nobody asked for do not count.

    Attributes:
        fields: The fields that count; empty for all of the label's.
    """

    kind: Literal["json_fields"] = "json_fields"
    fields: tuple[str, ...] = Field(default=())

    takes_choices: ClassVar[bool] = False

    def label_problem(self, task: Task) -> str | None:
        """A label must be a JSON object which has the fields."""
        label, problem = _object(task.answer or "")
        if label is None:
            return f"the label is no JSON object ({problem}), and the scorer is `json_fields`"
        absent = [name for name in self.fields if name not in label]
        if absent:
            return f"the label has no field {absent[0]!r}, which the scorer compares"
        if all(label[name] is None for name in self.fields or label):
            return "every field of the label is null or there is none, so `{}` would be rewarded"
        return None

    def judge(self, task: Task, expected: str, answer: str) -> Score:
        """Compare field by field."""
        label, problem = _object(expected)
        if label is None:
            raise ScoringFailed(f"task {task.id!r}: the label is no JSON object: {problem}")
        given, problem = _object(answer)
        if given is None:
            return Score(reward=0.0, feedback=f"expected a JSON object, got {shorten(answer)} ({problem})")
        names = self.fields or tuple(label)
        right = {name: float(_equal(label.get(name), given.get(name))) for name in names}
        wrong = [
            f"{name}: expected {_shown(label.get(name))}, got "
            f"{_shown(given[name]) if name in given else 'no such field'}"
            for name in names
            if not right[name]
        ]
        return Score(reward=sum(right.values()) / len(right), components=right, feedback="; ".join(wrong))


def _object(text: str) -> tuple[dict[str, Any] | None, str]:
    """Return the object, or None and the reason."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        return None, " ".join(str(error).split())[:120]
    if not isinstance(value, dict):
        return None, f"it is a JSON {_TYPES.get(type(value), 'value')}"
    return value, ""


_TYPES: dict[type, str] = {
    list: "array",
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
}


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _equal(expected: Any, given: Any, depth: int = 0) -> bool:
    if depth > _MAX_DEPTH or expected is None or given is None:
        return expected is None and given is None
    if isinstance(expected, bool) or isinstance(given, bool):
        return _text(expected) == _text(given)
    if isinstance(expected, list | dict) or isinstance(given, list | dict):
        return _equal_containers(expected, given, depth)
    if isinstance(expected, int | float) or isinstance(given, int | float):
        first, second = parse_number(str(expected)), parse_number(str(given))
        return first is not None and first == second
    return normalise(expected) == normalise(given)


def _equal_containers(expected: Any, given: Any, depth: int) -> bool:
    if isinstance(expected, list) and isinstance(given, list):
        return len(expected) == len(given) and all(
            _equal(a, b, depth + 1) for a, b in zip(expected, given, strict=True)
        )
    if isinstance(expected, dict) and isinstance(given, dict):
        return all(_equal(expected.get(key), given.get(key), depth + 1) for key in expected.keys() | given.keys())
    return False


def _text(value: Any) -> str:
    return normalise(value) if isinstance(value, str) else json.dumps(value)


def _shown(value: Any) -> str:
    return shorten(json.dumps(value, ensure_ascii=False))
