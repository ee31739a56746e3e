"""Labels: every process, control group and directory of a sandbox carries its owner's identity in its name.

`metaharness-<pid namespace>-<owner pid>-<owner start time>-<number>`: a leftover can be told from a sandbox in use
without any shared state, also after a SIGKILL of the owner, and never by guess.
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
import select
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

PREFIX = "metaharness-"
_END_TIMEOUT_S = 5.0
_LABELLED_ARGUMENTS = 20  # past the commands that change user and limits, far before the program inside
_LABEL = re.compile(rf"{PREFIX}(\d+)-(\d+)-(\d+)-(\d+)\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The process that started a sandbox.

    Attributes:
        pid_namespace: Inode of its pid namespace; pids of another namespace mean nothing here.
        pid: Its pid.
        start_ticks: When it started, clock ticks since boot: tells it from a later process with the same pid.
    """

    pid_namespace: int
    pid: int
    start_ticks: int

    @classmethod
    def current(cls) -> Owner:
        """Return the identity of this process."""
        pid = os.getpid()
        return cls(pid_namespace=_pid_namespace(), pid=pid, start_ticks=_start_ticks(pid) or 0)

    def labels(self) -> Iterator[str]:
        """Return endless distinct labels; those of two calls differ too, because each begins at a random number."""
        stem = f"{PREFIX}{self.pid_namespace}-{self.pid}-{self.start_ticks}"
        return (f"{stem}-{number}" for number in itertools.count(secrets.randbits(48)))

    def is_dead(self) -> bool:
        """Return whether the owner is certainly gone; False when it belongs to another pid namespace."""
        return self.pid_namespace == _pid_namespace() and _start_ticks(self.pid) != self.start_ticks


def owner_of(name: str) -> Owner | None:
    """Return the owner that a name states, or None when the name is no label of ours."""
    match = _LABEL.match(name)
    if match is None:
        return None
    namespace, pid, start_ticks, _ = map(int, match.groups())
    return Owner(pid_namespace=namespace, pid=pid, start_ticks=start_ticks)


def is_leftover(name: str) -> bool:
    """Return whether a name is a label whose owner is dead."""
    owner = owner_of(name)
    return owner is not None and owner.is_dead()


def labelled_processes() -> Iterator[int]:
    """Yield the pid of every process that was started under a label."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and label_of(int(entry.name)):
            yield int(entry.name)


def end_labelled(wanted: Callable[[str], bool]) -> list[int]:
    """End every process of this user with a label that is `wanted`, and wait for its end; returns which did."""
    return [pid for pid in labelled_processes() if _end(pid, wanted)]


def label_of(pid: int) -> str:
    """Return the label among the first arguments of a process, or an empty string."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes()[:4096].split(b"\0")
    except OSError:  # it ended, or /proc hides other users
        return ""
    for argument in arguments[:_LABELLED_ARGUMENTS]:
        label = argument.decode("ascii", "replace")
        if owner_of(label) is not None:
            return label
    return ""


def _end(pid: int, wanted: Callable[[str], bool]) -> bool:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not wanted(label_of(pid)):  # asked of exactly the process that the descriptor holds
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        select.select([descriptor], [], [], _END_TIMEOUT_S)
    except (ProcessLookupError, PermissionError):  # it ended by itself, or is another user's
        return False
    finally:
        os.close(descriptor)
    return True


def _pid_namespace() -> int:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:  # no /proc: not Linux
        return 0


def _start_ticks(pid: int) -> int | None:
    """Return field 22 of /proc/<pid>/stat, or None when there is no such process; a zombie counts as gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])
