"""The steps of a launch, and the spare that makes the next one quick.

Moving a process into a control group costs some ten milliseconds when none was moved lately (the kernel waits for all
processors), about as much as starting Python; becoming another user and starting bwrap costs some more. So while a
sandbox runs, the next one is started as far as it can be without knowing its job: its user, its group, and a bwrap in
it that waits for its options. It is as fresh as any other: no process and no file of an earlier sandbox is in it. It is
given up when the next job has other limits or another command, when nobody wants it for a while, and with the event
loop.
"""

from __future__ import annotations

import asyncio
import logging

from metaharness.errors import SandboxUnavailable
from metaharness.job import SandboxJob
from metaharness.sandboxes.cage import Cage
from metaharness.sandboxes.command import inner_command
from metaharness.sandboxes.ground import Ground
from metaharness.sandboxes.process import PipedProcess, in_thread
from metaharness.sandboxes.watchdog import watch_memory

_SETUP_TIMEOUT_S = 30.0
_SPARE_TIMEOUT_S = 20.0
_logger = logging.getLogger("metaharness.sandboxes")


class Spare:
    """At most one sandbox that is started but has no job yet.

    Args:
        ground: Of the engine.
    """

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._ready: Cage | None = None
        self._taken: Cage | None = None
        self._keeper: asyncio.Task[None] | None = None

    def refill(self, job: SandboxJob) -> None:
        """Start one for another job like this one, unless one is there or under way."""
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.get_running_loop().create_task(self._keep(_cage_for(self._ground, job)))

    def take(self, job: SandboxJob) -> Cage | None:
        """Return the spare if it fits the job; else it is given up, and the next one will fit a job like this."""
        cage, self._ready = self._ready, None
        if cage is None or cage.child is None or self._keeper is None:
            return None
        if (cage.limits, cage.inner) == (job.limits, tuple(inner_command(job, self._ground.layout))):
            self._taken = cage if cage.child.poll() is None else None
        self._keeper.cancel()
        return self._taken if self._taken is cage else None

    async def give_up(self) -> None:
        """End it, if there is one."""
        self._ready = None
        if self._keeper is not None and not self._keeper.done():
            self._keeper.cancel()
            await asyncio.wait([self._keeper])

    async def _keep(self, cage: Cage) -> None:
        try:
            cage.acquire()
            cage.spawn()
            await in_thread(self._ground.threads, cage.enclose_child)
            self._ready = cage
            await asyncio.sleep(_SPARE_TIMEOUT_S)
        except (SandboxUnavailable, OSError) as error:
            # Nothing is lost: the next launch begins at the beginning, and fails loudly if it is still so.
            _logger.debug("no spare sandbox: %s", error)
        finally:
            if self._taken is not cage:
                self._ready = None
                cage.abandon()
            self._taken = None


async def launch(ground: Ground, job: SandboxJob, spare: Spare) -> PipedProcess:
    """Start a sandbox.

    Raises:
        SandboxUnavailable: It could not be started; nothing of it is left.
    """
    ready = spare.take(job)
    cage = ready or _cage_for(ground, job)
    try:
        if ready is None:
            cage.acquire()
        sources = await in_thread(ground.threads, lambda: cage.share_mounts(job)) if job.mounts else []
        if ready is None:
            cage.spawn()
        cage.send_options(job, sources)
        assert cage.child is not None
        process = PipedProcess(cage.child, cage, job.limits, ground.threads)
    except OSError as error:
        cage.abandon()
        raise SandboxUnavailable(f"a sandbox could not be started: {error}") from error
    except BaseException:
        cage.abandon()
        raise
    _logger.debug("sandbox %s: %s", cage.label, dict(job.labels))
    try:
        async with asyncio.timeout(_SETUP_TIMEOUT_S):
            await _set_up(cage, job, enclosed=ready is not None)
            await process.write(b"\n")  # what its init process waits for: now the program starts
    except TimeoutError as error:
        await process.kill()
        raise SandboxUnavailable(f"bubblewrap did not set up a sandbox within {_SETUP_TIMEOUT_S:.0f} s") from error
    except (ProcessLookupError, ConnectionError) as error:
        await process.wait()  # it has ended by itself: this raises with what bwrap said
        raise SandboxUnavailable("a sandbox ended before it was set up") from error
    except OSError as error:
        await process.kill()
        raise SandboxUnavailable(f"a sandbox could not be set up: {error}") from error
    except BaseException:
        await process.kill()
        raise
    group = cage.group if cage.group is not None and "memory" in cage.group.paths else None
    limit_bytes = job.limits.memory_mb << 20
    process.watch(lambda: watch_memory(cage.init_pid, limit_bytes, group, lambda: process.end("memory")))
    spare.refill(job)
    return process


async def _set_up(cage: Cage, job: SandboxJob, *, enclosed: bool) -> None:
    """Bring the sandbox to where its program can start, within all its limits.

    Raises:
        ProcessLookupError: It has ended.
    """
    if not enclosed:
        # Its init process may be made before this move has ended, and is then moved by itself below; but it is the
        # first move that costs time, which passes while bwrap is busy.
        await in_thread(cage.ground.threads, cage.enclose_child)
    await cage.find_init()
    cage.hold_init()
    if not enclosed:
        await in_thread(cage.ground.threads, cage.enclose_init)
    await cage.open_writable(job)


def _cage_for(ground: Ground, job: SandboxJob) -> Cage:
    return Cage(ground, job.limits, tuple(inner_command(job, ground.layout)))
