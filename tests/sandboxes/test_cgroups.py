"""Control groups: what is written where in both versions, and real groups where this machine has them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from metaharness.errors import SandboxUnavailable
from metaharness.job import Limits
from metaharness.sandboxes.cgroups import CONTROLLERS, Cgroup, Cgroups, find_cgroups
from metaharness.sandboxes.labels import Owner
from tests.support import require

LIMITS = Limits(memory_mb=100, cpus=0.5, processes=7)


def settings(group: Cgroup) -> dict[str, str]:
    return {path.name: value for path, value in group.settings(LIMITS)}


def test_version_1_settings(tmp_path: Path) -> None:
    (tmp_path / "memory.memsw.limit_in_bytes").write_text("")
    group = Cgroup(version=1, paths=dict.fromkeys(CONTROLLERS, tmp_path))
    assert settings(group) == {
        "memory.limit_in_bytes": "104857600",
        "memory.memsw.limit_in_bytes": "104857600",
        "pids.max": "9",
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "50000",
    }
    (tmp_path / "memory.memsw.limit_in_bytes").unlink()  # a kernel that does not account swap
    assert "memory.memsw.limit_in_bytes" not in settings(group)


def test_version_2_settings(tmp_path: Path) -> None:
    (tmp_path / "memory.swap.max").write_text("")
    group = Cgroup(version=2, paths=dict.fromkeys(CONTROLLERS, tmp_path))
    assert settings(group) == {
        "memory.max": "104857600",
        "memory.swap.max": "0",
        "pids.max": "9",
        "cpu.max": "50000 100000",
    }


def test_settings_of_absent_controllers_are_left_out(tmp_path: Path) -> None:
    assert settings(Cgroup(version=2, paths={"pids": tmp_path})) == {"pids.max": "9"}


def test_what_version_2_says_is_read(tmp_path: Path) -> None:
    group = Cgroup(version=2, paths={"memory": tmp_path})
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\noom_group_kill 1\n")
    (tmp_path / "memory.peak").write_text(f"{3 << 20}\n")
    assert group.out_of_memory_kills() == 1
    assert group.peak_memory_mb() == 3.0
    (tmp_path / "memory.peak").unlink()  # before Linux 5.19
    assert group.peak_memory_mb() is None


def test_a_group_that_the_kernel_refuses_leaves_nothing(tmp_path: Path) -> None:
    cgroups = Cgroups(version=1, parents={"pids": tmp_path / "absent", "memory": tmp_path / "absent too"})
    with pytest.raises(SandboxUnavailable, match=r"no control group .*absent, .*absent too: No such file"):
        cgroups.create("metaharness-1-2-3-4", LIMITS)


# ------------------------------------------------------------------------------------------------------- real groups


@pytest.fixture
def labels() -> Iterator[str]:
    return Owner.current().labels()


@pytest.fixture
def cgroups(labels: Iterator[str]) -> Cgroups:
    found = find_cgroups(next(labels))
    require({"memory", "pids"} <= set(found.parents), f"control groups that we may make ({dict(found.missing)})")
    return found


def test_a_machine_is_looked_at_and_left_as_it_was(labels: Iterator[str]) -> None:
    label = next(labels)
    found = find_cgroups(label)
    assert set(found.parents) | set(found.missing) == set(CONTROLLERS)
    assert not set(found.parents) & set(found.missing)
    assert bool(found.parents) == (found.version in (1, 2))
    assert not [parent for parent in found.parents.values() if (parent / label).exists()]


def test_a_group_kills_and_goes(cgroups: Cgroups, labels: Iterator[str]) -> None:
    group = cgroups.create(next(labels), LIMITS)
    child = subprocess.Popen(["/bin/sh", "-c", "sleep 60 & sleep 60"])
    try:
        group.add(child.pid)
        for directory in group.directories:
            assert str(child.pid) in (directory / "cgroup.procs").read_text().split()
        assert group.out_of_memory_kills() == 0
        group.kill()
        assert child.wait(10) == -9
    finally:
        child.kill()
        child.wait()
        group.remove()
    assert not any(directory.exists() for directory in group.directories)
    group.remove()  # harmless again


def test_a_group_in_use_is_emptied_to_be_removed(cgroups: Cgroups, labels: Iterator[str]) -> None:
    group = cgroups.create(next(labels), LIMITS)
    child = subprocess.Popen(["/bin/sleep", "60"])
    group.add(child.pid)
    group.remove()
    assert child.wait(10) == -9
    assert not any(directory.exists() for directory in group.directories)


def test_a_dead_process_cannot_be_added(cgroups: Cgroups, labels: Iterator[str]) -> None:
    group = cgroups.create(next(labels), LIMITS)
    try:
        with pytest.raises(ProcessLookupError):
            group.add(2**22 + 1)
    finally:
        group.remove()


def test_the_memory_limit_kills(cgroups: Cgroups, labels: Iterator[str]) -> None:
    group = cgroups.create(next(labels), replace(LIMITS, memory_mb=20))
    hog = "input(); a = bytearray(100 << 20)"
    child = subprocess.Popen([sys.executable, "-c", hog], stdin=subprocess.PIPE)
    try:
        group.add(child.pid)
        child.communicate(b"\n", timeout=60)
        assert child.returncode == -9
        assert group.out_of_memory_kills() >= 1
        peak = group.peak_memory_mb()
        assert peak is None or 15 < peak <= 20
    finally:
        child.kill()
        group.remove()


def test_only_groups_of_dead_owners_are_left_over(cgroups: Cgroups, labels: Iterator[str]) -> None:
    ours = cgroups.create(next(labels), LIMITS)
    dead = replace(Owner.current(), pid=2**22 + 1, start_ticks=1)
    theirs = cgroups.create(next(dead.labels()), LIMITS)
    try:
        names = {directory.name for group in cgroups.leftovers() for directory in group.directories}
        assert theirs.directories[0].name in names
        assert ours.directories[0].name not in names
    finally:
        ours.remove()
        theirs.remove()
