"""`SandboxProcess` over the pipes of one child process, whatever contains it."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from metaharness.errors import SandboxUnavailable
from metaharness.job import Limits, SandboxExit
from metaharness.sandboxes.pipes import CappedPipe, InputPipe, OutputPipe

_DRAIN_TIMEOUT_S = 1.0
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What a containment found out at the end.

    Attributes:
        code: Exit code of the program inside, negative for a signal.
        lost: Whether the program never started, or its end is not known.
        memory: Whether its memory limit ended it.
        peak_memory_mb: See `SandboxExit`.
        note: A line for the end of what is reported of standard error, or empty.
    """

    code: int
    lost: bool = False
    memory: bool = False
    peak_memory_mb: float | None = None
    note: str = ""


class Containment(Protocol):
    """What holds the process tree of one sandbox together."""

    def kill(self) -> None:
        """Send the end to the whole tree; must not wait. Harmless when it has ended."""
        ...

    def finish(self, returncode: int, *, killed: bool) -> Ending:
        """Make sure that the tree is gone, and remove what it has on the host; runs in a thread, once, at the end.

        Args:
            returncode: Of the child.
            killed: Whether the engine or the caller ended it.
        """
        ...

    def close(self) -> None:
        """Close descriptors; runs in the event loop's thread as all else that uses them, after `finish`."""
        ...


class PipedProcess:
    """A running sandbox; see `metaharness.protocols.SandboxProcess`.

    What it wrote before its end can be read after `wait` as well.

    Args:
        child: Started with pipes for all three streams.
        containment: Holds it; from here on it is ended and finished by this object alone.
        limits: For wall clock and output.
        threads: Where the containment finishes; the event loop's own by default.
    """

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        containment: Containment,
        limits: Limits,
        threads: Executor | None = None,
    ) -> None:
        self._child = child
        self._containment = containment
        self._threads = threads
        self._output = OutputPipe()
        self._errors = CappedPipe(limits.output_kb * 1024)
        self._input = InputPipe()
        self._attached = asyncio.Event()
        self._reason = ""
        self._over = False
        self._cut_off = False
        self._watchers: list[asyncio.Task[None]] = []
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(limits.timeout_s, self.end, "timeout")
        self._end = loop.create_task(self._supervise())
        self._end.add_done_callback(_retrieve)

    @property
    def ended(self) -> asyncio.Task[SandboxExit]:
        """The task that ends with the sandbox; whoever keeps it keeps the sandbox looked after."""
        return self._end

    @property
    def was_cut_off(self) -> bool:
        """Whether some process of the tree still held a pipe after the end: then it has outlived the sandbox."""
        return self._cut_off

    def watch(self, watcher: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `watcher` until the end, unless that has come already."""
        if not self._over:
            self._watchers.append(asyncio.get_running_loop().create_task(watcher()))

    def end(self, reason: str) -> None:
        """End the tree now for `reason`, unless it is ending already."""
        if not self._reason and not self._over:
            self._reason = reason
            self._containment.kill()

    async def read(self, size: int) -> bytes:
        """See the protocol."""
        return await self._output.read(size)

    async def write(self, data: bytes) -> None:
        """See the protocol."""
        await self._attached.wait()
        await self._input.write(data)

    async def wait(self) -> SandboxExit:
        """See the protocol.

        Raises:
            SandboxUnavailable: The sandbox could not be set up, or was lost.
        """
        return await asyncio.shield(self._end)

    async def kill(self) -> None:
        """See the protocol."""
        self.end("killed")
        await asyncio.wait([self._end])

    async def _supervise(self) -> SandboxExit:
        try:
            await self._attach()
            returncode = await _exit_of(self._child)
            self._over = True  # from here on the containment must not be touched by others
            for watcher in self._watchers:
                watcher.cancel()
            ending = await asyncio.get_running_loop().run_in_executor(
                self._threads, lambda: self._containment.finish(returncode, killed=bool(self._reason))
            )
        except asyncio.CancelledError:
            # The event loop is being closed, and nothing may outlive it. It waits for a thread that is finishing.
            if not self._over:
                self._over = True
                self._containment.kill()
                self._containment.finish(self._child.wait(), killed=True)
            raise
        finally:
            self._timer.cancel()
            self._containment.close()
            await self._detach()
        stderr = self._errors.text()
        if ending.lost:
            said = stderr.strip().splitlines()
            raise SandboxUnavailable(f"a sandbox could not be set up, or was lost: {said[-1] if said else returncode}")
        if ending.memory and self._reason != "timeout":
            self._reason = "memory"
        if ending.note:
            stderr = f"{stderr}{ending.note}" if stderr.endswith("\n") or not stderr else f"{stderr}\n{ending.note}"
        return SandboxExit(
            code=None if self._reason else ending.code,
            reason=self._reason or "exited",
            stderr=stderr,
            peak_memory_mb=ending.peak_memory_mb,
        )

    async def _attach(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: self._output, self._child.stdout)
        await loop.connect_read_pipe(lambda: self._errors, self._child.stderr)
        await loop.connect_write_pipe(lambda: self._input, self._child.stdin)
        self._attached.set()

    async def _detach(self) -> None:
        """Take what is left in the pipes and close them."""
        self._attached.set()
        self._input.abort()
        self._output.take_the_rest()
        try:
            async with asyncio.timeout(_DRAIN_TIMEOUT_S):
                await self._errors.ended.wait()
                await self._output.ended.wait()
        except TimeoutError:
            # A process that left the tree (possible where there is no pid namespace) still holds them open.
            self._cut_off = True
            self._errors.close()
            self._output.close()
        if not self._input.attached:  # cancelled before
            for stream in (self._child.stdin, self._child.stdout, self._child.stderr):
                if stream is not None:
                    stream.close()


async def in_thread(threads: Executor | None, work: Callable[[], _Result]) -> _Result:
    """Run something in a thread to its end: a cancellation is passed on only then."""
    future = asyncio.get_running_loop().run_in_executor(threads, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        raise


async def _exit_of(child: subprocess.Popen[bytes]) -> int:
    """Wait for a child without a thread and without taking part in anyone's SIGCHLD handling."""
    loop = asyncio.get_running_loop()
    try:
        descriptor = os.pidfd_open(child.pid)
    except (AttributeError, OSError):  # not Linux, or older than 5.3
        return await asyncio.to_thread(child.wait)
    try:
        gone = asyncio.Event()
        loop.add_reader(descriptor, gone.set)
        await gone.wait()
        return child.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _retrieve(task: asyncio.Task[SandboxExit]) -> None:
    """Look at the exception, so that asyncio does not complain when nobody waits for a sandbox that was lost."""
    if not task.cancelled():
        task.exception()
