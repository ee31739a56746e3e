from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from metaharness.rollout import runtime_digest
from metaharness.rollout.stage import Stage, runtime_tree
from metaharness.source import SourceTree
from tests.rollout.support import harness


def test_a_harness_is_written_once_under_its_digest(tmp_path: Path) -> None:
    tree = harness("return 'x'")
    place = Stage(tmp_path / "stage").harness(tree)
    assert place.name == f"harness-{tree.digest}"
    assert SourceTree.from_directory(place) == tree
    before = (place / "harness.py").stat().st_mtime_ns
    assert Stage(tmp_path / "stage").harness(tree) == place
    assert (place / "harness.py").stat().st_mtime_ns == before
    assert [path.name for path in (tmp_path / "stage").iterdir()] == [place.name]


def test_a_draft_that_was_left_by_a_crash_is_no_harness(tmp_path: Path) -> None:
    tree = harness("return 'x'")
    (tmp_path / f".harness-{tree.digest}.dead").mkdir()
    assert SourceTree.from_directory(Stage(tmp_path).harness(tree)) == tree


def test_everyone_may_read_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        place = Stage(tmp_path / "stage").harness(harness("return 'x'", **{"a/b/c.txt": "x"}))
    finally:
        os.umask(before)
    for path in [place.parent, place, *place.rglob("*")]:
        wanted = 0o755 if path.is_dir() else 0o644
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_many_at_once_write_one(tmp_path: Path) -> None:
    tree = harness("return 'x'", **{f"{n}.txt": "x" for n in range(50)})
    with ThreadPoolExecutor(8) as pool:
        places = list(pool.map(lambda _: Stage(tmp_path).harness(tree), range(8)))
    assert len(set(places)) == 1
    assert SourceTree.from_directory(places[0]) == tree
    assert len(list(tmp_path.iterdir())) == 1


def test_a_stage_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"Not a directory|File exists"):
        Stage(tmp_path / "file" / "stage").runtime()


def test_the_runtime_is_alone_and_compiled(tmp_path: Path) -> None:
    place = Stage(tmp_path).runtime()
    assert place.name == f"runtime-{runtime_digest()}"
    assert all(path == "__main__.py" or path.startswith("metaharness/") for path in runtime_tree())
    assert runtime_tree()["metaharness/__init__.py"] == b""
    assert {path.split("/")[1] for path in runtime_tree() if "/" in path} == {"__init__.py", "runtime"}
    assert list(place.rglob("*.pyc"))
    code = "import metaharness.runtime.worker as w; print(w.__cached__)"
    # In its own directory: that of the tests comes first in the search, and has the package whole.
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=place, capture_output=True, text=True)
    assert str(place) in done.stdout
