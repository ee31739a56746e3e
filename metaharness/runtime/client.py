"""The model and the shell, as a harness gets them, over any `Channel`.

In a sandbox the channel is the stream to the host (`channel.StreamChannel`). A harness that runs by itself gets the
same classes over a channel that asks a model directly. Standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import math
from queue import SimpleQueue
from typing import Any, Callable, Dict, List, Mapping, Optional, Protocol, Sequence

from .api import ModelError, Reply, ShellResult, ToolCall, Unsupported, Usage
from .requests import choose_body, complete_body, shell_body

Message = Dict[str, Any]
OnReply = Callable[[Message], None]


class Channel(Protocol):
    """Where requests go."""

    def submit(self, kind: str, body: Message, on_reply: OnReply) -> None:
        """Send a request and return; may be called from any thread.

        Args:
            kind: `model`, `choose` or `shell`.
            body: As `requests.complete_body`, `choose_body` or `shell_body` make it.
            on_reply: Called once, from any thread: with `{"type": "reply", …}` (for `model`: text, tool_calls,
                stop_reason, usage; for `choose`: logprobs, null for minus infinity; for `shell`: output, exit_code),
                or with `{"type": "error", "kind", "message"}`. Must not block.

        Raises:
            ValueError: The request is too large to be sent.
            ModelError: The channel is closed.
        """
        ...


class HostModel:
    """`Model` over a channel: blocking, safe to call from several threads."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def complete(
        self,
        messages: "Sequence[Mapping[str, Any]] | str",
        *,
        system: Optional[str] = None,
        max_tokens: int = 256,
        temperature: Optional[float] = None,
        stop: Sequence[str] = (),
        tools: Sequence[Mapping[str, Any]] = (),
        schema: Optional[Mapping[str, Any]] = None,
    ) -> Reply:
        """As `Model.complete`."""
        body = complete_body(
            messages,
            system=system,
            max_tokens=max_tokens,
            temperature=temperature,
            stop=stop,
            tools=tools,
            schema=schema,
        )
        return _reply(_ask(self._channel, "model", body))

    def choose(self, prompt: str, choices: Sequence[str]) -> List[float]:
        """As `Model.choose`."""
        return _logprobs(_ask(self._channel, "choose", choose_body(prompt, choices)))


class HostAsyncModel:
    """`AsyncModel` over a channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def complete(
        self,
        messages: "Sequence[Mapping[str, Any]] | str",
        *,
        system: Optional[str] = None,
        max_tokens: int = 256,
        temperature: Optional[float] = None,
        stop: Sequence[str] = (),
        tools: Sequence[Mapping[str, Any]] = (),
        schema: Optional[Mapping[str, Any]] = None,
    ) -> Reply:
        """As `Model.complete`."""
        body = complete_body(
            messages,
            system=system,
            max_tokens=max_tokens,
            temperature=temperature,
            stop=stop,
            tools=tools,
            schema=schema,
        )
        return _reply(await _ask_async(self._channel, "model", body))

    async def choose(self, prompt: str, choices: Sequence[str]) -> List[float]:
        """As `Model.choose`."""
        return _logprobs(await _ask_async(self._channel, "choose", choose_body(prompt, choices)))


class HostShell:
    """`Shell` over a channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def run(self, command: str, timeout_s: float = 60.0) -> ShellResult:
        """As `Shell.run`."""
        reply = _ask(self._channel, "shell", shell_body(command, timeout_s))
        return ShellResult(output=reply["output"], exit_code=reply["exit_code"])


def _ask(channel: Channel, kind: str, body: Message) -> Message:
    box: "SimpleQueue[Message]" = SimpleQueue()
    channel.submit(kind, body, box.put)
    return _checked(box.get())


async def _ask_async(channel: Channel, kind: str, body: Message) -> Message:
    import asyncio  # not at the top: most harnesses are not async, and start the quicker for it

    loop = asyncio.get_running_loop()
    future: "asyncio.Future[Message]" = loop.create_future()

    def settle(message: Message) -> None:
        if not future.done():  # the harness may have given up waiting
            future.set_result(message)

    def on_reply(message: Message) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, message)

    channel.submit(kind, body, on_reply)
    return _checked(await future)


def _checked(message: Message) -> Message:
    if message["type"] == "error":
        if message["kind"] == "unsupported":
            raise Unsupported(message["message"])
        raise ModelError(message["message"], message["kind"])
    return message


def _reply(message: Message) -> Reply:
    usage = message["usage"]
    return Reply(
        text=message["text"],
        tool_calls=[ToolCall(call["id"], call["name"], call["arguments"]) for call in message["tool_calls"]],
        stop_reason=message["stop_reason"],
        usage=Usage(usage["input_tokens"], usage["output_tokens"], usage["cached_tokens"]),
    )


def _logprobs(message: Message) -> List[float]:
    return [-math.inf if value is None else value for value in message["logprobs"]]
