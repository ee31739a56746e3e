"""Locks between processes, and the file systems on which they cannot be trusted."""

from __future__ import annotations

import fcntl
import os
import re
import time
from pathlib import Path
from types import TracebackType

from metaharness.errors import ArchiveError

NETWORK_FILE_SYSTEMS = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs",
     "nfs4", "ocfs2", "orangefs", "panfs", "prl_fs", "pvfs2", "smb3", "smbfs", "vboxsf", "vmhgfs",
     "fuse.beegfs", "fuse.ceph", "fuse.ceph-fuse", "fuse.cvmfs2", "fuse.davfs", "fuse.gcsfuse", "fuse.glusterfs",
     "fuse.goofys", "fuse.grpcfuse", "fuse.juicefs", "fuse.mfs", "fuse.moosefs", "fuse.mount-s3", "fuse.rclone",
     "fuse.s3fs", "fuse.seaweedfs", "fuse.sshfs", "fuse.vmhgfs-fuse"}
)  # fmt: skip
"""File systems, as the kernel names them, whose locks or shared memory do not hold between machines."""

MOUNT_TABLE = Path("/proc/self/mountinfo")
POLL_S = 0.01


def file_system_type(path: Path, table: Path = MOUNT_TABLE) -> str:
    """Return the kernel's name of the file system that `path` lies on, for example `ext4` or `fuse.sshfs`.

    Args:
        path: A path; it need not exist yet.
        table: Mount table of the process, see proc(5), `mountinfo`.

    Raises:
        ArchiveError: The table cannot be read.
    """
    target = path.resolve()
    try:
        lines = table.read_text("utf-8", "surrogateescape").splitlines()
    except OSError as error:
        raise ArchiveError(f"{table}: cannot be read ({error.strerror}): mount /proc to use an archive") from error
    best, found = -1, "unknown"
    for line in lines:
        mount, _, source = line.partition(" - ")
        fields = mount.split()
        if len(fields) < 5 or not source:
            continue
        point = Path(_unescape(fields[4]))
        # Of several mounts on one point the last hides the others.
        if target.is_relative_to(point) and len(point.parts) >= best:
            best, found = len(point.parts), source.split()[0]
    return found


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)


def refuse_network_file_system(path: Path, table: Path = MOUNT_TABLE) -> None:
    """Raise ArchiveError when `path` lies on a network file system, where locks and SQLite's shared memory break."""
    name = file_system_type(path, table)
    if name in NETWORK_FILE_SYSTEMS:
        raise ArchiveError(
            f"{path}: lies on a network file system ({name}), where a ledger can be damaged: use a local disk "
            "(--archive or METAHARNESS_ARCHIVE)"
        )


class FileLock:
    """An exclusive flock on a file in which the holder's process id stands. Also a context manager.

    The kernel gives it back when the process ends, however it ends. The file stays.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(cls, path: Path, *, what: str, wait_s: float = 0.0) -> FileLock:
        """Take the lock.

        Args:
            path: Lock file; made if absent.
            what: What it protects, for the message.
            wait_s: Seconds to wait for another holder.

        Raises:
            ArchiveError: Another process holds it (the message says which), or the file cannot be written.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise ArchiveError(f"{path}: cannot be written: {error.strerror}") from error
        give_up = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= give_up:
                    holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
                    os.close(descriptor)
                    who = f"process {holder}" if holder.isdigit() else "another process"
                    raise ArchiveError(f"{what} is in use by {who}: wait for it or stop it (lock {path})") from error
                time.sleep(POLL_S)
            except OSError as error:
                os.close(descriptor)
                raise ArchiveError(f"{path}: cannot be locked: {error.strerror}") from error
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            os.close(descriptor)
            raise ArchiveError(f"{path}: cannot be written: {error.strerror}") from error
        return cls(path, descriptor)

    def release(self) -> None:
        """Give the lock back. Harmless when that was done before."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> FileLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
