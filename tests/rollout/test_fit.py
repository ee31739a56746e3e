from __future__ import annotations

from collections.abc import Callable

import pytest

from metaharness.rollout import FitOutcome
from metaharness.source import SourceTree
from metaharness.task import Example, FitSet
from metaharness.trajectory import RolloutStatus
from tests.rollout.support import Bench, gateway, harness, task
from tests.rollout.test_hostile import FORGE, forge

MakeBench = Callable[..., Bench]

EXAMPLES = (Example(input="two", answer="2", choices=("1", "2")), Example(input="three", answer="3"))


def learner(
    learn: str = "self.table = {e.input: e.answer for e in examples}",
    save: str = "return repr(self.table).encode()",
    load: str = "self.table = eval(state)",
    solve: str = "return self.table[task.input]",
) -> SourceTree:
    return harness(
        "import os, random, sys, time\n\n\nclass Harness:\n    def __init__(self, model):\n        self.model = model\n"
        f"    def learn(self, examples):\n        {learn}\n"
        f"    def save(self):\n        {save}\n"
        f"    def load(self, state):\n        {load}\n"
        f"    def solve(self, task, shell):\n        {solve}\n"
    )


async def fit(bench: Bench, tree: SourceTree, examples: tuple[Example, ...] = EXAMPLES, seed: int = 0) -> FitOutcome:
    return await bench.runner.fit(
        tree=tree, environment=bench.environment.info, fit_set=FitSet(examples=examples, digest="d"), seed=seed
    )


async def test_learn_save_load_solve(bench: MakeBench) -> None:
    made = bench()
    fitted = await fit(made, learner())
    assert fitted.status is RolloutStatus.SCORED
    assert fitted.state == b"{'two': '2', 'three': '3'}"
    outcome = await made.run(learner(), of=task("three", "3"), state=fitted.state)
    assert outcome.score is not None
    assert outcome.score.reward == 1
    assert len(made.engine.processes) == 2


async def test_examples_arrive_whole(bench: MakeBench) -> None:
    tree = learner(save="return repr([vars(e) for e in self.examples]).encode()", learn="self.examples = examples")
    state = (await fit(bench(), tree)).state or b""
    assert eval(state) == [example.to_json() for example in EXAMPLES]


async def test_many_examples_go_in_parts(bench: MakeBench) -> None:
    many = tuple(Example(input="\U0001f600" * 5_000 + str(n), answer="x") for n in range(1_000))
    tree = learner(learn="self.n = (len(examples), examples[-1].input[-4:])", save="return repr(self.n).encode()")
    fitted = await fit(bench(), tree, many)
    assert fitted.state == "(1000, '\U0001f600999')".encode(), fitted.error


async def test_a_state_of_many_frames_makes_the_round_trip(bench: MakeBench) -> None:
    made = bench()
    size = 16 * 1024 * 1024
    tree = learner(
        learn=f"self.state = random.Random(1).randbytes({size})",
        save="return self.state",
        load="self.state = state",
        solve=f"return str(self.state == random.Random(1).randbytes({size}))",
    )
    fitted = await fit(made, tree)
    assert fitted.state is not None
    assert len(fitted.state) == size
    assert (await made.run(tree, state=fitted.state)).answer == "True"


async def test_an_empty_state_is_loaded_too(bench: MakeBench) -> None:
    made = bench()
    tree = learner(save="return b''", load="self.loaded = state", solve="return repr(self.loaded)")
    assert (await fit(made, tree)).state == b""
    assert (await made.run(tree, state=b"")).answer == "b''"


async def test_a_harness_without_learn_has_no_state(bench: MakeBench) -> None:
    fitted = await fit(bench(), harness("return 'x'"))
    assert (fitted.status, fitted.state) == (RolloutStatus.SCORED, None)


async def test_learn_may_ask_the_model_and_is_charged(bench: MakeBench) -> None:
    made = bench(model=gateway(lambda request, seed: str(seed)))
    tree = learner(learn="self.table = self.model.complete('x').text + str(random.random())")
    first, again, other = [await fit(made, tree, seed=seed) for seed in (1, 1, 2)]
    assert first.usage.model_calls == 1
    assert first.state == again.state
    assert first.state != other.state


@pytest.mark.parametrize(
    ("tree", "says"),
    [
        (learner(learn="os._exit(0)"), "the process ended with code 0 before it answered"),
        (learner(learn="raise ValueError('no')"), "ValueError: no (harness.py, line 8, in learn)"),
        (learner(save="return 'text'"), "save must return bytes, not str"),
        (learner(save="return b'x' * (16 * 1024 * 1024 + 1)"), "save returned 16777217 bytes, at most 16777216"),
        (learner(learn="examples[0].answer = 'x'"), "FrozenInstanceError"),
    ],
)
async def test_a_failed_fit_is_a_harness_error(bench: MakeBench, tree: SourceTree, says: str) -> None:
    fitted = await fit(bench(), tree)
    assert (fitted.status, fitted.state) == (RolloutStatus.HARNESS_ERROR, None)
    assert says in fitted.error


@pytest.mark.parametrize(
    ("frames", "says"),
    [
        (['{"type": "done", "state_bytes": 5}'], "state_bytes is not the size of the state"),
        (['{"type": "done"}'], ""),
        (['{"type": "state", "data": "AAAA"}', '{"type": "done"}'], "state_bytes is not the size"),
        (['{"type": "state", "data": "???"}'], "a state frame that is not base64"),
        (['{"type": "state", "data": 5}'], "a state frame without data"),
        (['{"type": "state", "data": "' + "AAAA" * 1_500_000 + '"}'] * 4, "a state of more than 16777216 bytes"),
    ],
)
async def test_a_forged_state_is_refused(bench: MakeBench, frames: list[str], says: str) -> None:
    body = (
        FORGE.replace("\n", "\n        ") + "".join(f"{forge(frame.encode())}; " for frame in frames) + "time.sleep(60)"
    )
    if frames == ['{"type": "done"}']:
        assert (await fit(bench(), learner(learn=body))).state is None
        return
    fitted = await fit(bench(), learner(learn=body))
    assert fitted.status is RolloutStatus.HARNESS_ERROR
    assert says in fitted.error


async def test_a_state_without_load_is_a_harness_error(bench: MakeBench) -> None:
    outcome = await bench().run("return 'x'", state=b"x")
    assert outcome.status is RolloutStatus.HARNESS_ERROR
    assert "the harness has no load" in outcome.error
