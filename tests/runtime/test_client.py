from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from metaharness.runtime import ModelError, Unsupported
from metaharness.runtime.channel import MAX_OUTSTANDING, StreamChannel
from metaharness.runtime.client import HostAsyncModel, HostModel, HostShell
from metaharness.runtime.frames import FrameReader, encode

Answer = Callable[[dict[str, Any]], dict[str, Any]]


def echo(request: dict[str, Any]) -> dict[str, Any]:
    text = request["messages"][-1]["content"]
    usage = {"input_tokens": len(text), "output_tokens": 1, "cached_tokens": 0}
    return {"type": "reply", "text": text.upper(), "tool_calls": [], "stop_reason": "end", "usage": usage}


class Host:
    """The other end of a channel, in a thread: answers in turn, or holds answers back until it is told."""

    def __init__(self, answer: Answer, read_fd: int, write_fd: int, *, held: bool) -> None:
        self._answer, self._write_fd = answer, write_fd
        self._reader = FrameReader(partial(os.read, read_fd))
        self.requests: list[dict[str, Any]] = []
        self.released = threading.Event()
        if not held:
            self.released.set()
        self.most = 0
        self._open = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while (request := self._reader.next()) is not None:
            with self._lock:
                self.requests.append(request)
                self._open += 1
                self.most = max(self.most, self._open)
            threading.Thread(target=self._reply, args=(request,), daemon=True).start()

    def _reply(self, request: dict[str, Any]) -> None:
        self.released.wait()
        with self._lock:
            self._open -= 1
            os.write(self._write_fd, encode({**self._answer(request), "id": request["id"]}))


@contextmanager
def connected(answer: Answer = echo, *, held: bool = False) -> Iterator[tuple[StreamChannel, Host]]:
    to_host, from_channel = os.pipe()
    from_host, to_channel = os.pipe()
    ended = threading.Event()
    host = Host(answer, to_host, to_channel, held=held)
    channel = StreamChannel(from_host, from_channel, on_end=ended.set)
    channel.start()
    yield channel, host
    os.close(to_channel)
    assert ended.wait(5)
    for descriptor in (from_channel, from_host):
        os.close(descriptor)


def test_complete() -> None:
    with connected() as (channel, host):
        reply = HostModel(channel).complete("hi", system="s", max_tokens=3)
        assert (reply.text, reply.stop_reason, reply.usage.input_tokens) == ("HI", "end", 2)
        assert host.requests[0]["type"] == "model"
        assert host.requests[0]["system"] == "s"


def test_a_hundred_threads_share_a_model_and_at_most_64_calls_are_under_way() -> None:
    with connected(held=True) as (channel, host), ThreadPoolExecutor(100) as pool:
        model = HostModel(channel)
        replies = [pool.submit(model.complete, f"t{n}") for n in range(100)]
        until = time.monotonic() + 10
        while len(host.requests) < MAX_OUTSTANDING and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.05)
        assert len(host.requests) == MAX_OUTSTANDING
        host.released.set()
        assert [future.result(10).text for future in replies] == [f"T{n}" for n in range(100)]
        assert host.most <= MAX_OUTSTANDING


def test_the_async_model_gathers_and_may_give_up_waiting() -> None:
    async def many(model: HostAsyncModel, host: Host) -> list[str]:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(model.complete("late"), 0.05)
        host.released.set()
        return [reply.text for reply in await asyncio.gather(*(model.complete(f"t{n}") for n in range(100)))]

    with connected(held=True) as (channel, host):
        assert asyncio.run(many(HostAsyncModel(channel), host)) == [f"T{n}" for n in range(100)]


def test_choose_turns_null_into_minus_infinity() -> None:
    with connected(lambda request: {"type": "reply", "logprobs": [-1.5, None]}) as (channel, _):
        assert HostModel(channel).choose("p", ["a", "b"]) == [-1.5, -math.inf]


def test_tool_calls_can_be_passed_back() -> None:
    def calling(request: dict[str, Any]) -> dict[str, Any]:
        return {**echo(request), "tool_calls": [{"id": "1", "name": "add", "arguments": {"a": 1}}]}

    with connected(calling) as (channel, host):
        model = HostModel(channel)
        reply = model.complete("x", tools=[{"name": "add"}])
        assert reply.tool_calls[0].arguments == {"a": 1}
        model.complete([{"role": "assistant", "content": reply.text, "tool_calls": reply.tool_calls}])
        assert host.requests[1]["messages"][0]["tool_calls"] == [{"id": "1", "name": "add", "arguments": {"a": 1}}]


@pytest.mark.parametrize(("kind", "error"), [("unsupported", Unsupported), ("refused", ModelError)])
def test_errors_of_the_host_are_raised(kind: str, error: type[ModelError]) -> None:
    with connected(lambda request: {"type": "error", "kind": kind, "message": "no"}) as (channel, _):
        with pytest.raises(error, match="no") as caught:
            HostModel(channel).complete("x")
        assert type(caught.value) is error
        assert caught.value.kind == kind


def test_shell() -> None:
    with connected(lambda request: {"type": "reply", "output": request["command"], "exit_code": 3}) as (channel, _):
        result = HostShell(channel).run("ls")
        assert (result.output, result.exit_code) == ("ls", 3)


def test_wrong_arguments_and_too_much_never_leave_the_sandbox() -> None:
    with connected() as (channel, host):
        model = HostModel(channel)
        with pytest.raises(TypeError, match="messages must be a list"):
            model.complete(7)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="the request cannot be sent: a frame of"):
            model.complete("x" * 9_000_000)
        assert model.complete("still there").text == "STILL THERE"
        assert len(host.requests) == 1


def test_a_forked_process_cannot_garble_the_stream() -> None:
    with connected() as (channel, _):
        child = os.fork()
        if child == 0:
            try:
                HostModel(channel).complete("x")
            except ModelError as error:
                os._exit(7 if error.kind == "closed" else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
