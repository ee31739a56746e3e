"""How quick `import metaharness` and `metaharness --help` are."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.benchmarks.stats import spread

RUNS = 9


def run() -> dict[str, float]:
    """Return milliseconds of import time and seconds of CPU for `--help`."""
    imports, helps = [], []
    for _ in range(RUNS):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", "import metaharness"], capture_output=True, text=True, check=True
        )
        line = next(line for line in done.stderr.splitlines() if line.rstrip().endswith("| metaharness"))
        imports.append(int(line.split("|")[1]) / 1000)
        before = os.times()
        subprocess.run([sys.executable, "-m", "metaharness", "--help"], capture_output=True, check=True)
        after = os.times()
        helps.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return {**spread("import_ms", imports), **spread("help_cpu_s", helps, 3)}
