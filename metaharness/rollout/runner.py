"""`RolloutRunner`: rollouts, fits and checks of harnesses."""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeVar

from metaharness.budget import Reservation
from metaharness.errors import InfraError, UserError
from metaharness.job import Limits
from metaharness.protocols import Environment, EnvironmentInfo, EnvironmentSession, SandboxEngine
from metaharness.rollout.calls import Calls, Gateway
from metaharness.rollout.conversation import Conversation, StreamBounds
from metaharness.rollout.orders import (
    answer_of,
    example_parts,
    methods_of,
    solve_seed,
    start_frame,
    state_of,
    state_parts,
)
from metaharness.rollout.outcome import CheckResult, FitOutcome, RolloutOutcome, one_line
from metaharness.rollout.recorder import Recorder
from metaharness.rollout.stage import runtime_digest
from metaharness.rollout.visit import ENGINE_GRACE_S, Visit, Visitor
from metaharness.runtime.frames import valid_json
from metaharness.source import SourceTree
from metaharness.task import Example, FitSet, Task
from metaharness.trajectory import RolloutStatus, Trajectory
from metaharness.unit import RolloutUnit

T = TypeVar("T")

MAX_LOG_CHARS = 32 * 1024


class RolloutRunner:
    """Runs harnesses. A bad harness is data in what is returned, never an exception.

    Args:
        engine: Starts sandboxes.
        gateway: The way to the model.
        limits: Limits of each sandbox.
        stage: Directory for copies of harnesses and the runtime, which sandboxes see read-only.
        campaign: Name of the campaign, a label of each sandbox.
        clock: Unix time in seconds.
        bounds: What a sandbox may send.
        engine_grace_s: An engine that has not ended a sandbox so long after its time limit has lost it.
    """

    def __init__(
        self,
        *,
        engine: SandboxEngine,
        gateway: Gateway,
        limits: Limits,
        stage: Path,
        campaign: str,
        clock: Callable[[], float] = time.time,
        bounds: StreamBounds | None = None,
        engine_grace_s: float = ENGINE_GRACE_S,
    ) -> None:
        self._visitor = Visitor(
            engine=engine,
            limits=limits,
            stage=stage,
            campaign=campaign,
            clock=clock,
            bounds=bounds,
            engine_grace_s=engine_grace_s,
        )
        self._gateway = gateway
        self._campaign = campaign
        self._clock = clock

    async def check(self, tree: SourceTree) -> CheckResult:
        """Import and construct a harness, without a model."""
        started_s = _now_s()

        async def script(conversation: Conversation, entry: str, deadline: float) -> tuple[tuple[str, ...], bool]:
            done, _ = await conversation.order(start_frame("check", entry, seed=0, deadline=deadline))
            return methods_of(done)

        visit = await self._visitor.visit(tree, Calls(port=None), script)
        methods, asynchronous = visit.value or ((), False)
        return CheckResult(
            status=visit.failure or RolloutStatus.SCORED,
            methods=methods,
            asynchronous=asynchronous,
            seconds=_now_s() - started_s,
            error=visit.error,
            stderr=visit.stderr,
        )

    async def fit(
        self,
        *,
        tree: SourceTree,
        environment: EnvironmentInfo,
        fit_set: FitSet,
        seed: int,
        fund: Reservation | None = None,
    ) -> FitOutcome:
        """Run `learn` and `save` in a fresh process; a harness without `learn` gives no state.

        Args:
            tree: The harness.
            environment: What the examples come from; named in the scope of its model calls.
            fit_set: The examples.
            seed: Seeds the harness's `random`, and pairs its model calls.
            fund: Reservation that pays for its model calls.

        Raises:
            UserError: A model call cannot succeed, ever.
        """
        started_s = _now_s()
        port = self._gateway.port(scope=f"fit:{environment.digest}:{fit_set.digest}", attempt=seed, fund=fund)

        async def script(conversation: Conversation, entry: str, deadline: float) -> bytes | None:
            start = start_frame("fit", entry, seed=seed, deadline=deadline)
            done, state = await conversation.order(start, example_parts(fit_set.examples))
            return state_of(done, state)

        visit = await self._visitor.visit(tree, Calls(port=port), script)
        return FitOutcome(
            status=visit.failure or RolloutStatus.SCORED,
            state=visit.value,
            usage=port.usage,
            seconds=_now_s() - started_s,
            error=visit.error,
            stderr=visit.stderr,
        )

    async def run(
        self,
        *,
        unit: RolloutUnit,
        tree: SourceTree,
        environment: Environment,
        task: Task,
        state: bytes | None,
        fund: Reservation | None = None,
    ) -> RolloutOutcome:
        """Run one rollout and score it.

        Args:
            unit: Names the rollout; written into the trajectory.
            tree: The harness.
            environment: Where the task is from.
            task: The task.
            state: What the fit's `save` returned, for `load`; None without a fit.
            fund: Reservation that pays for its model calls.

        Raises:
            UserError: A model call cannot succeed, ever.
        """
        started_s = _now_s()
        recorder = Recorder(model=self._gateway.info, clock=self._clock)
        port = self._gateway.port(scope=task.digest, attempt=unit.attempt, record=recorder.call, fund=fund)
        visit: Visit[str] = Visit(failure=RolloutStatus.INFRA_ERROR)
        score, error = None, ""
        try:
            async with _opened(environment, task) as session:
                has_shell = environment.info.has_shell
                calls = Calls(port=port, session=session if has_shell else None, recorder=recorder)
                script = self._solving(session, unit, task, state, recorder, has_shell=has_shell)
                visit = await self._visitor.visit(tree, calls, script)
                if visit.value is not None:
                    score = await _guarded("the scorer broke", session.score(visit.value))
        except InfraError as failure:
            error = one_line(str(failure))
        status = visit.failure or (RolloutStatus.INFRA_ERROR if score is None else RolloutStatus.SCORED)
        outcome = RolloutOutcome(
            status=status,
            score=score if status is RolloutStatus.SCORED else None,
            usage=port.usage,
            seconds=_now_s() - started_s,
            error=visit.error or error,
            answer=visit.value,
            stderr=visit.stderr,
        )
        return replace(outcome, trajectory=self._trajectory(recorder, unit, tree, outcome, visit.waited_s))

    def _solving(
        self,
        session: EnvironmentSession,
        unit: RolloutUnit,
        task: Task,
        state: bytes | None,
        recorder: Recorder,
        *,
        has_shell: bool,
    ) -> Callable[[Conversation, str, float], Awaitable[str]]:
        """Return the script of a rollout: one task, or the batches of a stream, each solved and then learned."""
        state_bytes = None if state is None else len(state)
        loading = [] if state is None else list(state_parts(state))

        async def solve(conversation: Conversation, entry: str, deadline: float, item: Task, index: int) -> str:
            recorder.user("\n\n".join(filter(None, (item.instruction, item.input))))
            start = start_frame("solve", entry, seed=solve_seed(item, unit.attempt, index), deadline=deadline)
            public = item.public(secrets.token_hex(8), deadline)
            done, _ = await conversation.order(
                {**start, "task": public, "shell": has_shell, "state_bytes": state_bytes},
                loading if index == 0 else (),
            )
            return answer_of(done)

        async def script(conversation: Conversation, entry: str, deadline: float) -> str:
            if session.stream is None:
                return await solve(conversation, entry, deadline, task, 0)
            answers: list[str] = []
            for batch in session.stream:
                for item in batch:
                    answers.append(await solve(conversation, entry, deadline, item, len(answers)))
                recorder.user(f"learn: the labels of the last {len(batch)} tasks are given")
                seed = solve_seed(task, unit.attempt, len(answers))
                parts = example_parts(_labelled(batch))
                await conversation.order(start_frame("learn", entry, seed=seed, deadline=deadline), parts)
            return json.dumps(answers, ensure_ascii=False)

        return script

    def _trajectory(
        self, recorder: Recorder, unit: RolloutUnit, tree: SourceTree, outcome: RolloutOutcome, waited_s: float
    ) -> Trajectory | None:
        if not recorder.steps:
            return None
        score = outcome.score
        judged = None if score is None else {**score.to_json(), "components": _finite(score.components)}
        return recorder.finish(
            agent=tree.config.name,
            version=unit.candidate,
            session_id=f"{self._campaign}/{unit.candidate}",
            ours={
                "unit": asdict(unit),
                "status": outcome.status,
                "answer": outcome.answer,
                "score": judged and valid_json(judged),
                "error": outcome.error,
                "log": _log(outcome.stderr),
                "seconds": round(outcome.seconds, 3),
                "waited_s": round(waited_s, 3),
                "runtime": runtime_digest(),
            },
        )


@asynccontextmanager
async def _opened(environment: Environment, task: Task) -> AsyncIterator[EnvironmentSession]:
    session = await _guarded("the environment could not be prepared", environment.open(task))
    try:
        yield session
    finally:
        await _guarded("the environment could not be tidied up", session.aclose())


async def _guarded(what: str, work: Awaitable[T]) -> T:
    """Await work of an environment, which may be anyone's plug-in: what it lets slip is no fault of the harness."""
    try:
        return await work
    except (InfraError, UserError):
        raise
    except Exception as error:
        raise InfraError(f"{what}: {type(error).__name__}: {error}") from error


def _labelled(batch: Sequence[Task]) -> list[Example]:
    try:
        return [item.example() for item in batch]
    except ValueError as error:
        raise InfraError(f"the environment's stream: {error}") from error


def _finite(components: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in components.items()}


def _log(stderr: str) -> str:
    if len(stderr) <= MAX_LOG_CHARS:
        return stderr
    head = MAX_LOG_CHARS // 4
    tail = MAX_LOG_CHARS - head
    return f"{stderr[:head]}\n[{len(stderr) - MAX_LOG_CHARS} characters left out]\n{stderr[-tail:]}"


def _now_s() -> float:
    return asyncio.get_running_loop().time()
