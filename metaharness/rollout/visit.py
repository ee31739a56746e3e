"""One visit of a harness to a sandbox: start, converse, end, and how that went."""

from __future__ import annotations

import asyncio
import re
import secrets
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from metaharness.errors import BudgetExhausted, HarnessError, InfraError, ProtocolError
from metaharness.job import Limits, Mount, SandboxExit, SandboxJob
from metaharness.protocols import SandboxEngine, SandboxProcess
from metaharness.rollout.calls import Calls
from metaharness.rollout.conversation import (
    Conversation,
    HarnessFailed,
    StreamBounds,
    StreamEnded,
    converse,
)
from metaharness.rollout.outcome import one_line
from metaharness.rollout.stage import Stage
from metaharness.source import SourceTree
from metaharness.trajectory import RolloutStatus

T = TypeVar("T")

HARNESS_TARGET = "/harness"
RUNTIME_TARGET = "/runtime"
MAX_TRACEBACK_CHARS = 20_000

ENGINE_GRACE_S = 30.0
EXIT_GRACE_S = 2.0
"""So long a process may take to end after it has closed the stream."""

# -S: nothing of site-packages, whatever interpreter an engine brings; -s: nothing of a user's; -X utf8: one encoding.
ARGV = ("python", "-s", "-S", "-X", "utf8", RUNTIME_TARGET, HARNESS_TARGET)
ENVIRONMENT = {
    "HOME": "/work",
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit(Generic[T]):
    """How a visit went.

    Attributes:
        value: What the script returned; None when it did not come to its end.
        failure: None when it did, else how it failed.
        error: One line for a failure.
        stderr: What was printed, a traceback last.
        waited_s: Seconds in which the host was answering requests.
    """

    value: T | None = None
    failure: RolloutStatus | None = None
    error: str = ""
    stderr: str = ""
    waited_s: float = 0.0


class Visitor:
    """Brings harnesses into sandboxes.

    Args:
        engine: Starts sandboxes.
        limits: Limits of each.
        stage: Where harnesses and the runtime lie for them.
        campaign: Label of each sandbox, for sweeping.
        clock: Unix time in seconds.
        bounds: What a sandbox may send.
        engine_grace_s: An engine that has not ended a sandbox so long after its time limit has lost it.
    """

    def __init__(
        self,
        *,
        engine: SandboxEngine,
        limits: Limits,
        stage: Path,
        campaign: str,
        clock: Callable[[], float] = time.time,
        bounds: StreamBounds | None = None,
        engine_grace_s: float = ENGINE_GRACE_S,
    ) -> None:
        self._engine = engine
        self._limits = limits
        self._stage = Stage(stage)
        self._campaign = campaign
        self._clock = clock
        self._bounds = bounds or StreamBounds()
        self._engine_grace_s = engine_grace_s

    async def visit(
        self, tree: SourceTree, calls: Calls, script: Callable[[Conversation, str, float], Awaitable[T]]
    ) -> Visit[T]:
        """Run `script` with a harness in a fresh sandbox, which is gone on return.

        Args:
            tree: The harness.
            calls: Answers what it asks.
            script: Gets the conversation, the entry point, and the deadline in Unix time.

        Raises:
            UserError: A model call cannot succeed, ever.
        """
        try:
            entry = _entry(tree)
            job = await asyncio.to_thread(self._job, tree)
            deadline = self._clock() + self._limits.timeout_s
            process = await self._engine.launch(job)
        except HarnessError as error:
            return Visit(failure=RolloutStatus.HARNESS_ERROR, error=one_line(str(error)))
        except InfraError as error:
            return Visit(failure=RolloutStatus.INFRA_ERROR, error=one_line(str(error)))

        directory = HARNESS_TARGET

        async def whole(conversation: Conversation) -> T:
            nonlocal directory
            directory = await conversation.ready()
            return await script(conversation, entry, deadline)

        value: T | None = None
        caught: Exception | None = None
        try:
            async with asyncio.timeout(self._limits.timeout_s + self._engine_grace_s) as watch:
                value = await converse(process, calls, self._bounds, whole)
        except (HarnessFailed, ProtocolError, StreamEnded, InfraError, BudgetExhausted) as error:
            caught = error
        except TimeoutError as error:
            if not watch.expired():
                raise
            caught = error
        finally:
            waited_s = calls.waited_s
            if isinstance(caught, StreamEnded):
                await _settle(process)
            end = await _end(process)
        if isinstance(end, InfraError):
            return Visit(failure=RolloutStatus.INFRA_ERROR, error=one_line(str(end)), waited_s=waited_s)
        if caught is None:
            return Visit(value=value, stderr=end.stderr, waited_s=waited_s)
        failure, text = self._verdict(caught, end, directory, waited_s)
        traceback = caught.traceback[-MAX_TRACEBACK_CHARS:] if isinstance(caught, HarnessFailed) else ""
        stderr = f"{end.stderr.rstrip()}\n{traceback}".lstrip() if traceback else end.stderr
        return Visit(failure=failure, error=one_line(text), stderr=stderr, waited_s=waited_s)

    def _verdict(
        self, caught: Exception, end: SandboxExit, directory: str, waited_s: float
    ) -> tuple[RolloutStatus, str]:
        """Return what an exception makes of a visit, and one line about it."""
        if isinstance(caught, StreamEnded):
            return RolloutStatus.HARNESS_ERROR, self._account(end, directory, waited_s)
        if isinstance(caught, HarnessFailed):
            return RolloutStatus.HARNESS_ERROR, str(caught) or "the harness failed and does not say why"
        if isinstance(caught, ProtocolError):
            return RolloutStatus.HARNESS_ERROR, f"the harness broke the rules of the stream: {caught}"
        if isinstance(caught, BudgetExhausted):
            return RolloutStatus.BUDGET_STOPPED, str(caught)
        if isinstance(caught, TimeoutError):
            limit_s = self._limits.timeout_s
            text = f"{self._engine.name}: the sandbox was not ended at its limit of {limit_s:g} s"
            return RolloutStatus.INFRA_ERROR, text
        return RolloutStatus.INFRA_ERROR, str(caught)

    def _job(self, tree: SourceTree) -> SandboxJob:
        return SandboxJob(
            argv=ARGV,
            mounts=(
                Mount(source=self._stage.runtime(), target=RUNTIME_TARGET),
                Mount(source=self._stage.harness(tree), target=HARNESS_TARGET),
            ),
            env=ENVIRONMENT,
            limits=self._limits,
            labels={"campaign": self._campaign, "rollout": secrets.token_hex(8)},
        )

    def _account(self, end: SandboxExit, directory: str, waited_s: float) -> str:
        """Say in one line how a sandbox ended that did not finish."""
        if end.reason == "timeout":
            where = _place(end.stderr, directory)
            waited = f"{waited_s:.1f} s of them waiting for the model"
            return f"timed out after {self._limits.timeout_s:g} s, {waited}{where}"
        if end.reason == "memory":
            return f"ran out of memory (limit {self._limits.memory_mb} MiB)"
        if end.reason == "killed" or end.code is None:
            return "the harness closed its stream to the host and went on"
        lines = [line for line in end.stderr.splitlines() if line.strip()]
        last = f": {lines[-1].strip()}" if lines else ""
        if end.code < 0:
            return (
                f"the process was ended by {_signal_name(-end.code)} before it answered{_place(end.stderr, directory)}"
            )
        return f"the process ended with code {end.code} before it answered{last}"


def _entry(tree: SourceTree) -> str:
    entry = tree.config.entry
    if entry is None:
        raise HarnessError("harness.toml: a harness with a command cannot be run; give an entry point (entry = …)")
    return entry


async def _end(process: SandboxProcess) -> SandboxExit | InfraError:
    """End a sandbox, and return how it ended, or that its engine has lost it."""
    await process.kill()
    try:
        return await process.wait()
    except InfraError as error:
        return error


async def _settle(process: SandboxProcess) -> None:
    """Give a process that has closed its stream a moment to end, so that its end is its own and says why."""
    waiting = asyncio.ensure_future(process.wait())
    await asyncio.wait({waiting}, timeout=EXIT_GRACE_S)
    if waiting.done():
        waiting.exception()  # looked at; whoever waits next meets it
    else:
        waiting.cancel()


def _place(stderr: str, directory: str) -> str:
    """Return the innermost line of the harness in a dump of stacks, or nothing."""
    found = re.search(rf'File "{re.escape(directory)}/(.+)", line (\d+) in (.+)', stderr)
    return f" ({found[1]}, line {found[2]}, in {found[3]})" if found else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
