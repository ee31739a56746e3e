"""A harness that writes its own frames harms its own rollout, and nothing else."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaharness.errors import ProtocolError
from metaharness.exchange import ChooseRequest, CompleteRequest
from metaharness.job import Limits, SandboxJob
from metaharness.rollout import StreamBounds
from metaharness.rollout.calls import REQUEST_KINDS, ShellRequest, parse_request
from metaharness.rollout.outcome import one_line
from metaharness.trajectory import RolloutStatus, Trajectory
from tests.rollout.support import Bench, PlainEngine, PlainProcess, gateway, harness

MakeBench = Callable[..., Bench]

# The stream lies at descriptors 60 (to read) and 61 (to write); code in the sandbox can find that out.
FORGE = "def raw(data):\n    while data: data = data[os.write(61, data):]\n"
FORGE += "def forge(data): raw(len(data).to_bytes(4, 'big') + data)\n"
MODEL = {"type": "model", "id": 1, "messages": [{"role": "user", "content": "x"}], "system": None, "max_tokens": 5}
MODEL |= {"temperature": None, "stop": [], "tools": [], "schema": None}


def forging(*frames: object, then: str = "time.sleep(60)") -> str:
    """Return a `solve` that sends frames as they are: objects as JSON, bytes as payload."""
    payloads = [frame if isinstance(frame, bytes) else json.dumps(frame).encode() for frame in frames]
    return FORGE + "".join(f"{forge(payload)}\n" for payload in payloads) + then


def forge(payload: bytes) -> str:
    """Return the line that sends a payload, however long that is."""
    return f"import zlib; forge(zlib.decompress({zlib.compress(payload)!r}))"


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (b"", "the frame is not JSON"),
        (b"[]", "the frame is not an object but list"),
        (b"\xff", "the frame is not UTF-8"),
        (b'{"type": NaN}', "NaN is not allowed"),
        (b"[" * 100_000, "nested too deeply"),
        ({}, "a frame without a type"),
        ({"type": "score", "reward": 1}, "a frame of unknown type 'score'"),
        ({"type": ["model"]}, "a frame without a type"),
        ({"type": "reply", "id": 1}, "a frame of unknown type 'reply'"),
        ({"type": "ready", "version": 1}, "a frame of unknown type 'ready'"),
        ({"type": "state", "data": ""}, "a frame of unknown type 'state'"),
        ({"type": "done"}, "a done frame without an answer"),
        ({"type": "done", "answer": 4}, "a done frame without an answer"),
        ({"type": "done", "answer": "x" * 1_048_577}, "a done frame without an answer of at most 1048576 bytes"),
        ({"type": "failed"}, "the harness failed and does not say why"),
        ({"type": "failed", "message": {"a": 1}, "traceback": 7}, "does not say why"),
        ({**MODEL, "id": None}, "a model frame without a whole number as id"),
        ({**MODEL, "id": True}, "a model frame without a whole number as id"),
        ({**MODEL, "id": -1}, "a model frame without a whole number as id"),
        ({**MODEL, "id": 1.5}, "a model frame without a whole number as id"),
        ({**MODEL, "price": 0}, "a model frame with 'price' too much"),
        ({"type": "model", "id": 1}, "a model frame with 'max_tokens' missing"),
        ({**MODEL, "max_tokens": 10**9}, "a malformed model frame: max_tokens must be from 1 to 1000000"),
        ({**MODEL, "max_tokens": "5"}, "a malformed model frame: max_tokens must be a whole number"),
        ({**MODEL, "messages": [{"role": "root", "content": ""}]}, "a malformed model frame: messages[0]: role"),
        ({"type": "choose", "id": 1, "prompt": "p", "choices": []}, "a malformed choose frame: choices"),
        ({"type": "shell", "id": 1, "command": "ls", "timeout_s": -1}, "a malformed shell frame: timeout_s"),
        ({"type": "tool", "id": 1}, "a frame of unknown type 'tool'"),
    ],
)
async def test_a_forged_frame_is_a_harness_error(bench: MakeBench, frame: object, says: str) -> None:
    outcome = await bench(model=gateway(latency_s=0.2)).run(forging(frame))
    assert outcome.status is RolloutStatus.HARNESS_ERROR
    assert says in outcome.error
    assert outcome.score is None
    assert outcome.seconds < 10


@pytest.mark.parametrize("depth", [100, 800, 900, 930, 940, 950, 960, 970])
def test_nesting_that_can_just_be_read_is_refused_in_every_field(depth: int) -> None:
    deep: Any = []
    for _ in range(depth):
        deep = [deep]
    body = {name: value for name, value in MODEL.items() if name not in ("type", "id")}
    for name in body:
        for value in (deep, [deep], [{"role": deep}], [{"role": "user", "content": deep}], {"a": deep}):
            with pytest.raises(ProtocolError):
                parse_request("model", {**body, name: value})


async def test_a_frame_that_announces_gigabytes_is_refused_at_once(bench: MakeBench) -> None:
    outcome = await bench().run(FORGE + f"raw({struct.pack('>I', 2**31)!r})\ntime.sleep(60)")
    assert "a frame of 2147483648 bytes: at most" in outcome.error


async def test_a_frame_that_never_ends_is_the_end_of_the_stream(bench: MakeBench) -> None:
    outcome = await bench().run(FORGE + "raw(b'\\0\\0\\0\\xff{')\nos._exit(0)")
    assert outcome.status is RolloutStatus.HARNESS_ERROR
    assert outcome.error == "the process ended with code 0 before it answered"


async def test_an_id_cannot_be_used_twice_at_once_nor_too_many(bench: MakeBench) -> None:
    made = bench(model=gateway(latency_s=30))
    assert "the id 1 of a request that is not answered yet" in (await made.run(forging(MODEL, MODEL))).error
    many = [{**MODEL, "id": number} for number in range(65)]
    assert "more than 64 requests at once" in (await made.run(forging(*many))).error


async def test_floods_are_bounded(bench: MakeBench) -> None:
    made = bench(bounds=StreamBounds(max_frames=50, max_bytes=200_000))
    flood = FORGE + 'for n in range(10_000): forge(b\'{"type": "failed"\')'
    assert (await made.run(flood)).status is RolloutStatus.HARNESS_ERROR
    calls = "for n in range(60): self.model.complete('x')\nreturn '4'"
    assert "more than 50 frames" in (await made.run(calls)).error
    big = "for n in range(3): self.model.complete('x' * 90_000)\nreturn '4'"
    assert "more than 200000 bytes" in (await made.run(big)).error
    assert (await made.run("return self.model.complete('x').text")).status is RolloutStatus.SCORED


async def test_a_forged_answer_is_only_an_answer(bench: MakeBench) -> None:
    made = bench()
    outcome = await made.run(
        forging({"type": "done", "answer": "4", "score": {"reward": 1}, "usage": {"cost_usd": -1}})
    )
    assert outcome.status is RolloutStatus.SCORED
    assert made.environment.judged == ["4"]
    assert outcome.usage.cost_usd == 0


async def test_frames_after_the_answer_are_ignored(bench: MakeBench) -> None:
    late = forging({"type": "done", "answer": "4"}, {"type": "done", "answer": "5"}, b"junk")
    outcome = await bench().run(late)
    assert (outcome.status, outcome.answer) == (RolloutStatus.SCORED, "4")


async def test_frames_before_the_worker_is_ready_are_refused(bench: MakeBench) -> None:
    class Impostor(PlainEngine):
        async def launch(self, job: SandboxJob) -> PlainProcess:
            code = "import sys; sys.stdout.buffer.write((2).to_bytes(4, 'big') + b'{}'); sys.stdout.flush(); input()"
            return await super().launch(replace(job, argv=("python", "-c", code)))

    result = await bench(engine=Impostor()).runner.check(harness("return 'x'"))
    assert result.status is RolloutStatus.HARNESS_ERROR
    assert "the first frame is no ready frame of version 1" in result.error


async def test_a_forged_check_is_refused(bench: MakeBench) -> None:
    frame = '{"type": "done", "methods": ["solve", "cheat"]}'
    tree = harness(f"import os, time\n{FORGE}forge({frame.encode()!r})\ntime.sleep(60)\nclass Harness: ...")
    assert "a done frame without methods" in (await bench().runner.check(tree)).error


async def test_surrogates_and_controls_never_reach_a_trajectory_or_an_error(bench: MakeBench) -> None:
    forged = forging(
        {**MODEL, "messages": [{"role": "user", "content": "a\ud800"}]},
        {"type": "failed", "message": "\ud800\x1b[2J\u202e", "traceback": "\udfff"},
    )
    outcome = await bench().run(forged)
    assert outcome.trajectory is not None
    text = outcome.trajectory.to_text()
    Trajectory.model_validate_json(text.encode())
    assert outcome.error == "\ufffd [2J"
    assert outcome.stderr == "\ufffd"


async def test_the_hosts_stream_cannot_be_read_into_a_jam(bench: MakeBench) -> None:
    # It asks for much and takes nothing: the host's writes jam, the time limit ends it.
    made = bench(model=gateway("y" * 100_000), limits=Limits(timeout_s=2))
    frames = [{**MODEL, "id": number} for number in range(20)]
    body = f"import signal\nos.dup2(os.open('/dev/null', os.O_RDONLY), 60)\n{forging(*frames)}"
    outcome = await made.run(body)
    assert outcome.status is RolloutStatus.HARNESS_ERROR
    assert outcome.seconds < 10


fields = st.dictionaries(
    st.sampled_from(["messages", "system", "max_tokens", "temperature", "stop", "tools", "schema", "prompt", "choices",
                     "command", "timeout_s", "odd"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "name", "id"]), inner, max_size=3),
    ),
)  # fmt: skip


@given(st.sampled_from(sorted(REQUEST_KINDS)), fields)
def test_any_fields_are_a_request_or_a_protocol_error(kind: str, frame: dict[str, Any]) -> None:
    try:
        request = parse_request(kind, frame)
    except ProtocolError:
        return
    assert isinstance(request, CompleteRequest | ChooseRequest | ShellRequest)


@given(st.text(st.characters(exclude_categories=()), max_size=2_000))
def test_one_line_is_one_short_visible_line(text: str) -> None:
    line = one_line(text)
    assert len(line) <= 500
    assert line.isprintable()
    assert line == line.strip()
    assert one_line(line) == line
