"""Rollouts in the real sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from metaharness.errors import MissingDependency
from metaharness.job import Limits
from metaharness.sandboxes import select_engine
from metaharness.trajectory import RolloutStatus
from tests.rollout.support import Bench, gateway, harness, task
from tests.rollout.test_fit import fit, learner
from tests.support import require

MakeBench = Callable[..., Bench]


@pytest.fixture(params=["bubblewrap", "unsafe-process"])
async def real(request: pytest.FixtureRequest, stage: Path) -> MakeBench:
    """Benches whose runner uses a real engine."""
    try:
        engine = await select_engine(request.param)
    except MissingDependency as error:
        require(False, f"engine {request.param} ({error})")
        raise

    def make(timeout_s: float = 30) -> Bench:
        model = gateway(lambda request, seed: request.messages[0]["content"])
        return Bench(stage, engine=engine, model=model, limits=Limits(timeout_s=timeout_s, memory_mb=256))

    return make


async def test_a_rollout(real: MakeBench) -> None:
    outcome = await real().run("print('hi')\nreturn self.model.complete('4').text")
    assert outcome.status is RolloutStatus.SCORED, outcome.error
    assert outcome.score is not None
    assert (outcome.score.reward, outcome.stderr) == (1, "hi\n")


async def test_a_check_a_fit_and_a_rollout_with_16_mib_of_state(real: MakeBench) -> None:
    size = 16 * 1024 * 1024
    tree = learner(
        learn=f"self.state = random.Random(1).randbytes({size})",
        save="return self.state",
        load="self.state = state",
        solve=f"return str(self.state == random.Random(1).randbytes({size}))",
    )
    assert (await real().runner.check(tree)).methods == ("learn", "save", "load", "solve")
    fitted = await fit(real(), tree)
    assert fitted.state is not None, fitted.error
    assert (await real().run(tree, state=fitted.state)).answer == "True"


async def test_rollouts_side_by_side(real: MakeBench) -> None:
    bodies = ["return self.model.complete(task.input).text", "os._exit(7)", "raise KeyError('x')", "return '4'"]
    made = real()
    outcomes = await asyncio.gather(*(made.run(harness(body), of=task("4", "4")) for body in bodies))
    assert [outcome.status for outcome in outcomes] == [
        RolloutStatus.SCORED,
        RolloutStatus.HARNESS_ERROR,
        RolloutStatus.HARNESS_ERROR,
        RolloutStatus.SCORED,
    ]
    assert outcomes[1].error == "the process ended with code 7 before it answered"
    assert outcomes[2].error == "KeyError: 'x' (harness.py, line 9, in solve)"


async def test_a_loop_times_out(real: MakeBench) -> None:
    outcome = await real(timeout_s=2).run("while True: pass")
    assert outcome.error.startswith("timed out after 2 s, 0.0 s of them waiting for the model (harness.py, line 9")


@pytest.mark.parametrize("real", ["bubblewrap"], indirect=True)
async def test_memory_is_bounded(real: MakeBench) -> None:
    report = await real().engine.probe()
    require(report.limits.get("memory") == "held", f"a memory limit of {report.engine}")
    outcome = await real().run("kept = []\nwhile True: kept.append(bytearray(1_000_000))")
    assert outcome.error == "ran out of memory (limit 256 MiB)"
