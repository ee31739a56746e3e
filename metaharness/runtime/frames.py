"""Frames: how sandbox and host speak over one byte stream.

A frame is a 4-byte big-endian length and that many bytes of UTF-8 JSON, always an object. Both sides use this module:
standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import json
import re
import struct
from typing import Any, Awaitable, Callable, Dict, Iterator, Mapping, Optional

MAX_FRAME_BYTES = 8 * 1024 * 1024
MAX_FRAME_ITEMS = 500_000
"""Most commas and opening brackets in one frame: what a frame may cost in memory once it is decoded."""

READ_BYTES = 256 * 1024
PROTOCOL_VERSION = 1

_HEADER = struct.Struct(">I")
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class FrameError(ValueError):
    """Bytes that are no frame, or a message that cannot become one; the message says which rule is broken."""


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a message as one frame; lone surrogates in its texts are replaced.

    Raises:
        FrameError: It is not JSON (NaN and infinities are not), or too large.
    """
    try:
        text = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise FrameError(f"the message is not JSON: {error}") from error
    payload = valid_text(text).encode()
    _check_size(payload)
    return _HEADER.pack(len(payload)) + payload


def decode(payload: bytes) -> Dict[str, Any]:
    """Return the message of a frame's payload; lone surrogates in its texts are replaced.

    Raises:
        FrameError: The payload is too large, not UTF-8, not JSON, or not an object.
    """
    _check_size(payload)
    try:
        message = json.loads(payload.decode("utf-8"), parse_constant=_refuse_constant)
        # Only escapes can bring lone surrogates into valid UTF-8, so most frames need no second look.
        if _ESCAPED_SURROGATE.search(payload):
            message = valid_json(message)
    except UnicodeDecodeError as error:
        raise FrameError(f"the frame is not UTF-8: {error.reason} at byte {error.start}") from error
    except RecursionError as error:
        raise FrameError("the frame is not JSON that can be read: nested too deeply") from error
    except ValueError as error:
        raise FrameError(f"the frame is not JSON: {error}") from error
    if not isinstance(message, dict):
        raise FrameError(f"the frame is not an object but {type(message).__name__}")
    return message


def valid_text(text: str) -> str:
    """Return `text` with lone surrogates replaced by U+FFFD, so that it can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def valid_json(value: Any) -> Any:
    """Return a JSON value with `valid_text` applied to every key and text in it."""
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, list):
        return [valid_json(item) for item in value]
    if isinstance(value, dict):
        return {valid_text(key): valid_json(item) for key, item in value.items()}
    return value


class FrameDecoder:
    """Cuts a byte stream into messages, however it was cut on its way."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that has begun and not ended."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[Dict[str, Any]]:
        """Take bytes and yield the messages that are complete.

        The iterator must be used up before more is fed.

        Raises:
            FrameError: A frame announces more than `MAX_FRAME_BYTES`, or `decode` refuses it.
        """
        self._buffer += data
        start = 0
        try:
            while len(self._buffer) - start >= _HEADER.size:
                (length,) = _HEADER.unpack_from(self._buffer, start)
                if length > MAX_FRAME_BYTES:
                    raise FrameError(f"a frame of {length} bytes: at most {MAX_FRAME_BYTES} are allowed")
                end = start + _HEADER.size + length
                if len(self._buffer) < end:
                    return
                payload = bytes(memoryview(self._buffer)[start + _HEADER.size : end])
                start = end
                yield decode(payload)
        finally:
            del self._buffer[:start]

    def finish(self) -> None:
        """Say that the stream has ended.

        Raises:
            FrameError: It has ended inside a frame.
        """
        if self._buffer:
            raise FrameError(f"the stream ended inside a frame: {len(self._buffer)} bytes of it had come")


class FrameReader:
    """Reads messages one by one from a blocking source.

    Args:
        read: Returns 1 to n bytes, none at the end; for example `functools.partial(os.read, descriptor)`.
    """

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._decoder = FrameDecoder()
        self._ready: Iterator[Dict[str, Any]] = iter(())

    def next(self) -> Optional[Dict[str, Any]]:
        """Return the next message, or None at the end of the stream; messages before a broken frame come first.

        Raises:
            FrameError: The bytes are no frame, or the stream ended inside one.
        """
        while True:
            for message in self._ready:
                return message
            data = self._read(READ_BYTES)
            if not data:
                self._decoder.finish()
                return None
            self._ready = self._decoder.feed(data)


class AsyncFrameReader:
    """Reads messages one by one from an asyncio source.

    Args:
        read: Returns 1 to n bytes, none at the end; for example `StreamReader.read`.
    """

    def __init__(self, read: Callable[[int], Awaitable[bytes]]) -> None:
        self._read = read
        self._decoder = FrameDecoder()
        self._ready: Iterator[Dict[str, Any]] = iter(())

    async def next(self) -> Optional[Dict[str, Any]]:
        """As `FrameReader.next`."""
        while True:
            for message in self._ready:
                return message
            data = await self._read(READ_BYTES)
            if not data:
                self._decoder.finish()
                return None
            self._ready = self._decoder.feed(data)


def _check_size(payload: bytes) -> None:
    if len(payload) > MAX_FRAME_BYTES:
        raise FrameError(f"a frame of {len(payload)} bytes: at most {MAX_FRAME_BYTES} are allowed")
    if len(payload) > MAX_FRAME_ITEMS:
        items = payload.count(b",") + payload.count(b"[") + payload.count(b"{")
        if items > MAX_FRAME_ITEMS:
            raise FrameError(f"a frame with {items} commas and brackets: at most {MAX_FRAME_ITEMS} are allowed")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not allowed")
