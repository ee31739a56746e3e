"""What the tests of rollouts share: an engine of plain processes, an environment in memory, a scripted model."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

from metaharness.budget import Budget, Caps
from metaharness.errors import ScoringFailed, UnsupportedRequest
from metaharness.job import EngineReport, Limits, SandboxExit, SandboxJob
from metaharness.models.gateway import ModelGateway
from metaharness.models.prices import Price
from metaharness.models.scripted import Script, ScriptedBackend
from metaharness.protocols import EnvironmentInfo, EnvironmentSession, SandboxEngine
from metaharness.rollout import RolloutOutcome, RolloutRunner, StreamBounds
from metaharness.score import Score
from metaharness.source import SourceTree
from metaharness.task import Part, Split, Task
from metaharness.unit import RolloutUnit


class PlainEngine:
    """Starts plain processes: quick, with a time limit and capped errors, no walls. Counts what it has started.

    Args:
        python: Interpreter for a first argument `python`.
        enforce_timeout: Whether it keeps its promise about the time limit.
    """

    name = "plain"

    def __init__(self, python: str = sys.executable, *, enforce_timeout: bool = True) -> None:
        self._python = python
        self._enforce_timeout = enforce_timeout
        self.jobs: list[SandboxJob] = []
        self.processes: list[PlainProcess] = []
        self.launched = asyncio.Event()

    async def probe(self) -> EngineReport:
        return EngineReport(engine=self.name, available=True)

    async def launch(self, job: SandboxJob) -> PlainProcess:
        self.jobs.append(job)
        places = {mount.target: str(mount.source) for mount in job.mounts}
        argv = [self._python if part == "python" else places.get(part, part) for part in job.argv]
        work = tempfile.TemporaryDirectory()
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(job.env),
            cwd=work.name,
            start_new_session=True,
        )
        made = PlainProcess(process, work, job.limits, self._enforce_timeout)
        self.processes.append(made)
        self.launched.set()
        return made

    async def sweep(self) -> Sequence[str]:
        return ()


class PlainProcess:
    def __init__(
        self, process: asyncio.subprocess.Process, work: tempfile.TemporaryDirectory[str], limits: Limits, timed: bool
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._work, self._limits = process, work, limits
        self._stdin, self._stdout = process.stdin, process.stdout
        self._reason = "exited"
        self._watch = asyncio.create_task(self._end(timed))

    @property
    def gone(self) -> bool:
        return self._process.returncode is not None

    async def read(self, size: int) -> bytes:
        return await self._stdout.read(size)

    async def write(self, data: bytes) -> None:
        self._stdin.write(data)
        await self._stdin.drain()

    async def wait(self) -> SandboxExit:
        return await asyncio.shield(self._watch)

    async def kill(self) -> None:
        self._kill("killed")

    def _kill(self, reason: str) -> None:
        if self._process.returncode is None:
            self._reason = reason
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _end(self, timed: bool) -> SandboxExit:
        assert self._process.stderr is not None
        errors = asyncio.create_task(self._process.stderr.read())
        try:
            async with asyncio.timeout(self._limits.timeout_s if timed else None):
                code = await self._process.wait()
        except TimeoutError:
            self._kill("timeout")
            code = await self._process.wait()
        text = (await errors).decode(errors="replace")[: self._limits.output_kb * 1024]
        self._stdin.close()
        self._work.cleanup()
        return SandboxExit(code=code if self._reason == "exited" else None, reason=self._reason, stderr=text)


class MemoryEnvironment:
    """Tasks in memory; the answer must equal the label. Sessions count how they were used.

    Args:
        shell: Runs commands.
        stream: Batches, for an online environment.
        score: Judges instead of the comparison.
        opening: Raised when a session is opened.
    """

    def __init__(
        self,
        *,
        shell: Callable[[str], tuple[str, int]] | None = None,
        stream: Sequence[Sequence[Task]] | None = None,
        score: Callable[[str], Score] | None = None,
        opening: Exception | None = None,
    ) -> None:
        self._shell, self._stream, self._score, self._opening = shell, stream, score, opening
        self.closed = 0
        self.judged: list[str] = []
        self.info = EnvironmentInfo(
            name="memory",
            digest="0" * 64,
            protocol="offline" if stream is None else "online",
            has_shell=shell is not None,
        )

    def tasks(self, split: Split) -> Sequence[Task]:
        return (task(),)

    async def open(self, task: Task) -> EnvironmentSession:
        if self._opening is not None:
            raise self._opening
        return _Session(self, task)


class _Session:
    def __init__(self, owner: MemoryEnvironment, task: Task) -> None:
        self._owner, self._task = owner, task
        self.stream = owner._stream

    async def shell(self, command: str, timeout_s: float) -> tuple[str, int]:
        if self._owner._shell is None:
            raise UnsupportedRequest("no shell")
        return self._owner._shell(command)

    async def score(self, answer: str) -> Score:
        self._owner.judged.append(answer)
        if self._owner._score is not None:
            return self._owner._score(answer)
        if self._task.answer is None:
            raise ScoringFailed("no label")
        return Score(reward=float(answer == self._task.answer))

    async def aclose(self) -> None:
        self._owner.closed += 1


def task(text: str = "2 + 2", answer: str | None = "4", **fields: object) -> Task:
    return Task(id="t", environment="memory", split=Split.TRAIN, input=text, answer=answer, **fields)  # type: ignore[arg-type]


def harness(body: str, **files: str) -> SourceTree:
    """Return a harness: `body` is the source of harness.py, or the body of `solve` when it holds no class."""
    source = dedent(body).strip("\n")
    if "class Harness" not in source:
        lines = "\n        ".join(source.splitlines())
        source = (
            "import os, sys, time\n\n\nclass Harness:\n    def __init__(self, model):\n        self.model = model\n\n"
            f"    def solve(self, task, shell):\n        {lines}\n"
        )
    toml = 'schema_version = 1\nname = "tested"\nentry = "harness:Harness"\n'
    made = {"harness.toml": toml, "harness.py": source, **files}
    return SourceTree({path: text.encode() for path, text in made.items()})


def gateway(
    script: Script | str = "4",
    *,
    failures: Iterable[Exception | None] = (),
    caps: Caps | None = None,
    latency_s: float = 0.0,
    **can: bool,
) -> ModelGateway:
    said = script if callable(script) else lambda request, seed: script
    backend = ScriptedBackend(said, failures=failures, latency_s=latency_s, **can)
    return ModelGateway(
        backend,
        budget=Budget(caps or Caps()),
        replies=None,
        price=Price(),
        default_temperature=0.0,
        timeout_s=30,
        retries=0,
    )


class Bench:
    """A runner and what it needs, for one test.

    Args:
        stage: Directory for the stage.
        engine: Starts sandboxes.
        limits: Their limits.
        model: The way to the model.
        bounds: What a sandbox may send.
    """

    def __init__(
        self,
        stage: Path,
        *,
        engine: SandboxEngine | None = None,
        limits: Limits | None = None,
        model: ModelGateway | None = None,
        bounds: StreamBounds | None = None,
        engine_grace_s: float = 30.0,
    ) -> None:
        self.engine: Any = engine or PlainEngine()
        self.gateway = model or gateway()
        self.environment = MemoryEnvironment()
        self.runner = RolloutRunner(
            engine=self.engine,
            gateway=self.gateway,
            limits=limits or Limits(timeout_s=20),
            stage=stage,
            campaign="tests",
            bounds=bounds,
            engine_grace_s=engine_grace_s,
        )

    async def run(
        self,
        tree: SourceTree | str,
        *,
        environment: MemoryEnvironment | None = None,
        of: Task | None = None,
        state: bytes | None = None,
        attempt: int = 0,
    ) -> RolloutOutcome:
        """Run one rollout; `tree` may be the source of a harness. Afterwards nothing of it may be left."""
        of = of or task()
        self.environment = environment or self.environment
        outcome = await self.runner.run(
            unit=RolloutUnit(
                candidate="c0001", environment="memory", part=Part.PRACTICE, task=of.digest, attempt=attempt
            ),
            tree=harness(tree) if isinstance(tree, str) else tree,
            environment=self.environment,
            task=of,
            state=state,
        )
        assert all(process.gone for process in getattr(self.engine, "processes", ()))
        return outcome
