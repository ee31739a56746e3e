"""The demo, shortened: the real local model in real sandboxes, killed once, resumed, inspected, exported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from metaharness.errors import ArchiveError
from metaharness.ledger import Ledger
from metaharness.models.local.fetch import is_present
from tests.support import require

ROOT = Path(__file__).parents[1]
PROGRAM = [sys.executable, "-m", "metaharness"]


def has_runtime() -> bool:
    try:
        version("xllamacpp")
    except PackageNotFoundError:
        return False
    return True


def rollouts(archive: Path) -> int:
    try:
        with Ledger.open(archive / "campaigns" / "demo", read_only=True) as ledger:
            return len(ledger.rollouts())
    except ArchiveError:
        return 0


@pytest.mark.slow
def test_the_demo_killed_resumed_inspected_and_exported(tmp_path: Path) -> None:
    require(has_runtime() and is_present("smollm2-135m"), "the local model (extra `local`)")
    printed = subprocess.run([*PROGRAM, "demo", "--spec-only"], check=True, capture_output=True, text=True).stdout
    short = printed.replace("max_test = 120", "max_test = 48\nmax_val = 60").replace(
        "rollouts = 2400", "rollouts = 420"
    )
    short = short.replace("hours = 0.165", "hours = 1.0").replace(
        'controls = ["bundled", "neighbours"]', 'controls = ["neighbours"]'
    )
    assert short.count("\n") == printed.count("\n") + 1
    (tmp_path / "campaign.toml").write_text(short)
    environment = {**os.environ, "METAHARNESS_ARCHIVE": str(tmp_path / "archive"), "PYTHONPATH": str(ROOT)}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [*PROGRAM, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1500
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    first = subprocess.Popen(
        [*PROGRAM, "run", "campaign.toml"], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 600
    while rollouts(tmp_path / "archive") < 60:
        assert first.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.5)
    first.send_signal(signal.SIGKILL)
    first.wait()
    with Ledger.open(tmp_path / "archive" / "campaigns" / "demo", read_only=True) as ledger:
        before = ledger.rollouts()
    run("resume", "demo")
    with Ledger.open(tmp_path / "archive" / "campaigns" / "demo", read_only=True) as ledger:
        after = ledger.rollouts()
    assert after[: len(before)] == before
    assert len({row.unit for row in after}) == len(after) <= 420

    summary = json.loads(run("best", "demo", "--json"))
    test = summary["test"]
    # 48 test tasks are too few to ask for `better` in every run; the whole demo has 120.
    assert test["verdict"] in ("better", "indecisive")
    assert test["winner"]["mean"] > test["seed"]["mean"]
    assert test["complete"]
    assert test["controls"]["neighbours"]["tokens_per_rollout"] == 0
    winner = f"demo/{test['winner_id']}"
    assert "(winner)" in run("lineage", "demo")
    assert "graft" in run("ls", "demo", "--json")
    assert "hypothesis" in run("show", winner)
    assert run("diff", "demo/c0000", winner)
    run("export", "demo/best", "--as", "directory", "--to", str(tmp_path / "winner"))
    answered = subprocess.run(
        [sys.executable, "-m", "winner", "where is my parcel?"], cwd=tmp_path, env=environment, capture_output=True,
        text=True, check=True,
    ).stdout.strip()  # fmt: skip
    assert answered in {"account", "billing", "cancel", "delivery", "feedback", "refund", "sales", "technical"}
