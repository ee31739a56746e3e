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
from collections.abc import Sequence
from pathlib import Path

from metaharness.job import EngineReport, SandboxExit, SandboxJob
from metaharness.sandboxes.cache import default_cache_dirs, remove_tree
from metaharness.sandboxes.command import check_job
from metaharness.sandboxes.ground import Ground, prepare
from metaharness.sandboxes.labels import end_labelled, is_leftover
from metaharness.sandboxes.launching import Spare, launch
from metaharness.sandboxes.process import PipedProcess
from metaharness.sandboxes.uids import DEFAULT_UIDS


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
                self._ground = await asyncio.to_thread(prepare, self._cache_dirs or default_cache_dirs(), self._uids)
            return self._ground


def _sweep(ground: Ground) -> list[str]:
    removed = [f"process {pid}" for pid in end_labelled(is_leftover)]
    for group in ground.cgroups.leftovers():
        group.remove()
        removed += [f"control group {directory}" for directory in group.directories]
    for copy in ground.copies.iterdir():
        if is_leftover(copy.name):
            remove_tree(copy)
            removed.append(f"directory {copy}")
    return removed
