"""Every reading of a test split, ever: one JSON line each, only appended to."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from metaharness.errors import ArchiveError

FILE_NAME = "test_reads"
UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingRecord:
    """One reading of a test split: harnesses were run on these tasks.

    Attributes:
        kind: What read it: `campaign`, `eval`, `transfer` or `export`; `unreadable` for a line cut short by a crash:
            something was about to be read then.
        campaign: Campaign of the candidates, or empty.
        candidates: Candidates, or whatever names the harnesses.
        tasks: Digests of the test tasks.
        at: Unix time in seconds.
    """

    kind: str
    campaign: str = ""
    candidates: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    at: float = 0.0

    def touches(self, tasks: Collection[str]) -> bool:
        """Return whether it has read one of these tasks."""
        return not set(self.tasks).isdisjoint(tasks)


def append_reading(path: Path, record: ReadingRecord) -> None:
    """Append a reading; it is durable on return. The caller holds the archive's lock.

    Raises:
        ArchiveError: The file cannot be written.
    """
    line = json.dumps(asdict(record), separators=(",", ":")).encode() + b"\n"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        with os.fdopen(descriptor, "r+b", buffering=0) as handle:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line
            handle.write(line)
            os.fsync(descriptor)
    except OSError as error:
        raise ArchiveError(f"{path}: cannot be written: {error.strerror}") from error


def list_readings(path: Path) -> list[ReadingRecord]:
    """Return all readings in order.

    Raises:
        ArchiveError: The file cannot be read.
    """
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ArchiveError(f"{path}: cannot be read: {error.strerror}") from error
    return [_parse(line) for line in lines if line.strip()]


def _parse(line: bytes) -> ReadingRecord:
    try:
        data: dict[str, Any] = json.loads(line)
        return ReadingRecord(**{**data, "candidates": tuple(data["candidates"]), "tasks": tuple(data["tasks"])})
    except (ValueError, TypeError, KeyError):
        return ReadingRecord(kind=UNREADABLE)
