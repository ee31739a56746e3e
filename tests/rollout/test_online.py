from __future__ import annotations

import json
from collections.abc import Callable

from metaharness.score import Score
from metaharness.trajectory import RolloutStatus
from tests.rollout.support import Bench, MemoryEnvironment, gateway, task
from tests.rollout.test_fit import learner

MakeBench = Callable[..., Bench]

BATCHES = [[task("a", "1"), task("b", "2")], [task("a", "1"), task("c", "3")], [task("b", "2")]]
SOLVE = "return getattr(self, 'table', {}).get(task.input, f'?{os.getpid()}')"
LEARN = "self.table = {**getattr(self, 'table', {}), **{e.input: e.answer for e in examples}}"


def hits(answer: str) -> Score:
    wanted = [item.answer for batch in BATCHES for item in batch]
    return Score(reward=sum(a == w for a, w in zip(json.loads(answer), wanted, strict=True)) / len(wanted))


async def test_each_batch_is_solved_then_learned_in_one_process(bench: MakeBench) -> None:
    made = bench()
    environment = MemoryEnvironment(stream=BATCHES, score=hits)
    outcome = await made.run(learner(learn=LEARN, solve=SOLVE), environment=environment)
    assert outcome.status is RolloutStatus.SCORED, outcome.error
    answers = json.loads(outcome.answer or "")
    assert answers[0] == answers[1] == answers[3]  # unknown yet; the same process answered
    assert answers[0].startswith("?")
    assert (answers[2], answers[4]) == ("1", "2")
    assert outcome.score == Score(reward=0.4)
    assert len(made.engine.processes) == 1
    assert outcome.trajectory is not None
    said = [step.message for step in outcome.trajectory.steps]
    assert said[:4] == ["a", "b", "learn: the labels of the last 2 tasks are given", "a"]


async def test_a_harness_that_does_not_learn_still_solves(bench: MakeBench) -> None:
    environment = MemoryEnvironment(stream=BATCHES, score=hits)
    outcome = await bench(model=gateway("2")).run(
        "return self.model.complete(task.input).text", environment=environment
    )
    assert outcome.answer == '["2", "2", "2", "2", "2"]'
    assert outcome.usage.model_calls == 5


async def test_a_failure_in_the_stream_ends_it(bench: MakeBench) -> None:
    environment = MemoryEnvironment(stream=BATCHES, score=hits)
    outcome = await bench().run(learner(learn="1/0", solve=SOLVE), environment=environment)
    assert outcome.status is RolloutStatus.HARNESS_ERROR
    assert "ZeroDivisionError" in outcome.error
    assert environment.judged == []


async def test_a_stream_without_labels_is_an_infra_error(bench: MakeBench) -> None:
    environment = MemoryEnvironment(stream=[[task("a", None)]])
    outcome = await bench().run("return 'x'", environment=environment)
    assert outcome.status is RolloutStatus.INFRA_ERROR
    assert "the environment's stream: task 't' has no label" in outcome.error
