"""What a harness may ask of the host: parsed, checked, answered, counted."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from metaharness.budget import Reservation, Usage
from metaharness.errors import InfraError, MetaharnessError, ModelRefused, ProtocolError, UnsupportedRequest
from metaharness.exchange import ChooseRequest, CompleteRequest, ModelInfo, ModelReply
from metaharness.models.gateway import CallRecord
from metaharness.protocols import EnvironmentSession, ModelPort
from metaharness.rollout.recorder import Recorder
from metaharness.runtime.frames import valid_text
from metaharness.runtime.requests import choose_body, complete_body, shell_body

MAX_SHELL_OUTPUT_CHARS = 256 * 1024


class MeteredPort(ModelPort, Protocol):
    """The model as one rollout sees it, and what that has cost."""

    @property
    def usage(self) -> Usage:
        """What its calls have cost so far."""
        ...


class Gateway(Protocol):
    """What rollouts need of the host's way to the model; `models.gateway.ModelGateway` is one."""

    @property
    def info(self) -> ModelInfo:
        """What the model is and can do."""
        ...

    def port(
        self,
        *,
        scope: str,
        attempt: int,
        record: Callable[[CallRecord], None] | None = None,
        fund: Reservation | None = None,
    ) -> MeteredPort:
        """Return the model as one rollout sees it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellRequest:
    """Run a command in the task's container."""

    command: str
    timeout_s: float


HarnessRequest = CompleteRequest | ChooseRequest | ShellRequest

_FIELDS = {
    "model": frozenset({"messages", "system", "max_tokens", "temperature", "stop", "tools", "schema"}),
    "choose": frozenset({"prompt", "choices"}),
    "shell": frozenset({"command", "timeout_s"}),
}
REQUEST_KINDS = frozenset(_FIELDS)


def parse_request(kind: str, fields: Mapping[str, Any]) -> HarnessRequest:
    """Return the request of a frame, every field checked as if a harness could not have been stopped from forging it.

    Args:
        kind: One of `REQUEST_KINDS`.
        fields: The frame without `type` and `id`.

    Raises:
        ProtocolError: A field is absent, unknown, or has a wrong shape or range.
    """
    if fields.keys() != _FIELDS[kind]:
        odd = sorted(fields.keys() ^ _FIELDS[kind])[0]
        raise ProtocolError(f"a {kind} frame with {odd!r:.80} {'too much' if odd in fields else 'missing'}")
    try:
        if kind == "choose":
            body = choose_body(**fields)
            return ChooseRequest(prompt=body["prompt"], choices=tuple(body["choices"]))
        if kind == "shell":
            return ShellRequest(**shell_body(**fields))
        body = complete_body(**fields)
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"a malformed {kind} frame: {error}") from error
    return CompleteRequest(
        messages=tuple(body["messages"]),
        system=body["system"],
        max_tokens=body["max_tokens"],
        temperature=body["temperature"],
        stop=tuple(body["stop"]),
        tools=tuple(body["tools"]),
        schema=body["schema"],
    )


class Calls:
    """Answers the requests of one sandbox.

    Args:
        port: The model; None where a harness must not ask it.
        session: Where the shell is; None without one.
        recorder: Receives shell commands (the gateway records model calls itself).
    """

    def __init__(
        self, *, port: MeteredPort | None, session: EnvironmentSession | None = None, recorder: Recorder | None = None
    ) -> None:
        self._port = port
        self._session = session
        self._recorder = recorder
        self._under_way = 0
        self._busy_since_s = 0.0
        self._waited_s = 0.0

    @property
    def waited_s(self) -> float:
        """Seconds so far in which at least one request was being answered."""
        return self._waited_s + (asyncio.get_running_loop().time() - self._busy_since_s if self._under_way else 0.0)

    async def answer(self, request: HarnessRequest) -> dict[str, Any]:
        """Return the `reply` or `error` frame for a request, without its id.

        Raises:
            InfraError: The rollout cannot go on; not the harness's fault.
            BudgetExhausted: The budget ends the rollout.
            UserError: No call can succeed.
        """
        now_s = asyncio.get_running_loop().time
        if not self._under_way:
            self._busy_since_s = now_s()
        self._under_way += 1
        try:
            return await self._answer(request)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._waited_s += now_s() - self._busy_since_s

    async def _answer(self, request: HarnessRequest) -> dict[str, Any]:
        try:
            if isinstance(request, ShellRequest):
                return await self._shell(request)
            if self._port is None:
                return _error("closed", "the model cannot be asked while a harness is constructed: ask it in solve")
            if isinstance(request, ChooseRequest):
                return _logprobs(await self._port.choose(request))
            return _reply(await self._port.complete(request))
        except UnsupportedRequest as error:
            return _error("unsupported", str(error))
        except ModelRefused as error:
            return _error("refused", str(error))

    async def _shell(self, request: ShellRequest) -> dict[str, Any]:
        if self._session is None:
            raise UnsupportedRequest("this environment has no shell")
        done = self._recorder.shell(request.command, request.timeout_s) if self._recorder else None
        try:
            output, exit_code = await self._session.shell(request.command, request.timeout_s)
        except MetaharnessError:
            raise
        except Exception as error:  # an environment may be anyone's plug-in
            raise InfraError(f"the environment's shell failed: {type(error).__name__}: {error}") from error
        if len(output) > MAX_SHELL_OUTPUT_CHARS:
            half = MAX_SHELL_OUTPUT_CHARS // 2
            left_out = len(output) - 2 * half
            output = f"{output[:half]}\n[{left_out} characters left out]\n{output[-half:]}"
        output = valid_text(output)
        if done is not None:
            done(output, exit_code)
        return {"type": "reply", "output": output, "exit_code": exit_code}


def _reply(reply: ModelReply) -> dict[str, Any]:
    return {
        "type": "reply",
        "text": reply.text,
        "tool_calls": [
            {"id": call["id"], "name": call["name"], "arguments": call["arguments"]} for call in reply.tool_calls
        ],
        "stop_reason": reply.stop_reason,
        "usage": {
            "input_tokens": reply.usage.input_tokens,
            "output_tokens": reply.usage.output_tokens,
            "cached_tokens": reply.usage.cached_tokens,
        },
    }


def _logprobs(reply: ModelReply) -> dict[str, Any]:
    values = reply.logprobs or ()
    return {"type": "reply", "logprobs": [value if math.isfinite(value) else None for value in values]}


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "kind": kind, "message": message}
