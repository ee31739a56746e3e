"""The host's side of the stream: orders out, requests answered, nothing that comes in believed."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from metaharness.errors import BudgetExhausted, InfraError, ProtocolError, UserError
from metaharness.protocols import SandboxProcess
from metaharness.rollout.calls import REQUEST_KINDS, Calls, HarnessRequest, parse_request
from metaharness.runtime.channel import MAX_OUTSTANDING
from metaharness.runtime.contract import MAX_STATE_BYTES
from metaharness.runtime.frames import PROTOCOL_VERSION, AsyncFrameReader, FrameError, encode

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamBounds:
    """What a sandbox may send for one order (a solve, a fit), beyond the bound of each frame.

    Attributes:
        max_frames: Frames.
        max_bytes: Bytes.
    """

    max_frames: int = 10_000
    max_bytes: int = 256 * 1024 * 1024


class HarnessFailed(Exception):
    """The harness raised or broke its contract; `traceback` is its own account."""

    def __init__(self, message: str, traceback: str) -> None:
        super().__init__(message)
        self.traceback = traceback


class StreamEnded(Exception):
    """The sandbox closed the stream before it was done."""


class Conversation:
    """One sandbox's stream, from `ready` to the last `done`. Made by `converse`."""

    def __init__(self, process: SandboxProcess, calls: Calls, bounds: StreamBounds, group: asyncio.TaskGroup) -> None:
        self._process = process
        self._calls = calls
        self._bounds = bounds
        self._group = group
        self._reader = AsyncFrameReader(self._read)
        self._writing = asyncio.Lock()
        self._outstanding: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._frames = 0
        self._bytes = 0
        self._ended = False

    async def ready(self) -> str:
        """Wait until the worker is there; return the directory in which it has the harness.

        Raises:
            ProtocolError: Something else came.
        """
        frame = await self._next()
        if frame.get("type") != "ready" or frame.get("version") != PROTOCOL_VERSION:
            raise ProtocolError(f"the first frame is no ready frame of version {PROTOCOL_VERSION}")
        return _text(frame.get("directory"))

    async def order(
        self, start: Mapping[str, Any], parts: Iterable[Mapping[str, Any]] = ()
    ) -> tuple[dict[str, Any], bytes]:
        """Give an order; return the `done` frame and the state that came before it.

        Args:
            start: The `start` frame.
            parts: Frames that go before it.

        Raises:
            HarnessFailed: The harness failed.
            ProtocolError: The sandbox broke the rules of the stream.
            StreamEnded: It ended.
        """
        self._frames = self._bytes = 0
        # Sent while we read: a sandbox that waits for its own frames to be taken reads nothing.
        self._spawn(self._send_all([*parts, start]))
        state = bytearray()
        while True:
            frame = await self._next()
            kind = frame.pop("type", None)
            if not isinstance(kind, str):
                raise ProtocolError("a frame without a type")
            if kind in REQUEST_KINDS:
                self._take(kind, frame)
            elif kind == "state" and start["mode"] == "fit":
                state += _state_part(frame, room_bytes=MAX_STATE_BYTES - len(state))
            elif kind == "done":
                return frame, bytes(state)
            elif kind == "failed":
                raise HarnessFailed(_text(frame.get("message")), _text(frame.get("traceback")))
            else:
                raise ProtocolError(f"a frame of unknown type {kind!r:.80}")

    def end_calls(self) -> None:
        """Cancel what is still being answered."""
        for task in self._tasks:
            task.cancel()

    def _take(self, kind: str, frame: dict[str, Any]) -> None:
        number = frame.pop("id", None)
        if type(number) is not int or not 0 <= number < 2**53:
            raise ProtocolError(f"a {kind} frame without a whole number as id")
        if number in self._outstanding:
            raise ProtocolError(f"a {kind} frame with the id {number} of a request that is not answered yet")
        if len(self._outstanding) >= MAX_OUTSTANDING:
            raise ProtocolError(f"more than {MAX_OUTSTANDING} requests at once")
        request = parse_request(kind, frame)
        self._outstanding.add(number)
        self._spawn(self._answer(number, request))

    async def _answer(self, number: int, request: HarnessRequest) -> None:
        answer = await self._calls.answer(request)
        self._outstanding.discard(number)  # before it is told, so that it may ask again at once
        await self._send({**answer, "id": number})

    async def _send_all(self, frames: Iterable[Mapping[str, Any]]) -> None:
        for frame in frames:
            await self._send(frame)

    async def _send(self, frame: Mapping[str, Any]) -> None:
        try:
            data = encode(frame)
        except FrameError as error:
            raise InfraError(f"what the sandbox was to be told cannot be sent: {error}") from error
        try:
            async with self._writing:
                await self._process.write(data)
        except ConnectionError:
            # It reads no more. Whoever reads its output learns how it ended, and says so better.
            return

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(self, size: int) -> bytes:
        data = await self._process.read(size)
        self._ended = not data
        self._bytes += len(data)
        if self._bytes > self._bounds.max_bytes:
            raise ProtocolError(f"more than {self._bounds.max_bytes} bytes")
        return data

    async def _next(self) -> dict[str, Any]:
        try:
            frame = await self._reader.next()
        except FrameError as error:
            if self._ended:
                raise StreamEnded from error
            raise ProtocolError(str(error)) from error
        if frame is None:
            raise StreamEnded
        self._frames += 1
        if self._frames > self._bounds.max_frames:
            raise ProtocolError(f"more than {self._bounds.max_frames} frames")
        return frame


async def converse(
    process: SandboxProcess, calls: Calls, bounds: StreamBounds, script: Callable[[Conversation], Awaitable[T]]
) -> T:
    """Run `script` over the stream of a sandbox; at its end the sandbox is killed, and what it still asks cancelled.

    Raises:
        InfraError, BudgetExhausted, UserError: A request met that; it counts before anything that the harness did.
        HarnessFailed, ProtocolError, StreamEnded: As `Conversation.order`.
    """
    try:
        async with asyncio.TaskGroup() as group:
            conversation = Conversation(process, calls, bounds, group)
            try:
                result = await script(conversation)
                await process.kill()
                return result
            finally:
                conversation.end_calls()
    except BaseExceptionGroup as errors:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError from errors
        raise _gravest(errors) from errors


def _gravest(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    order = (UserError, InfraError, BudgetExhausted)
    flat = list(errors.exceptions)
    known = (HarnessFailed, ProtocolError, StreamEnded, *order)
    for error in flat:
        if not isinstance(error, known):
            return error  # a defect of ours is not to be hidden behind what the harness did
    for kind in order:
        for error in flat:
            if isinstance(error, kind):
                return error
    return flat[0]


def _text(value: Any) -> str:
    # Not str(value): what a harness nests just deep enough to be read as JSON may be too deep to be shown.
    return value if isinstance(value, str) else ""


def _state_part(frame: Mapping[str, Any], *, room_bytes: int) -> bytes:
    data = frame.get("data")
    if not isinstance(data, str):
        raise ProtocolError("a state frame without data")
    try:
        part = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProtocolError(f"a state frame that is not base64: {error}") from error
    if len(part) > room_bytes:
        raise ProtocolError(f"a state of more than {MAX_STATE_BYTES} bytes")
    return part
