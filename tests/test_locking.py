"""Locks between processes, and which file systems are refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from metaharness.errors import ArchiveError, UserError
from metaharness.locking import FileLock, file_system_type, refuse_network_file_system

HOLD = """
import sys
from pathlib import Path
from metaharness.locking import FileLock
lock = FileLock.acquire(Path(sys.argv[1]), what="campaign 'x'")
print("held", flush=True)
sys.stdin.read()
"""

TABLE = r"""22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:40 / /mnt rw - tmpfs tmpfs rw
31 30 0:41 / /mnt/nas rw,relatime - nfs4 server:/export rw
32 30 0:42 / /mnt/with\040space rw - fuse.sshfs me@host: rw
33 31 0:43 / /mnt/nas/local rw - xfs /dev/vdb rw
34 22 0:44 / /twice rw - cifs //server/share rw
35 22 0:45 / /twice rw - btrfs /dev/vdc rw
garbage
"""


def test_a_second_process_is_told_who_holds_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=-1, stdout=-1, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ArchiveError, match=rf"campaign 'x' is in use by process {holder.pid}: ") as caught:
            FileLock.acquire(path, what="campaign 'x'")
        assert isinstance(caught.value, UserError)
        assert "\n" not in str(caught.value)
        holder.send_signal(signal.SIGKILL)
    FileLock.acquire(path, what="campaign 'x'").release()


def test_waiting_ends_when_the_holder_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=-1, stdout=-1, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        holder.stdout.readline()
        holder.stdin.close()
        with FileLock.acquire(path, what="archive", wait_s=30):
            assert path.read_text() == f"{os.getpid()}\n"


def test_the_same_process_cannot_take_it_twice(tmp_path: Path) -> None:
    with FileLock.acquire(tmp_path / "lock", what="x") as lock:
        with pytest.raises(ArchiveError, match=f"process {os.getpid()}"):
            FileLock.acquire(tmp_path / "lock", what="x")
        lock.release()
        lock.release()
        FileLock.acquire(tmp_path / "lock", what="x").release()


def test_a_lock_is_not_taken_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArchiveError, match="cannot be written"):
        FileLock.acquire(tmp_path / "lock", what="x")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/home/me", "ext4"),
        ("/mnt/other", "tmpfs"),
        ("/mnt/nas/runs", "nfs4"),
        ("/mnt/nas-not", "tmpfs"),
        ("/mnt/nas/local/x", "xfs"),
        ("/mnt/with space/x", "fuse.sshfs"),
        ("/twice/x", "btrfs"),
    ],
)
def test_the_innermost_mount_decides(tmp_path: Path, path: str, name: str) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)
    assert file_system_type(Path(path), table) == name


def test_network_file_systems_are_refused(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)
    with pytest.raises(ArchiveError, match=r"/mnt/nas/x: lies on a network file system \(nfs4\)"):
        refuse_network_file_system(Path("/mnt/nas/x"), table)
    refuse_network_file_system(Path("/home/me"), table)
    refuse_network_file_system(tmp_path)


def test_without_a_mount_table_nothing_is_guessed(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="mount /proc"):
        file_system_type(tmp_path, tmp_path / "absent")
