"""The wheel carries the bundled content, and works where there is no checkout."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_environment(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "metaharness/_bundled/seed_harnesses/direct/harness.py" in names
    assert "metaharness/_bundled/envs/support_intents/test.jsonl" in names
    assert "metaharness/_bundled/archive/README.md" in names
    assert "metaharness/py.typed" in names
    assert not [name for name in names if name.startswith("tests/")]
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    subprocess.run([environment / "bin" / "pip", "install", "--quiet", str(wheel)], check=True)
    program = environment / "bin" / "metaharness"
    listed = subprocess.run([program, "env", "ls", "--json"], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert "support_intents" in {row["name"] for row in json.loads(listed.stdout)}
    checked = subprocess.run([program, "harness", "check", "direct"], check=True, capture_output=True, cwd=tmp_path)
    assert b"keeps the contract" in checked.stdout
