"""Run the command line in this process."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from metaharness.cli import main


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


class Cli:
    """Call it with arguments; it returns exit code, output and errors."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Done:
        self._monkeypatch.setattr(sys, "argv", ["metaharness", *map(str, arguments)])
        self._monkeypatch.setenv("COLUMNS", "160")
        self._capsys.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        captured = self._capsys.readouterr()
        return Done(code=int(code) if isinstance(code, int) else 1, out=captured.out, err=captured.err)
