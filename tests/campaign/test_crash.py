"""Kill a campaign anywhere, resume it: nothing that was finished is run again, and the end is the same."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from metaharness import api
from metaharness.errors import ArchiveError
from metaharness.ledger import Ledger
from metaharness.unit import RolloutRecord, RolloutUnit
from tests.campaign.doubles import write_world

ROOT = Path(__file__).parents[2]


def start(*arguments: str, archive: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "metaharness", *arguments, "--archive", str(archive)],
        cwd=ROOT,
        env={**os.environ, "CAMPAIGN_CALLS": str(archive) + ".calls", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def rows(archive: Path) -> dict[RolloutUnit, RolloutRecord]:
    try:
        with Ledger.open(archive / "campaigns" / "climb", read_only=True) as ledger:
            return {row.unit: row for row in ledger.rollouts()}
    except ArchiveError:  # killed before the ledger was there
        return {}


def essence(archive: Path) -> dict[RolloutUnit, tuple[str, float | None]]:
    return {unit: (row.status.value, row.reward) for unit, row in rows(archive).items()}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_sigkill_at_random_times(tmp_path: Path, seed: int) -> None:
    (tmp_path / "unbroken").mkdir()
    unbroken = api.run(write_world(tmp_path / "unbroken", rollouts=150, tasks=24), archive=tmp_path / "a")
    (tmp_path / "broken").mkdir()
    spec = write_world(tmp_path / "broken", rollouts=150, tasks=24)
    archive = tmp_path / "b"
    draw = random.Random(seed)
    kills = 0
    while True:
        known = rows(archive)
        begun = (archive / "campaigns" / "climb" / "spec.toml").is_file()
        process = start(*(("resume", "climb") if begun else ("run", str(spec))), archive=archive)
        try:
            output, _ = process.communicate(timeout=draw.uniform(0.5, 5.0) if kills < 12 else 300)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += 1
            after = rows(archive)
            assert {unit: after[unit] for unit in known} == known, "a finished rollout was lost or run again"
            continue
        assert process.returncode == 0, output
        break
    assert kills >= 3
    assert {unit: rows(archive)[unit] for unit in known} == known
    assert essence(archive) == essence(tmp_path / "a")
    summary = api.resume("climb", archive=archive)
    assert summary["test"]["winner_id"] == unbroken["test"]["winner_id"]
    assert summary["test"]["paired_difference"] == unbroken["test"]["paired_difference"]
    assert summary["spent"]["rollouts"] == unbroken["spent"]["rollouts"] <= 150
    # A reply that was paid for is kept, so a kill can cost one call at most: the one that was under way.
    calls = Path(f"{archive}.calls").read_text().splitlines()
    assert len(calls) <= summary["spent"]["model_calls"] + kills


def test_ctrl_c_once_drains_saves_and_names_resume(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    process = start("run", str(write_world(tmp_path)), archive=archive, CAMPAIGN_PAUSE_S="0.05")
    deadline = time.monotonic() + 60
    while len(rows(archive)) < 5:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert "metaharness resume climb" in output
    assert len(rows(archive)) >= 5


def test_ctrl_c_twice_stops_now_and_nothing_is_lost(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    spec = write_world(tmp_path)
    harness = tmp_path / "seed" / "harness.py"
    slow = "(__import__('time').sleep(25), self.model.complete(task.input, max_tokens=8).text)[1]"
    harness.write_text(harness.read_text().replace("self.model.complete(task.input, max_tokens=8).text", slow))
    process = start("run", str(spec), archive=archive)
    deadline = time.monotonic() + 60
    while not rows(archive):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    known, since = rows(archive), time.monotonic()
    while time.monotonic() - since < 4.0:  # when no row comes for so long, every rollout under way is one that sleeps
        assert time.monotonic() < deadline
        time.sleep(0.1)
        if (now := rows(archive)).keys() != known.keys():
            known, since = now, time.monotonic()
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert "metaharness resume climb" in output
    assert {unit: rows(archive)[unit] for unit in known} == known


def test_two_processes_cannot_run_one_campaign(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    first = start("run", str(write_world(tmp_path)), archive=archive, CAMPAIGN_PAUSE_S="0.05")
    try:
        deadline = time.monotonic() + 60
        while not rows(archive):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        second = start("resume", "climb", archive=archive)
        output, _ = second.communicate(timeout=60)
        assert second.returncode == 2
        assert str(first.pid) in output
    finally:
        first.kill()
        first.communicate()


def test_a_resume_under_a_changed_spec_names_the_field(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    spec = write_world(tmp_path, rollouts=200)
    process = start("run", str(spec), archive=archive)
    deadline = time.monotonic() + 60
    while not rows(archive):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.kill()
    process.communicate()
    spec.write_text(spec.read_text().replace("rollouts = 200", "rollouts = 300"))
    changed = start("resume", str(spec), archive=archive)
    output, _ = changed.communicate(timeout=60)
    assert changed.returncode == 2
    assert "budget.rollouts: 200 became 300" in output
    assert "Traceback" not in output
