"""`anthropic/<model>`: Claude models through the Messages API and the `anthropic` SDK."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from metaharness.budget import Usage
from metaharness.errors import MetaharnessError, ModelUnavailable, UnsupportedRequest
from metaharness.exchange import ChooseRequest, CompleteRequest, ModelInfo, ModelReply
from metaharness.models.prices import Price, price_of
from metaharness.models.provider import (
    ApiKey,
    cut_at_stop,
    one_line,
    read_key,
    refuse_unused_temperature,
    shown_url,
    status_error,
    tool_arguments,
)
from metaharness.spec import ModelSpec

if TYPE_CHECKING:
    from anthropic.types import Message

_STOP_REASONS = {
    "end_turn": "end",
    "pause_turn": "end",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "refusal": "refusal",
}
_CACHE = {"type": "ephemeral"}
_REMEMBERED_TURNS = 1024
_HIDDEN_TOKENS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traits:
    """How a model differs from the plain Messages API.

    Thinking is the harness's business here: what thinks unasked is told not to, or as little as it can, so that
    `max_tokens` bounds what a harness sees.

    Attributes:
        samples: Whether it takes a temperature.
        thinking: Value of `thinking` to send, or None.
        effort: Value of `output_config.effort` to send, or None.
        hidden_tokens: Room on top of `max_tokens` for thinking that cannot be turned off.
    """

    samples: bool = False
    thinking: str | None = None
    effort: str | None = None
    hidden_tokens: int = 0


_PLAIN = _Traits(samples=True)
_ALWAYS_THINKS = _Traits(effort="low", hidden_tokens=_HIDDEN_TOKENS)
# Source: platform.claude.com/docs/en/models, migration guides of each model, read on 2026-11-30.
_TRAITS: Mapping[str, _Traits] = {
    "claude-opus-4-7": _Traits(),
    "claude-opus-4-8": _Traits(),
    "claude-opus-5": _Traits(thinking="disabled"),
    "claude-sonnet-5": _Traits(thinking="disabled"),
    "claude-haiku-5-5": _Traits(thinking="disabled"),
    "claude-sonnet-5-5": _Traits(thinking="between_tools"),
    "claude-opus-5-5": _ALWAYS_THINKS,
    "claude-fable-5": _ALWAYS_THINKS,
    "claude-fable-5-1": _ALWAYS_THINKS,
    "claude-fable-5-2": _ALWAYS_THINKS,
    "claude-mythos-5": _ALWAYS_THINKS,
    "claude-mythos-5-1": _ALWAYS_THINKS,
    "claude-mythos-5-2": _ALWAYS_THINKS,
}
_FIRST_GENERATIONS = re.compile(r"claude-(3|instant|(opus|sonnet|haiku)-4(-[0-6])?$)")
# A Claude model that this table does not know yet: send nothing that a recent one rejects, and leave room to think.
_UNKNOWN_CLAUDE = _Traits(hidden_tokens=_HIDDEN_TOKENS)


def _traits_of(model: str) -> _Traits:
    # Clouds and proxies put a vendor before the name, a date or a version behind it.
    found = re.search(r"claude-.*", model)
    name = re.sub(r"([@-]\d{8})?(-v\d+(:\d+)?)?$", "", found.group() if found else model)
    if name in _TRAITS:
        return _TRAITS[name]
    if name.startswith("claude-") and not _FIRST_GENERATIONS.match(name):
        return _UNKNOWN_CLAUDE
    return _PLAIN


def create(spec: ModelSpec) -> AnthropicBackend:
    """Return the backend for `anthropic/<model>`; the key comes from ANTHROPIC_API_KEY or `model.api_key_env`."""
    return AnthropicBackend(spec, key=read_key(spec, default_variable="ANTHROPIC_API_KEY"), price=price_of(spec))


class AnthropicBackend:
    """A Claude model. The SDK's own retries are off: the gateway retries."""

    def __init__(self, spec: ModelSpec, *, key: ApiKey, price: Price) -> None:
        import anthropic

        self._model = spec.ref.partition("/")[2]
        self._traits = _traits_of(self._model)
        if not self._traits.samples:
            refuse_unused_temperature(spec, self._model)
        self._key = key
        self._price = price
        self._client = anthropic.AsyncAnthropic(
            api_key=key.value, base_url=spec.base_url, max_retries=0, timeout=spec.timeout_s
        )
        self._base_url = shown_url(str(self._client.base_url))
        self._turns: OrderedDict[tuple[str, ...], list[dict[str, Any]]] = OrderedDict()
        self._info = ModelInfo(
            ref=spec.ref,
            identity={
                "base_url": self._base_url,
                "temperature": "as asked" if self._traits.samples else "the provider's",
                "thinking": self._traits.thinking,
                "effort": self._traits.effort,
                "hidden_tokens": self._traits.hidden_tokens,
            },
            can_schema=True,
            can_tools=True,
            hidden_tokens=self._traits.hidden_tokens,
        )

    @property
    def info(self) -> ModelInfo:
        """What it is and can do."""
        return self._info

    async def complete(self, request: CompleteRequest, *, seed: int) -> ModelReply:  # noqa: ARG002
        """See `ModelBackend`; the API takes no seed."""
        import anthropic

        arguments = self._arguments(request)
        try:
            message: Any = await self._client.messages.create(**arguments)
        except (anthropic.AnthropicError, ValueError) as error:  # ValueError: the reply is no JSON
            raise self._translated(error) from error
        try:
            return self._reply(message, request)
        except (AttributeError, TypeError) as error:
            raise ModelUnavailable(f"{self._info.ref}: {self._base_url} sent no Messages API reply") from error

    async def choose(self, request: ChooseRequest) -> ModelReply:
        """Refuse: the API gives no log-probabilities."""
        raise UnsupportedRequest(f"{self._info.ref} gives no log-probabilities of {len(request.choices)} choices")

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _arguments(self, request: CompleteRequest) -> dict[str, Any]:
        messages = self._messages(request.messages)
        arguments: dict[str, Any] = {
            "model": self._model,
            "max_tokens": request.max_tokens + self._traits.hidden_tokens,
            "messages": messages,
        }
        # What is fixed comes first (tools, system) and is shared by all rollouts of a harness: cache it. A conversation
        # with tools grows at its end and is sent again with each turn: cache all of it.
        if request.system:
            arguments["system"] = [{"type": "text", "text": request.system, "cache_control": _CACHE}]
        if request.tools:
            arguments["tools"] = [
                {
                    "name": tool["name"],
                    "description": tool.get("description", ""),
                    "input_schema": dict(tool.get("parameters") or {"type": "object", "properties": {}}),
                }
                for tool in request.tools
            ]
            messages[-1]["content"][-1] = {**messages[-1]["content"][-1], "cache_control": _CACHE}
        sent_stops = [mark for mark in request.stop if mark.strip()]  # the API rejects white space
        if sent_stops:
            arguments["stop_sequences"] = sent_stops
        # These travel in the body, so that any release of the SDK passes them on, whatever arguments it knows.
        body: dict[str, Any] = {}
        output: dict[str, Any] = {}
        if self._traits.samples and request.temperature is not None:
            body["temperature"] = request.temperature
        if self._traits.thinking is not None:
            body["thinking"] = {"type": self._traits.thinking}
        if self._traits.effort is not None:
            output["effort"] = self._traits.effort
        if request.schema is not None:
            output["format"] = {"type": "json_schema", "schema": self._schema(request.schema)}
        if output:
            body["output_config"] = output
        if body:
            arguments["extra_body"] = body
        return arguments

    def _messages(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return messages as content blocks; results of parallel tool calls belong into one user message."""
        found: list[dict[str, Any]] = []
        for message in messages:
            role = message["role"]
            if role == "tool":
                block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
                previous = found[-1]["content"] if found and found[-1]["role"] == "user" else None
                if previous is not None and previous[-1]["type"] == "tool_result":
                    previous.append(block)
                else:
                    found.append({"role": "user", "content": [block]})
            elif role == "assistant" and message.get("tool_calls"):
                found.append({"role": role, "content": self._tool_turn(message)})
            else:
                found.append({"role": role, "content": [{"type": "text", "text": message["content"]}]})
        return found

    def _tool_turn(self, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return an assistant turn with tool calls: as the model wrote it, thinking included, where that is known."""
        calls = message["tool_calls"]
        written = self._turns.get(tuple(call["id"] for call in calls))
        if written is not None and message["content"] == "".join(b["text"] for b in written if b["type"] == "text"):
            return [dict(block) for block in written]
        text = [{"type": "text", "text": message["content"]}] if message["content"] else []
        return [
            *text,
            *(
                {"type": "tool_use", "id": call["id"], "name": call["name"], "input": dict(call["arguments"])}
                for call in calls
            ),
        ]

    def _schema(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        from anthropic import transform_schema

        try:
            return transform_schema(_without_type_lists(dict(schema)))
        except (ValueError, TypeError, AttributeError, AssertionError) as error:
            raise UnsupportedRequest(f"{self._info.ref} cannot hold a reply to this schema: {error}") from error

    def _reply(self, message: Message, request: CompleteRequest) -> ModelReply:
        texts = [block.text for block in message.content if block.type == "text"]
        uses = [block for block in message.content if block.type == "tool_use"]
        if uses and any("thinking" in block.type for block in message.content):
            self._turns[tuple(use.id for use in uses)] = [
                block.model_dump(mode="json", exclude_unset=True) for block in message.content
            ]
            while len(self._turns) > _REMEMBERED_TURNS:
                self._turns.popitem(last=False)
        text, cut = cut_at_stop("".join(texts), [mark for mark in request.stop if not mark.strip()])
        return ModelReply(
            text=text,
            tool_calls=tuple({"id": use.id, "name": use.name, "arguments": tool_arguments(use.input)} for use in uses),
            stop_reason="stop" if cut else _STOP_REASONS.get(message.stop_reason or "", "end"),
            usage=self._usage(message),
        )

    def _usage(self, message: Message) -> Usage:
        used = message.usage
        read, written = used.cache_read_input_tokens or 0, used.cache_creation_input_tokens or 0
        input_tokens = used.input_tokens + read + written
        return Usage(
            model_calls=1,
            input_tokens=input_tokens,
            output_tokens=used.output_tokens,
            cached_tokens=read,
            cost_usd=self._price.cost_usd(
                input_tokens=input_tokens,
                output_tokens=used.output_tokens,
                cached_tokens=read,
                cache_write_tokens=written,
            ),
        )

    def _translated(self, error: Exception) -> MetaharnessError:
        import anthropic

        if isinstance(error, anthropic.APIStatusError):
            detail = error.body.get("error") if isinstance(error.body, Mapping) else None
            kind = detail.get("type") if isinstance(detail, Mapping) else None
            said = detail.get("message") if isinstance(detail, Mapping) else None
            return status_error(
                ref=self._info.ref,
                status=error.status_code,
                message=str(said or error.message),
                code=str(kind or ""),
                headers=error.response.headers,
                key=self._key,
                base_url=self._base_url,
            )
        return ModelUnavailable(f"{self._info.ref}: {one_line(self._key.scrub(str(error)))} ({self._base_url})")


def _without_type_lists(schema: Any) -> Any:
    """Return a schema with `"type": [a, b]` written as `anyOf`, which structured outputs understand."""
    if isinstance(schema, list | tuple):
        return [_without_type_lists(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {name: value if name in ("enum", "const") else _without_type_lists(value) for name, value in schema.items()}
    types = schema.get("type")
    if not isinstance(types, list | tuple) or "enum" in schema or "const" in schema:
        return found
    shared = {name: found[name] for name in ("description", "title") if name in found}
    rest = {name: value for name, value in found.items() if name not in ("type", "description", "title")}
    return {**shared, "anyOf": [{"type": kind, **(rest if kind != "null" else {})} for kind in types]}
