"""Control groups: limits on a whole process tree, in version 1 or 2, where this machine lets us make them.

`find_cgroups` tries for real: it makes a group, sets limits, moves a process into it and removes it again. As root
groups are made at the top of the hierarchy that is visible; as another user in the nearest ancestor that was delegated
to the user (for example below `user@1000.service`).
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from metaharness.errors import SandboxUnavailable
from metaharness.job import Limits
from metaharness.sandboxes.labels import PREFIX, is_leftover

CONTROLLERS = ("memory", "pids", "cpu")
_CPU_PERIOD_US = 100_000
_EXTRA_PROCESSES = 2  # bwrap outside, and the init process inside
_REMOVE_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cgroups:
    """Where groups can be made.

    Attributes:
        version: 1 or 2; 0 where none can be made.
        parents: Controller to directory; in version 2 all have the same one.
        missing: Controller to the reason why it is not there.
    """

    version: int
    parents: Mapping[str, Path]
    missing: Mapping[str, str] = field(default_factory=dict)

    def create(self, label: str, limits: Limits) -> Cgroup:
        """Make a group and set its limits.

        Raises:
            SandboxUnavailable: The kernel refused.
        """
        paths = {controller: parent / label for controller, parent in self.parents.items()}
        group = Cgroup(version=self.version, paths=paths)
        try:
            for path in group.directories:
                path.mkdir()
            for path, value in group.settings(limits):
                path.write_text(value)
        except OSError as error:
            group.remove()
            places = ", ".join(str(parent) for parent in dict.fromkeys(self.parents.values()))
            raise SandboxUnavailable(f"no control group can be made in {places}: {error.strerror}") from error
        return group

    def leftovers(self) -> list[Cgroup]:
        """Return the groups whose owners are dead."""
        names = {
            entry.name
            for parent in set(self.parents.values())
            for entry in parent.glob(f"{PREFIX}*")
            if is_leftover(entry.name)
        }
        return [
            Cgroup(version=self.version, paths={name: parent / label for name, parent in self.parents.items()})
            for label in sorted(names)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cgroup:
    """One group: a directory in each hierarchy."""

    version: int
    paths: Mapping[str, Path]

    @property
    def directories(self) -> Sequence[Path]:
        """Its directories, each once."""
        return tuple(dict.fromkeys(self.paths.values()))

    def settings(self, limits: Limits) -> list[tuple[Path, str]]:
        """Return which file gets which value. Swap has no share of its own: memory and swap together are limited."""
        wanted: list[tuple[str, str, int | str]] = []
        memory = limits.memory_mb << 20
        processes = limits.processes + _EXTRA_PROCESSES
        quota = max(1000, int(limits.cpus * _CPU_PERIOD_US))
        if self.version == 1:
            wanted = [
                ("memory", "memory.limit_in_bytes", memory),
                ("memory", "memory.memsw.limit_in_bytes", memory),
                ("pids", "pids.max", processes),
                ("cpu", "cpu.cfs_period_us", _CPU_PERIOD_US),
                ("cpu", "cpu.cfs_quota_us", quota),
            ]
        else:
            wanted = [
                ("memory", "memory.max", memory),
                ("memory", "memory.swap.max", 0),
                ("pids", "pids.max", processes),
                ("cpu", "cpu.max", f"{quota} {_CPU_PERIOD_US}"),
            ]
        files = [(self.paths[name] / file, str(value)) for name, file, value in wanted if name in self.paths]
        # Kernels without swap accounting lack these two; everything else must be there.
        return [(file, value) for file, value in files if "sw" not in file.name or file.exists()]

    def add(self, pid: int) -> None:
        """Move a process in. It takes milliseconds when no process was moved lately: call it from a thread.

        Raises:
            OSError: The kernel refused, or the process is gone.
        """
        for directory in self.directories:
            (directory / "cgroup.procs").write_text(str(pid))

    def out_of_memory_kills(self) -> int:
        """Return how many of its processes the kernel killed because the group was over its memory limit."""
        if "memory" not in self.paths:
            return 0
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        for line in (self.paths["memory"] / name).read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill":
                return int(value)
        return 0

    def peak_memory_mb(self) -> float | None:
        """Return the most memory used, MiB, or None where the kernel does not keep it."""
        if "memory" not in self.paths:
            return None
        name = "memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"
        try:
            return int((self.paths["memory"] / name).read_text()) / (1 << 20)
        except FileNotFoundError:  # version 2 before Linux 5.19
            return None

    def kill(self) -> None:
        """Send SIGKILL to all that is in it."""
        for directory in self.directories:
            if (directory / "cgroup.kill").exists():
                (directory / "cgroup.kill").write_text("1")
                continue
            for pid in _pids(directory):
                try:
                    os.kill(pid, 9)
                except ProcessLookupError:  # it ended meanwhile
                    continue

    def remove(self) -> None:
        """Kill what is left in it and remove it; blocks until its processes are gone (they are dying already).

        Raises:
            SandboxUnavailable: It is still in use after two seconds.
        """
        give_up = time.monotonic() + _REMOVE_TIMEOUT_S
        for directory in self.directories:
            while True:
                try:
                    directory.rmdir()
                except FileNotFoundError:
                    break
                except OSError as error:
                    if time.monotonic() > give_up:
                        raise SandboxUnavailable(f"{directory} cannot be removed: {error.strerror}") from error
                    self.kill()
                    time.sleep(0.002)
                else:
                    break


def _pids(directory: Path) -> list[int]:
    try:
        return [int(pid) for pid in (directory / "cgroup.procs").read_text().split()]
    except FileNotFoundError:
        return []


def find_cgroups(label: str) -> Cgroups:
    """Return where groups can be made, found by making one named `label`."""
    mounts = _mounts()
    own = _own_groups()
    missing: dict[str, str] = {}
    if not any(controller in mounts for controller in CONTROLLERS) and "" in mounts:
        return _find_v2(mounts[""], own.get("", "/"), label)
    parents: dict[str, Path] = {}
    for controller in CONTROLLERS:
        if controller not in mounts:
            missing[controller] = f"no {controller} controller of control groups is mounted"
            continue
        reason = _try(Cgroups(version=1, parents={controller: mounts[controller]}), label)
        if reason:
            missing[controller] = reason
        else:
            parents[controller] = mounts[controller]
    return Cgroups(version=1 if parents else 0, parents=parents, missing=missing)


def _find_v2(mount: Path, own: str, label: str) -> Cgroups:
    path = mount / own.lstrip("/")
    ancestors = [parent for parent in path.parents if parent == mount or mount in parent.parents]
    candidates = [mount, *ancestors] if os.geteuid() == 0 else ancestors
    reasons = []
    for parent in candidates:
        if not os.access(parent, os.W_OK) or not os.access(parent / "cgroup.procs", os.W_OK):
            reasons.append(f"{parent} is not writable")
            continue
        enabled = (parent / "cgroup.subtree_control").read_text().split()
        available = (parent / "cgroup.controllers").read_text().split()
        for controller in CONTROLLERS:
            if controller in available and controller not in enabled:
                try:
                    (parent / "cgroup.subtree_control").write_text(f"+{controller}")
                except OSError as error:  # busy: it holds processes itself, which version 2 forbids
                    reasons.append(f"{controller} cannot be enabled in {parent}: {error.strerror}")
        enabled = (parent / "cgroup.subtree_control").read_text().split()
        parents = {controller: parent for controller in CONTROLLERS if controller in enabled}
        if "memory" not in parents:
            continue
        missing = {name: f"the {name} controller is not delegated to {parent}" for name in CONTROLLERS}
        found = Cgroups(version=2, parents=parents, missing={n: r for n, r in missing.items() if n not in parents})
        reason = _try(found, label)
        if not reason:
            return found
        reasons.append(reason)
    why = f"no usable control group ({'; '.join(dict.fromkeys(reasons)) or 'the memory controller is not delegated'})"
    if os.geteuid() != 0:
        why += "; under systemd a user gets one by starting with: systemd-run --user --scope"
    return Cgroups(version=0, parents={}, missing=dict.fromkeys(CONTROLLERS, why))


def _try(cgroups: Cgroups, label: str) -> str:
    """Return why a group cannot be made, limited and entered there, or an empty string."""
    try:
        group = cgroups.create(label, Limits())
    except SandboxUnavailable as error:
        return str(error)
    member = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env={})
    try:
        group.add(member.pid)
    except OSError as error:
        return f"no process can be moved into a control group: {error.strerror}"
    finally:
        member.communicate()
        group.remove()
    return ""


def _mounts() -> dict[str, Path]:
    """Return controller to mount point; the empty name stands for version 2."""
    found: dict[str, Path] = {}
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:  # not Linux
        return found
    for line in lines:
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        mount = Path(left.split(" ")[4])
        if kind == "cgroup2":
            found.setdefault("", mount)
        elif kind == "cgroup":
            for option in options.split(","):
                if option in CONTROLLERS:
                    found.setdefault(option, mount)
    return found


def _own_groups() -> dict[str, str]:
    """Return controller to our own group's path; the empty name stands for version 2."""
    found: dict[str, str] = {}
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return found
    for line in lines:
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            found[name] = path
    return found
