"""llama.cpp's HTTP interface, as one worker of the server speaks it on its Unix socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metaharness.errors import ModelRefused, ModelUnavailable
from metaharness.models.local.connection import healthy
from metaharness.models.provider import one_line

if TYPE_CHECKING:
    import httpx2

# While a reply is awaited, the server is asked this often whether it lives, and has as long to say so: a reply may take
# minutes, a sign of life may not.
_LIFE_SIGN_S = 15.0
# Below the server's own 5 s, so that no request goes out on a connection that it is just closing.
_KEEPALIVE_S = 2.0
# Between texts that are tokenised in one request. Only its count matters, the order makes chance hits unlikely.
_SEPARATOR = (2, 0, 2, 1, 0, 2)


class ServerLost(ModelUnavailable):
    """The server is gone or does not answer; the next call starts another."""


class Worker:
    """One copy of the model. Used from one event loop.

    Args:
        socket: Its Unix socket.
        life_sign_s: Seconds between checks that it lives, while a reply is awaited; also their time limit.
    """

    def __init__(self, socket: Path, *, life_sign_s: float = _LIFE_SIGN_S) -> None:
        import httpx2

        self._socket = socket
        self._life_sign_s = life_sign_s
        self._client = httpx2.AsyncClient(
            transport=httpx2.AsyncHTTPTransport(
                uds=str(socket), limits=httpx2.Limits(keepalive_expiry=_KEEPALIVE_S, max_connections=None)
            ),
            base_url="http://localhost",
            # The caller limits the time, and the checks for life find a dead server.
            timeout=None,
            trust_env=False,
        )

    async def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Ask `/completion`; the caller gives a slot, and the prompt as text or tokens."""
        return await self._post("/completion", {"cache_prompt": True, "stream": False, **body})

    async def template(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Return chat messages as the text that the model expects."""
        reply = await self._post("/apply-template", {"messages": list(messages)})
        return str(reply["prompt"])

    async def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text by itself. Special tokens written out in a text are read as such."""
        content: list[str | int] = []
        for text in texts:
            content += [text, *_SEPARATOR]
        reply = await self._post("/tokenize", {"content": content, "add_special": True, "parse_special": True})
        found = _split(reply["tokens"])
        if len(found) != len(texts):
            # A text holds the separator itself.
            found = [
                (await self._post("/tokenize", {"content": text, "add_special": True, "parse_special": True}))["tokens"]
                for text in texts
            ]
        return found

    async def aclose(self) -> None:
        """Close its connections."""
        await self._client.aclose()

    async def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        import httpx2

        # A lone surrogate, which JSON can carry into a harness, has no UTF-8.
        content = json.dumps(body).encode()
        request = asyncio.ensure_future(
            self._client.post(path, content=content, headers={"content-type": "application/json"})
        )
        try:
            while not (await asyncio.wait({request}, timeout=self._life_sign_s))[0]:
                if not await asyncio.to_thread(healthy, self._socket, timeout_s=self._life_sign_s):
                    raise ServerLost("the local model's server does not answer")
            response = await request
        except httpx2.TransportError as error:
            raise ServerLost(f"the local model's server is gone ({type(error).__name__})") from error
        finally:
            # Also when the caller was cancelled: closing the connection ends the work on the other side.
            request.cancel()
        return _read(response)


def _read(response: httpx2.Response) -> dict[str, Any]:
    try:
        reply = response.json()
    except ValueError as error:
        raise ServerLost(f"the local model's server answered with no JSON (HTTP {response.status_code})") from error
    if response.is_success:
        return dict(reply)
    said = one_line(str(reply.get("error", {}).get("message", reply)))
    if 400 <= response.status_code < 500:
        raise ModelRefused(f"local model: {said}")
    raise ModelUnavailable(f"local model: HTTP {response.status_code}: {said}")


def _split(tokens: Sequence[int]) -> list[list[int]]:
    found: list[list[int]] = []
    start = at = 0
    while at < len(tokens):
        if tuple(tokens[at : at + len(_SEPARATOR)]) == _SEPARATOR:
            found.append(list(tokens[start:at]))
            start = at = at + len(_SEPARATOR)
        else:
            at += 1
    return found
