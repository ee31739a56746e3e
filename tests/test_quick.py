"""What must stay quick: importing the package, and asking for help. The benchmark `startup` has the figures."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("scipy", "numpy", "libcst", "git", "docker", "anthropic", "openai", "networkx", "typer", "rich", "pydantic")


@pytest.mark.parametrize("module", ["metaharness", "metaharness.runtime", "metaharness.errors"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not [name for name in HEAVY if name in loaded]


def test_help_loads_typer_and_nothing_heavier() -> None:
    code = (
        "import sys\nfrom metaharness.cli import main\nsys.argv = ['metaharness', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\nprint('LOADED', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    loaded = done.rpartition("LOADED")[2].split()
    assert "typer" in loaded
    assert not [name for name in HEAVY if name in loaded and name not in ("typer", "rich")]
