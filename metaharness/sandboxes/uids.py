"""A user of its own for every sandbox, when the host process is root.

Files, signals, process counts and kernel quotas go by user: two sandboxes with the same one could disturb each other,
and one that runs as root would be root for every file it can see. The range is used by no distribution, by no service
manager and by no container runtime. A lease is a lock on a file, so that it ends with its holder, however that ends.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from metaharness.errors import SandboxUnavailable

DEFAULT_UIDS = range(61000, 61184)


@dataclass(slots=True, kw_only=True)
class UidLease:
    """A user id (and equal group id) that nobody else uses until `release`."""

    uid: int
    lock: int

    def release(self) -> None:
        """Give it back; no process of it may be alive."""
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1


class UidPool:
    """Hands out user ids, machine-wide.

    Args:
        directory: Where the lock files lie; shared by all processes that use the same ids.
        uids: Which ids.
    """

    def __init__(self, directory: Path, uids: Sequence[int] = DEFAULT_UIDS) -> None:
        self._directory = directory
        self._uids = uids
        self._next = os.getpid() % len(uids)  # processes start at different places, so that they rarely collide

    def lease(self) -> UidLease:
        """Return a free user id.

        Raises:
            SandboxUnavailable: All are in use.
        """
        for step in range(len(self._uids)):
            index = (self._next + step) % len(self._uids)
            lock = os.open(self._directory / str(self._uids[index]), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                continue
            self._next = index + 1
            return UidLease(uid=self._uids[index], lock=lock)
        raise SandboxUnavailable(f"all {len(self._uids)} user ids for sandboxes are in use")


def why_no_own_uid(uids: Sequence[int] = DEFAULT_UIDS) -> str:
    """Return why sandboxes cannot have a user of their own, or an empty string when they can."""
    if os.geteuid() != 0:
        return f"runs as your own user ({os.geteuid()}), because only root can give it another"
    for kind in ("uid_map", "gid_map"):
        ranges = [list(map(int, line.split())) for line in Path(f"/proc/self/{kind}").read_text().splitlines()]
        if not any(first <= uids[0] and uids[-1] < first + length for first, _, length in ranges):
            return f"runs as this container's root, because {uids[0]} to {uids[-1]} do not exist in it ({kind})"
    return ""
