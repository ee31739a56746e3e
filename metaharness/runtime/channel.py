"""The stream to the host, seen from inside the sandbox: requests out, replies back, orders for the worker.

Standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import functools
import os
import threading
from collections import deque
from queue import SimpleQueue
from typing import Any, Callable, Deque, Dict, Mapping, Tuple

from .api import ModelError
from .client import Message, OnReply
from .frames import FrameError, FrameReader, encode

MAX_OUTSTANDING = 64
"""Most requests that the host holds at once; further ones wait here for their turn."""


class StreamChannel:
    """A `Channel` over two descriptors.

    Args:
        read_fd: Where the host's frames come from.
        write_fd: Where frames to the host go.
        on_end: Called in the reading thread when the host has closed the stream or broken its rules.
    """

    def __init__(self, read_fd: int, write_fd: int, on_end: Callable[[], None]) -> None:
        self._write_fd = write_fd
        self._on_end = on_end
        self._reader = FrameReader(functools.partial(os.read, read_fd))
        self._lock = threading.Lock()
        self._pending: Dict[int, OnReply] = {}
        self._waiting: Deque[Tuple[int, bytes, OnReply]] = deque()
        self._next_id = 0
        self._owner = os.getpid()
        self.orders: "SimpleQueue[Message]" = SimpleQueue()
        """What the host sends besides replies, in order."""

    def start(self) -> None:
        """Start the thread which reads the stream."""
        threading.Thread(target=self._read_all, name="metaharness-stream", daemon=True).start()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a frame that is no request.

        Raises:
            FrameError: It is too large.
        """
        frame = encode(message)
        with self._lock:
            self._write(frame)

    def submit(self, kind: str, body: Message, on_reply: OnReply) -> None:
        """As `client.Channel.submit`; at most `MAX_OUTSTANDING` are under way, the others wait without blocking."""
        if os.getpid() != self._owner:
            raise ModelError("only the process that the harness was started in can speak to the host", "closed")
        with self._lock:
            number = self._next_id
            self._next_id += 1
        try:
            frame = encode({"type": kind, "id": number, **body})
        except FrameError as error:
            raise ValueError(f"the request cannot be sent: {error}") from error
        with self._lock:
            if len(self._pending) < MAX_OUTSTANDING:
                self._pending[number] = on_reply
                self._write(frame)
            else:
                self._waiting.append((number, frame, on_reply))

    def _write(self, frame: bytes) -> None:
        view = memoryview(frame)
        while view:
            view = view[os.write(self._write_fd, view) :]

    def _read_all(self) -> None:
        try:
            while True:
                message = self._reader.next()
                if message is None:
                    return
                if message.get("type") in ("reply", "error"):
                    self._settle(message)
                else:
                    self.orders.put(message)
        finally:
            self._on_end()

    def _settle(self, message: Message) -> None:
        with self._lock:
            on_reply = self._pending.pop(message["id"], None)
            if on_reply is None:
                return  # the reply to a request that harness code wrote past this channel
            if self._waiting:
                number, frame, waiting = self._waiting.popleft()
                self._pending[number] = waiting
                self._write(frame)
        on_reply(message)
