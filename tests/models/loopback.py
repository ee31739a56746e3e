"""A loopback HTTP server that answers as it is told, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Answer:
    """What to send: status, JSON body (or raw bytes), headers. `hang_s` waits first; `drop` closes without a word."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    hang_s: float = 0.0
    drop: bool = False


@dataclass
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Loopback:
    def __init__(self, answers: Iterable[Answer]) -> None:
        self.answers = list(answers)
        self.asked: list[Asked] = []
        self.port = 0
        self.open_connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open_connections += 1
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open_connections -= 1
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        first = await reader.readline()
        if not first:
            return False
        method, path, _ = first.decode().split(" ", 2)
        headers: dict[str, str] = {}
        while (line := (await reader.readline()).decode().strip()) != "":
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        data = await reader.readexactly(int(headers.get("content-length", "0")))
        self.asked.append(Asked(method, path, headers, json.loads(data) if data else None))
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if answer.hang_s:
            await asyncio.sleep(answer.hang_s)
        if answer.drop:
            return False
        raw = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        sent = {"content-type": "application/json", **answer.headers, "content-length": str(len(raw))}
        head = f"HTTP/1.1 {answer.status} X\r\n" + "".join(f"{n}: {v}\r\n" for n, v in sent.items()) + "\r\n"
        writer.write(head.encode() + raw)
        await writer.drain()
        return True


@asynccontextmanager
async def loopback(*answers: Answer) -> AsyncIterator[Loopback]:
    """Serve `answers` in order, the last one for ever."""
    server = Loopback(answers)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(server.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await listener.wait_closed()
