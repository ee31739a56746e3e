"""How rollouts end that are not scored: each end has its status, one line, and nothing left over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from metaharness.budget import Caps
from metaharness.errors import InfraError, ModelUnavailable, SandboxUnavailable, ScoringFailed, SpecError
from metaharness.job import Limits, SandboxJob
from metaharness.rollout import RolloutOutcome, RolloutRunner
from metaharness.score import Score
from metaharness.source import SourceTree
from metaharness.task import Part
from metaharness.trajectory import RolloutStatus
from metaharness.unit import RolloutUnit
from tests.rollout.support import Bench, MemoryEnvironment, PlainEngine, PlainProcess, gateway, harness, task

MakeBench = Callable[..., Bench]


def fails(outcome: RolloutOutcome, says: str, status: RolloutStatus = RolloutStatus.HARNESS_ERROR) -> None:
    assert outcome.status is status, outcome
    assert says in outcome.error
    assert "\n" not in outcome.error
    assert outcome.score is None
    if outcome.trajectory is not None:
        assert outcome.trajectory.ours["status"] == status
        assert outcome.trajectory.ours["error"] == outcome.error


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return 7", "solve must return a text (str), not int"),
        ("return None", "solve must return a text (str), not None"),
        ("return 'x' * 2_000_000", "the answer has 2000000 bytes, at most 1048576 are allowed"),
        ("return {}['k']", "KeyError: 'k' (harness.py, line 9, in solve)"),
        ("raise ValueError('one\\ntwo')", "ValueError: one two (harness.py, line 9, in solve)"),
        ("sys.exit(3)", "the harness called sys.exit(3) (harness.py, line 9, in solve)"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("print('last words')\nos._exit(3)", "the process ended with code 3 before it answered: last words"),
        ("os.kill(os.getpid(), 11)", "was ended by SIGSEGV before it answered (harness.py, line 9, in solve)"),
        ("os.kill(os.getpid(), 9)", "was ended by SIGKILL before it answered"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
        ("def f(): f()\nf()", "RecursionError: maximum recursion depth exceeded"),
        ("return self.model.complete([])", "ValueError: messages must not be empty"),
        ("class Odd(Exception):\n    def __str__(self): 1/0\nraise Odd", "Odd: <exception str() failed>"),
        ("os.close(60)\nos.close(61)\ntime.sleep(60)", "the harness closed its stream to the host and went on"),
        ("raise ValueError('\\x1b[31mred\\u202e' + 'x' * 10_000)", "ValueError: [31mred xxx"),
        ("return shell.run('ls').output", "AttributeError: 'NoneType' object has no attribute 'run'"),
    ],
)
async def test_a_bad_harness_is_a_harness_error(bench: MakeBench, body: str, says: str) -> None:
    made = bench()
    outcome = await made.run(body)
    fails(outcome, says)
    assert len(outcome.error) <= 500
    assert made.environment.closed == 1
    assert made.environment.judged == []


async def test_the_traceback_begins_in_the_harness(bench: MakeBench) -> None:
    outcome = await bench().run("print('before')\nreturn {}['k']")
    assert outcome.stderr.startswith("before\nTraceback (most recent call last):\n  File ")
    assert "worker.py" not in outcome.stderr
    assert outcome.stderr.endswith("KeyError: 'k'\n")


async def test_a_loop_times_out_and_its_stack_is_shown(bench: MakeBench) -> None:
    outcome = await bench(limits=Limits(timeout_s=2)).run("while True: pass")
    fails(outcome, "timed out after 2 s, 0.0 s of them waiting for the model (harness.py, line 9, in solve)")
    assert "Timeout (" in outcome.stderr
    assert ", line 9 in solve" in outcome.stderr
    assert outcome.seconds < 10


async def test_the_time_waiting_for_the_model_is_named(bench: MakeBench) -> None:
    outcome = await bench(limits=Limits(timeout_s=1.5), model=gateway(latency_s=60)).run("self.model.complete('x')")
    assert outcome.status is RolloutStatus.HARNESS_ERROR
    waited_s = float(outcome.error.split(", ")[1].split(" s ")[0])
    assert 0.5 < waited_s <= 1.6
    assert outcome.trajectory is not None
    extra = outcome.trajectory.steps[-1].extra
    assert extra is not None
    assert extra["metaharness"]["error"] == "cancelled"


async def test_a_huge_print_is_kept_out_of_the_way(bench: MakeBench) -> None:
    outcome = await bench(limits=Limits(timeout_s=20, output_kb=64)).run("print('x' * 5_000_000)\nreturn '4'")
    assert outcome.status is RolloutStatus.SCORED
    assert len(outcome.stderr) <= 64 * 1024
    assert outcome.trajectory is not None
    assert len(outcome.trajectory.ours["log"]) < 33 * 1024


async def test_the_model_being_gone_ends_the_rollout_whatever_the_harness_does(bench: MakeBench) -> None:
    made = bench(model=gateway(failures=[ModelUnavailable("no answer")]))
    outcome = await made.run(
        "try:\n    self.model.complete('x')\nexcept Exception:\n    pass\ntime.sleep(30)\nreturn '4'"
    )
    fails(outcome, "no answer", RolloutStatus.INFRA_ERROR)
    assert outcome.seconds < 10


async def test_the_budget_ends_the_rollout(bench: MakeBench) -> None:
    made = bench(model=gateway(caps=Caps(tokens=1)))
    fails(await made.run("self.model.complete('x')"), "tokens cap", RolloutStatus.BUDGET_STOPPED)


async def test_an_error_that_no_call_can_avoid_is_raised(bench: MakeBench) -> None:
    made = bench(model=gateway(failures=[SpecError("model.ref: wrong key")]))
    with pytest.raises(SpecError, match="wrong key"):
        await made.run("self.model.complete('x')")
    assert all(process.gone for process in made.engine.processes)
    assert made.environment.closed == 1


def broken(answer: str) -> Score:
    raise ScoringFailed("reward.txt is missing")


def buggy(answer: str) -> Score:
    raise KeyError("x")


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        (MemoryEnvironment(score=broken), "reward.txt is missing"),
        (MemoryEnvironment(score=buggy), "the scorer broke: KeyError: 'x'"),
        (MemoryEnvironment(opening=InfraError("no container")), "no container"),
        (MemoryEnvironment(opening=OSError("odd")), "the environment could not be prepared: OSError: odd"),
    ],
)
async def test_a_broken_environment_is_an_infra_error(
    bench: MakeBench, environment: MemoryEnvironment, says: str
) -> None:
    fails(await bench().run("return '4'", environment=environment), says, RolloutStatus.INFRA_ERROR)


@pytest.mark.parametrize(
    ("error", "says"), [(InfraError("container gone"), "container gone"), (KeyError("x"), "KeyError")]
)
async def test_a_shell_that_breaks_is_an_infra_error(bench: MakeBench, error: Exception, says: str) -> None:
    def gone(command: str) -> tuple[str, int]:
        raise error

    outcome = await bench().run("return shell.run('x').output", environment=MemoryEnvironment(shell=gone))
    fails(outcome, says, RolloutStatus.INFRA_ERROR)


class AbsentEngine(PlainEngine):
    async def launch(self, job: SandboxJob) -> PlainProcess:
        raise SandboxUnavailable("bwrap: no such file")


async def test_no_sandbox_is_an_infra_error(bench: MakeBench) -> None:
    made = bench(engine=AbsentEngine())
    fails(await made.run("return '4'"), "bwrap: no such file", RolloutStatus.INFRA_ERROR)
    assert (await made.runner.check(harness("return '4'"))).status is RolloutStatus.INFRA_ERROR


async def test_an_engine_that_loses_a_sandbox_cannot_hold_a_rollout_for_ever(bench: MakeBench) -> None:
    made = bench(engine=PlainEngine(enforce_timeout=False), limits=Limits(timeout_s=0.5), engine_grace_s=0.5)
    fails(await made.run("time.sleep(60)"), "not ended at its limit of 0.5 s", RolloutStatus.INFRA_ERROR)


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        (None, "no harness.toml"),
        ('schema_version = 1\nname = "x"\ncommand = ["sh"]\n', "give an entry point"),
        ("schema_version = 1\n", "harness.toml: name: missing"),
        ('schema_version = 1\nname = "x"\nentry = "other:Harness"\n', "there is no module 'other'"),
    ],
)
async def test_a_tree_that_cannot_be_started_is_a_harness_error(bench: MakeBench, toml: str | None, says: str) -> None:
    tree = SourceTree({} if toml is None else {"harness.toml": toml.encode()})
    made = bench()
    fails(await made.run(tree), says)
    checked = await made.runner.check(tree)
    assert checked.status is RolloutStatus.HARNESS_ERROR
    assert says in checked.error


async def test_cancelling_a_rollout_ends_its_sandbox(bench: MakeBench) -> None:
    made = bench()
    running = asyncio.create_task(made.run("self.model.complete('x')\ntime.sleep(60)"))
    await made.engine.launched.wait()
    await asyncio.sleep(0.3)
    assert not made.engine.processes[0].gone
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert made.engine.processes[0].gone
    assert made.environment.closed == 1


async def test_a_failure_to_tidy_up_takes_no_score_away(bench: MakeBench) -> None:
    class Untidy(MemoryEnvironment):
        async def open(self, of):  # type: ignore[no-untyped-def]
            session = await super().open(of)

            async def aclose() -> None:
                raise OSError("busy")

            session.aclose = aclose  # type: ignore[method-assign]
            return session

    outcome = await bench().run("return '4'", environment=Untidy())
    assert outcome.status is RolloutStatus.SCORED
    assert outcome.error == "the environment could not be tidied up: OSError: busy"


async def test_many_rollouts_at_once(bench: MakeBench, stage: Path) -> None:
    made = bench(model=gateway(lambda request, seed: request.messages[0]["content"]))
    of = [task(str(n), str(n)) for n in range(12)]
    tree = harness("return self.model.complete(task.input).text")

    async def one(runner: RolloutRunner, n: int) -> RolloutOutcome:
        unit = RolloutUnit(candidate="c0001", environment="memory", part=Part.VAL, task=of[n].digest)
        return await runner.run(unit=unit, tree=tree, environment=made.environment, task=of[n], state=None)

    outcomes = await asyncio.gather(*(one(made.runner, n) for n in range(12)))
    assert [outcome.score.reward for outcome in outcomes if outcome.score is not None] == [1.0] * 12
