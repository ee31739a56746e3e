from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from metaharness.models.local.locks import Lock, is_held


def test_a_lock_has_one_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with Lock.waiting(path, wait_s=0):
        assert is_held(path)
        assert Lock.trying(path) is None
        with pytest.raises(TimeoutError, match="lock"):
            Lock.waiting(path, wait_s=0.05)
    assert not is_held(path)


def test_release_is_harmless_twice(tmp_path: Path) -> None:
    lock = Lock.waiting(tmp_path / "lock", wait_s=0)
    lock.release()
    other = Lock.waiting(tmp_path / "lock", wait_s=0)
    lock.release()
    assert is_held(tmp_path / "lock")
    other.release()


def test_a_killed_holder_gives_its_lock_back(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = (
        "import sys, time; from pathlib import Path; from metaharness.models.local.locks import Lock\n"
        "lock = Lock.waiting(Path(sys.argv[1]), wait_s=0); print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert is_held(path)
        holder.kill()
    assert not is_held(path)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="link"):
        Lock.trying(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()
