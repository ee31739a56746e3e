"""The three pipes of a sandbox, as asyncio protocols with bounds.

Standard output is read on demand (a caller that does not read stops the writer), standard error is always drained and
kept only up to a cap (a writer is never stopped), and writing waits for the reader.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import cast

_HIGH_WATER_BYTES = 256 * 1024


class OutputPipe(asyncio.Protocol):
    """What a process writes to its standard output; holds at most some 256 KiB that nobody has read yet."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._size_bytes = 0
        self._bounded = True
        self._paused = False
        self._news = asyncio.Event()
        self._transport: asyncio.ReadTransport | None = None
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = cast("asyncio.ReadTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        self._chunks.append(data)
        self._size_bytes += len(data)
        self._news.set()
        if self._bounded and not self._paused and self._size_bytes > _HIGH_WATER_BYTES and self._transport:
            self._paused = True
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Called by asyncio."""
        self.ended.set()
        self._news.set()

    async def read(self, size: int) -> bytes:
        """Return 1 to `size` bytes, or nothing at the end."""
        while not self._chunks:
            if self.ended.is_set():
                return b""
            self._news.clear()
            await self._news.wait()
        chunk = self._chunks.popleft()
        if len(chunk) > size:
            self._chunks.appendleft(chunk[size:])
            chunk = chunk[:size]
        self._size_bytes -= len(chunk)
        if self._paused and self._size_bytes <= _HIGH_WATER_BYTES // 2:
            self._resume()
        return chunk

    def close(self) -> None:
        """Stop reading, whoever still writes."""
        if self._transport is not None:
            self._transport.close()
        self.ended.set()
        self._news.set()

    def take_the_rest(self) -> None:
        """Read on without waiting for a caller: the writers are dead, so what is left fits into the pipe."""
        self._bounded = False
        if self._paused:
            self._resume()

    def _resume(self) -> None:
        self._paused = False
        if self._transport is not None and not self.ended.is_set():
            self._transport.resume_reading()


class CappedPipe(asyncio.Protocol):
    """What a process writes to its standard error: the first `cap_bytes` are kept, the rest is counted."""

    def __init__(self, cap_bytes: int) -> None:
        self._cap_bytes = cap_bytes
        self._kept = bytearray()
        self._dropped_bytes = 0
        self._transport: asyncio.BaseTransport | None = None
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        room = self._cap_bytes - len(self._kept)
        self._kept += data[:room]
        self._dropped_bytes += max(0, len(data) - room)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Called by asyncio."""
        self.ended.set()

    def close(self) -> None:
        """Stop reading, whoever still writes."""
        if self._transport is not None:
            self._transport.close()

    def text(self) -> str:
        """Return what was kept, and a last line which says how much was not."""
        text = self._kept.decode("utf-8", "replace")
        if not self._dropped_bytes:
            return text
        return f"{text}{'' if text.endswith(chr(10)) else chr(10)}… {self._dropped_bytes} bytes dropped"


class InputPipe(asyncio.BaseProtocol):
    """What a process reads from its standard input."""

    def __init__(self) -> None:
        self._room = asyncio.Event()
        self._room.set()
        self._closed = False
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = cast("asyncio.WriteTransport", transport)

    @property
    def attached(self) -> bool:
        """Whether asyncio has taken it over."""
        return self._transport is not None

    def pause_writing(self) -> None:
        """Called by asyncio."""
        self._room.clear()

    def resume_writing(self) -> None:
        """Called by asyncio."""
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Called by asyncio."""
        self._closed = True
        self._room.set()

    async def write(self, data: bytes) -> None:
        """Write all of `data`; returns when the pipe has room again.

        Raises:
            ConnectionError: The other end is closed.
        """
        if self._closed or self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the sandbox reads no more")
        self._transport.write(data)
        await asyncio.sleep(0)  # lets asyncio report a reader that is already gone
        await self._room.wait()
        if self._closed:
            raise ConnectionResetError("the sandbox reads no more")

    def abort(self) -> None:
        """Close it at once; what is not written yet is dropped."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.abort()
