"""What every changed harness must satisfy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from metaharness.gate.contract import check_harness
from metaharness.source import SourceTree
from tests.seed_harnesses.double import TASKS, WEIRD, Parrot, load, run


def lint(codes: Mapping[str, str], folder: Path) -> None:
    """Assert that ruff finds no unused or undefined name, no unsorted import and nothing to format.

    Args:
        codes: Code by name.
        folder: Empty directory.
    """
    for name, code in codes.items():
        (folder / f"{name}.py").write_text(code, "utf-8")
    ruff = [sys.executable, "-m", "ruff"]
    for command in (
        [*ruff, "check", "--isolated", "--no-cache", "--select", "F,I,E9", "--output-format", "concise", str(folder)],
        [*ruff, "format", "--isolated", "--no-cache", "--line-length", "120", "--check", str(folder)],
    ):
        found = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert found.returncode == 0, found.stdout[-3000:]


def solves(tree: SourceTree, *, weird: bool = False) -> None:
    """Assert that a harness keeps the contract, and solves a task of each kind with several models."""
    assert check_harness(tree) == []
    module = load(tree.text("harness.py"))
    for kind in TASKS:
        run(module, kind, Parrot(["delivery", "3 * 4", '{"guest": "Bo"}']))
        run(module, kind, Parrot(WEIRD if weird else ["?"], able=False))
