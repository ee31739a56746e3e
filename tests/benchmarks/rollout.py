"""What a rollout costs beside the harness: a trivial harness in a bubblewrap sandbox, a scripted model."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from metaharness import api
from metaharness.ledger import Ledger
from tests.benchmarks.stats import spread
from tests.campaign.doubles import write_world


def run() -> dict[str, float]:
    """Return milliseconds a rollout, whole campaigns with one and with two in parallel."""
    figures: dict[str, float] = {}
    for concurrency in (1, 2):
        with tempfile.TemporaryDirectory() as directory:
            spec = write_world(Path(directory), concurrency=concurrency, rollouts=200)
            before, started = os.times(), time.perf_counter()
            api.run(spec, archive=Path(directory) / "archive")
            wall_s = time.perf_counter() - started
            after = os.times()
            with Ledger.open(Path(directory) / "archive" / "campaigns" / "climb", read_only=True) as ledger:
                rows = ledger.rollouts()
            figures[f"rollouts_per_s_{concurrency}"] = round(len(rows) / wall_s, 1)
            figures[f"host_cpu_ms_per_rollout_{concurrency}"] = round(
                1000 * (after.user + after.system - before.user - before.system) / len(rows), 2
            )
            figures |= spread(f"rollout_ms_{concurrency}", [1000 * row.seconds for row in rows], 1)
    return figures
