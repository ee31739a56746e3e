"""Paths that the user has no right to: one line, never a traceback."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import require

CAPABILITIES = "-dac_override,-dac_read_search"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "closed/campaign.toml"], "closed/campaign.toml: cannot be read"),
        (["resume", "closed/campaign.toml"], "closed/campaign.toml: cannot be read"),
        (["ls", "--archive", "closed"], "archive closed: not readable"),
        (["ls", "--archive", "closed/archive"], "archive closed/archive: there is none"),
        (["demo", "--archive", "closed"], "archive closed: cannot be made: Permission denied"),
        (["env", "check", "./closed/env"], "closed/env: Permission denied"),
        (["harness", "new", "closed/mine"], "closed/mine: Permission denied"),
    ],
)
def test_a_path_without_the_right_to_it_is_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    plain: list[str] = []
    if os.geteuid() == 0:  # root may enter everything, unless it gives that up
        require(shutil.which("setpriv") is not None, "setpriv (util-linux)")
        plain = ["setpriv", f"--bounding-set={CAPABILITIES}", f"--inh-caps={CAPABILITIES}"]
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0)
    try:
        done = subprocess.run(
            [*plain, sys.executable, "-m", "metaharness", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        closed.chmod(0o700)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
