"""Run benchmarks by name, or all of them."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
from pathlib import Path

NAMES = ("startup", "rollout", "local_model")


def machine() -> dict[str, object]:
    """Return what the figures were measured on."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(memory_bytes / 2**30, 1),
        "cpu": next(
            (
                line.partition(":")[2].strip()
                for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")
            ),
            platform.machine(),
        ),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> int:
    """Run the benchmarks that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("name", nargs="?", choices=NAMES, help="default: all")
    parser.add_argument("--json", action="store_true", help="one JSON object a benchmark and nothing else")
    given = parser.parse_args()
    for name in [given.name] if given.name else NAMES:
        figures = importlib.import_module(f"tests.benchmarks.{name}").run()
        found = {
            "name": name,
            "machine": machine(),
            "command": f"python -m tests.benchmarks {name} --json",
            "figures": figures,
        }
        if given.json:
            print(json.dumps(found))
        else:
            print(name)
            for key, value in figures.items():
                print(f"  {key}: {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
