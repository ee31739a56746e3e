"""An archive with a few candidates, and the user's own git to look at it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from metaharness.archive import Archive
from metaharness.candidate import candidate_id
from metaharness.source import SourceTree
from tests.ledger.examples import tree


def git(*arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Run git as a user would, without the configuration of whoever runs the tests."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    clean |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", **(env or {})}
    done = subprocess.run(
        ["git", *map(str, arguments)], cwd=cwd, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def commit(
    archive: Archive,
    number: int,
    *parents: str,
    files: SourceTree | None = None,
    hypothesis: str = "",
    campaign: str = "support",
    created_at: float | None = None,
) -> str:
    return archive.commit_candidate(
        campaign=campaign,
        id=candidate_id(number),
        tree=files or tree(f"x = {number}\n"),
        parents=parents,
        hypothesis=hypothesis or f"Hypothesis {number}.",
        mechanism="graft select from nearest_examples",
        proposer="codemods" if parents else "seed",
        name="few_shot",
        created_at=1_700_000_000.75 + number if created_at is None else created_at,
    )


def state(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Return every file below a directory, with its time of change: to see that nothing was touched."""
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
