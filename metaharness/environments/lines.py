"""JSONL task files: one task a line, every error with file, line and field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from metaharness.environments.config import EnvironmentConfig, choices_problem
from metaharness.environments.scorers.base import TaskScorer
from metaharness.environments.text import shorten
from metaharness.errors import EnvironmentFormatError, unknown_name
from metaharness.task import Split, Task
from metaharness.validation import first_error

MAX_LINE_BYTES = 4 * 1024 * 1024
"""A task must fit into one frame of the stream, with room to spare."""

_BOM = b"\xef\xbb\xbf"


class TaskLine(BaseModel):
    """One line of a task file.

    Attributes:
        id: Unique within the environment.
        input: Text to work on.
        answer: Label. A number, object or array stands for its JSON text.
        instruction: Overrides env.toml's.
        choices: Overrides env.toml's.
        metadata: Free-form, for people and custom scorers.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")
    input: str
    answer: JsonValue = None
    instruction: str | None = None
    choices: tuple[str, ...] | None = Field(default=None, min_length=1)
    metadata: dict[str, JsonValue] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFile:
    """What a task file holds.

    Attributes:
        tasks: In file order.
        lines: Line number (from 1) of each task.
        canaries: Canaries on lines of their own.
    """

    tasks: tuple[Task, ...]
    lines: tuple[int, ...]
    canaries: tuple[str, ...]


def read_tasks(path: Path, split: Split, config: EnvironmentConfig, scorer: TaskScorer) -> TaskFile:
    """Read a task file.

    Args:
        path: The file.
        split: Split of its tasks.
        config: env.toml.
        scorer: Judges whether labels can be scored against.

    Raises:
        EnvironmentFormatError: One line that names file, line and field.
    """
    tasks: list[Task] = []
    lines: list[int] = []
    canaries: list[str] = []
    name = str(path)
    for number, raw in _lines(path):
        where = f"{name}:{number}"
        canary = _canary(raw, where)
        if canary is not None:
            canaries.append(canary)
            continue
        task = _task(raw, where, split, config)
        _check_label(task, where, scorer)
        tasks.append(task)
        lines.append(number)
    if not tasks:
        raise EnvironmentFormatError(f"{path}: no tasks; the {split.value} split must have at least one")
    return TaskFile(tasks=tuple(tasks), lines=tuple(lines), canaries=tuple(canaries))


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers from 1."""
    try:
        if path.exists() and not path.is_file():
            raise EnvironmentFormatError(f"{path}: not a file")
        with path.open("rb") as handle:
            number = 0
            while raw := handle.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(raw) > MAX_LINE_BYTES:
                    raise EnvironmentFormatError(f"{path}:{number}: a line of over {MAX_LINE_BYTES} bytes")
                raw = raw.removeprefix(_BOM).strip() if number == 1 else raw.strip()
                if raw:
                    yield number, raw
    except FileNotFoundError as error:
        raise EnvironmentFormatError(f"{path}: no such file, and env.toml names it") from error
    except OSError as error:
        raise EnvironmentFormatError(f"{path}: cannot be read: {error.strerror}") from error


def _canary(raw: bytes, where: str) -> str | None:
    """Return the canary of a line that holds nothing else, or None."""
    if b'"canary"' not in raw:
        return None
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        return None  # the task parser says what is wrong with it
    if not isinstance(data, dict) or data.keys() != {"canary"}:
        return None
    if not isinstance(data["canary"], str):
        raise EnvironmentFormatError(f"{where}: canary: must be a text")
    return data["canary"]


def _task(raw: bytes, where: str, split: Split, config: EnvironmentConfig) -> Task:
    try:
        line = TaskLine.model_validate_json(raw)
    except ValidationError as error:
        raise EnvironmentFormatError(f"{where}: {_line_error(error, raw)}") from error
    if problem := choices_problem(line.choices):
        raise EnvironmentFormatError(f"{where}: choices: {problem}")
    if line.choices is not None and not config.scorer.takes_choices:
        raise EnvironmentFormatError(
            f"{where}: choices: the scorer {config.scorer.kind} compares with no fixed choices"
        )
    return Task(
        id=line.id,
        environment=config.name,
        split=split,
        input=line.input,
        answer=_answer(line.answer, where),
        instruction=config.instruction if line.instruction is None else line.instruction,
        choices=config.choices if line.choices is None else line.choices,
        metadata=_finite(line.metadata, where) if line.metadata else {},
    )


def _line_error(error: ValidationError, raw: bytes) -> str:
    detail = error.errors(include_url=False)[0]
    if detail["type"] != "json_invalid":
        return first_error(error, TaskLine)[:400]
    try:
        raw.decode()
    except UnicodeDecodeError as problem:
        return f"not UTF-8 (byte {problem.start} of the line)"
    return f"not valid JSON: {detail['ctx']['error']}".replace(" at line 1 column", ", column")


def _answer(value: JsonValue, where: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise EnvironmentFormatError(f"{where}: answer: NaN and infinity are not JSON") from error


def _finite(metadata: dict[str, Any], where: str) -> dict[str, Any]:
    try:
        json.dumps(metadata, allow_nan=False)
    except ValueError as error:
        raise EnvironmentFormatError(f"{where}: metadata: NaN and infinity are not JSON") from error
    return metadata


def _check_label(task: Task, where: str, scorer: TaskScorer) -> None:
    if task.answer is None:
        if scorer.needs_label:
            raise EnvironmentFormatError(f"{where}: answer: missing, and the scorer compares with it")
        return
    if task.choices is not None and task.answer not in task.choices:
        raise EnvironmentFormatError(
            f"{where}: answer: label {shorten(task.answer)} outside its choices: "
            + unknown_name("choice", task.answer[:80], task.choices)[:400]
        )
    if problem := scorer.label_problem(task):
        raise EnvironmentFormatError(f"{where}: answer: {problem}")
