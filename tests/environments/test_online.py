from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaharness.environments.config import OnlineOptions
from metaharness.environments.native import NativeEnvironment
from metaharness.environments.online import MAX_WRONG_SHOWN, deal_streams
from metaharness.environments.parts import fit_set, split_parts
from metaharness.errors import EnvironmentFormatError, InfraError, ScoringFailed, UnsupportedRequest
from metaharness.task import Part, Split, Task
from tests.environments.support import CONFIG, SPLITS, write_environment

ONLINE = CONFIG.replace("[scorer]", 'protocol = "online"\n[online]\nstreams_per_split = 2\nbatch = 3\n[scorer]', 1)


def items(count: int) -> list[Task]:
    return [
        Task(id=f"i{n}", environment="e", split=Split.TRAIN, input=f"input {n}", answer=str(n % 2))
        for n in range(count)
    ]


@settings(deadline=None)
@given(
    count=st.integers(1, 60),
    streams=st.integers(1, 5),
    batch=st.integers(1, 9),
    seed=st.integers(0, 9),
    shuffled=st.randoms(),
)
def test_every_task_is_in_exactly_one_stream(count: int, streams: int, batch: int, seed: int, shuffled: object) -> None:
    options = OnlineOptions(streams_per_split=streams, batch=batch, seed=seed)
    dealt = items(max(count, streams))
    found = deal_streams(dealt, Split.TRAIN, "e", options, "train.jsonl")
    assert len(found) == streams
    assert sorted(item.id for stream in found for item in stream.items) == sorted(item.id for item in dealt)
    sizes = [len(stream.items) for stream in found]
    assert max(sizes) - min(sizes) <= 1
    assert all(len(part) == batch for stream in found for part in stream.batches[:-1])
    assert len({stream.task.digest for stream in found}) == streams
    reordered = list(dealt)
    shuffled.shuffle(reordered)  # type: ignore[attr-defined]
    assert deal_streams(reordered, Split.TRAIN, "e", options, "train.jsonl") == found


def test_the_seed_changes_the_order() -> None:
    orders = {
        tuple(item.id for item in deal_streams(items(20), Split.VAL, "e", OnlineOptions(seed=seed), "f")[0].items)
        for seed in range(5)
    }
    assert len(orders) == 5


async def test_a_rollout_is_a_whole_stream(tmp_path: Path) -> None:
    environment = NativeEnvironment(write_environment(tmp_path, ONLINE))
    assert environment.info.protocol == "online"
    assert not environment.info.can_fit
    assert len(environment.items(Split.TRAIN)) == 8
    tasks = environment.tasks(Split.TRAIN)
    assert [task.id for task in tasks] == ["train-stream-0", "train-stream-1"]
    session = await environment.open(tasks[0])
    assert session.stream is not None
    assert [len(batch) for batch in session.stream] == [3, 1]
    stream = [item for batch in session.stream for item in batch]
    labels = [item.answer for item in stream]
    assert tasks[0].answer == json.dumps(labels)
    full = await session.score(json.dumps(labels))
    assert (full.reward, full.feedback) == (1.0, "")
    half = await session.score(json.dumps(["", "", *labels[2:]]))
    assert half.reward == 0.5
    assert half.components == {"first_half": 0.0, "second_half": 1.0}
    assert half.feedback.splitlines()[0] == f"item 1 of 4 ({stream[0].input!r}): empty answer; expected {labels[0]!r}"
    with pytest.raises(UnsupportedRequest):
        await session.shell("ls", 1)
    await session.aclose()


@pytest.mark.parametrize("answer", ["", "red", "{}", '["red"]', "[1, 2, 3, 4]", "[" * 100_000])
async def test_answers_that_are_no_array_of_the_right_length_are_no_score(tmp_path: Path, answer: str) -> None:
    environment = NativeEnvironment(write_environment(tmp_path, ONLINE))
    session = await environment.open(environment.tasks(Split.TRAIN)[0])
    with pytest.raises(ScoringFailed, match="answers"):
        await session.score(answer)


async def test_feedback_is_limited(tmp_path: Path) -> None:
    train = [{"id": f"t{n}", "input": f"thing {n}", "answer": "red"} for n in range(60)]
    environment = NativeEnvironment(write_environment(tmp_path, ONLINE, {"train": train}))
    session = await environment.open(environment.tasks(Split.TRAIN)[0])
    lines = (await session.score(json.dumps(["green"] * 30))).feedback.splitlines()
    assert len(lines) == MAX_WRONG_SHOWN + 1
    assert lines[-1] == "and 10 more"


async def test_a_foreign_stream_cannot_be_opened(tmp_path: Path) -> None:
    environment = NativeEnvironment(write_environment(tmp_path, ONLINE))
    with pytest.raises(InfraError, match="no stream 'i0'"):
        await environment.open(items(1)[0])


def test_too_few_tasks(tmp_path: Path) -> None:
    write_environment(tmp_path, ONLINE, {"val": SPLITS["val"][:1]})
    with pytest.raises(EnvironmentFormatError, match=r"val\.jsonl: 1 tasks cannot fill 2 streams"):
        NativeEnvironment(tmp_path)


def test_streams_are_practice_and_nothing_is_fitted(tmp_path: Path) -> None:
    environment = NativeEnvironment(write_environment(tmp_path, ONLINE))
    assert {part: len(tasks) for part, tasks in split_parts(environment).items()} == {
        Part.FIT: 0, Part.PRACTICE: 2, Part.VAL: 2, Part.TEST: 2
    }  # fmt: skip
    assert fit_set(environment).examples == ()
