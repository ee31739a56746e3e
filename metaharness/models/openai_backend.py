"""`openai/<model>`: chat completions of OpenAI, or of any compatible `base_url`, through the `openai` SDK."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from metaharness.budget import Usage
from metaharness.errors import MetaharnessError, ModelUnavailable, UnsupportedRequest
from metaharness.exchange import ChooseRequest, CompleteRequest, ModelInfo, ModelReply
from metaharness.models.bounds import most_input_tokens, size_bytes
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
from metaharness.models.strict_schema import strict_schema
from metaharness.spec import ModelSpec

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion

_STOP_REASONS = {
    "stop": "end",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "refusal",
}
_SENT_STOPS = 4
_HIDDEN_TOKENS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traits:
    """How a model of OpenAI's own differs from the plain chat completions API.

    Reasoning is the harness's business here: what reasons unasked is told not to, or as little as it can, so that
    `max_tokens` bounds what a harness sees.

    Attributes:
        samples: Whether it takes a temperature.
        stops: Whether it takes stop texts.
        tools: Whether OpenAI's own endpoint takes tools for it through this API.
        effort: Value of `reasoning_effort` to send, or None.
        hidden_tokens: Room on top of the asked tokens for reasoning that cannot be turned off.
    """

    samples: bool = False
    stops: bool = False
    tools: bool = True
    effort: str | None = None
    hidden_tokens: int = 0


_PLAIN = _Traits(samples=True, stops=True)
_CAN_REST = _Traits(samples=True, effort="none")
_REASONS = _Traits(effort="low", hidden_tokens=_HIDDEN_TOKENS)
# Source: developers.openai.com/api/docs/models, and its guide to the latest model, read on 2026-11-30: sampling only
# without reasoning; from GPT-5.6 on, function calls through chat completions only without reasoning.
_TRAITS: Mapping[str, _Traits] = {
    "gpt-5": _Traits(effort="minimal", hidden_tokens=_HIDDEN_TOKENS),
    "gpt-5-mini": _Traits(effort="minimal", hidden_tokens=_HIDDEN_TOKENS),
    "gpt-5-nano": _Traits(effort="minimal", hidden_tokens=_HIDDEN_TOKENS),
    "gpt-5.1": _CAN_REST,
    "gpt-5.2": _CAN_REST,
    "gpt-5.4": _CAN_REST,
    "gpt-5.4-mini": _CAN_REST,
    "gpt-5.4-nano": _CAN_REST,
    "gpt-5.5": _CAN_REST,
    "gpt-5.6-sol": _CAN_REST,
    "gpt-5.6-terra": _CAN_REST,
    "gpt-5.6-luna": _CAN_REST,
    "gpt-6-sol": _CAN_REST,
    "gpt-6-luna": _CAN_REST,
    "gpt-6.1-terra": _CAN_REST,
    "gpt-6-astra": _Traits(effort="low", tools=False, hidden_tokens=_HIDDEN_TOKENS),
    "gpt-6.1-sol": _Traits(effort="low", tools=False, hidden_tokens=_HIDDEN_TOKENS),
    "gpt-6.2-astra": _Traits(effort="low", tools=False, hidden_tokens=_HIDDEN_TOKENS),
    "gpt-6.2-sol": _Traits(effort="low", tools=False, hidden_tokens=_HIDDEN_TOKENS),
    "o1": _REASONS,
    "o3": _REASONS,
    "o3-mini": _REASONS,
    "o4-mini": _REASONS,
}
# A model of OpenAI's that this table does not know yet: send nothing that a recent one rejects.
_UNKNOWN = _Traits(hidden_tokens=_HIDDEN_TOKENS)


def _traits_of(model: str, *, own: bool) -> _Traits:
    # A proxy in front of OpenAI's models may put a vendor before the name; it passes their restrictions on.
    name = model.rpartition("/")[2].removeprefix("ft:").partition(":")[0]
    name = re.sub(r"-\d{4}-\d{2}-\d{2}$", "", name)
    if name in _TRAITS:
        return _TRAITS[name]
    return _PLAIN if not own or name.startswith(("gpt-4", "gpt-3.5", "chatgpt-4o")) else _UNKNOWN


def create(spec: ModelSpec) -> OpenAIBackend:
    """Return the backend for `openai/<model>`; the key comes from OPENAI_API_KEY or `model.api_key_env`.

    An endpoint of one's own (`model.base_url`) may need no key.
    """
    key = read_key(spec, default_variable="OPENAI_API_KEY", needed=spec.base_url is None)
    return OpenAIBackend(spec, key=key, price=price_of(spec))


class OpenAIBackend:
    """A chat completions model. The SDK's own retries are off: the gateway retries."""

    def __init__(self, spec: ModelSpec, *, key: ApiKey, price: Price) -> None:
        import openai

        self._model = spec.ref.partition("/")[2]
        self._key = key
        self._price = price
        self._client = openai.AsyncOpenAI(
            api_key=key.value or "none", base_url=spec.base_url, max_retries=0, timeout=spec.timeout_s
        )
        self._base_url = shown_url(str(self._client.base_url))
        own = (urlsplit(self._base_url).hostname or "").endswith("api.openai.com")
        self._own = own
        self._traits = _traits_of(self._model, own=own)
        if not self._traits.samples:
            refuse_unused_temperature(spec, self._model)
        # OpenAI's own models have one name for the limit, most compatible servers know only the other.
        self._limit_name = "max_completion_tokens" if own or self._traits is not _PLAIN else "max_tokens"
        self._info = ModelInfo(
            ref=spec.ref,
            identity={
                "base_url": self._base_url,
                "temperature": "as asked" if self._traits.samples else "the provider's",
                "effort": self._traits.effort,
                "hidden_tokens": self._traits.hidden_tokens,
            },
            can_schema=True,
            can_tools=self._traits.tools or not own,
            hidden_tokens=self._traits.hidden_tokens,
        )

    @property
    def info(self) -> ModelInfo:
        """What it is and can do."""
        return self._info

    async def complete(self, request: CompleteRequest, *, seed: int) -> ModelReply:
        """See `ModelBackend`; the seed is sent, but providers promise nothing of it."""
        import openai

        try:
            try:
                found: Any = await self._client.chat.completions.create(**self._arguments(request, seed))
            except openai.BadRequestError as error:
                if self._limit_name == "max_completion_tokens" or "max_completion_tokens" not in str(error):
                    raise
                self._limit_name = "max_completion_tokens"
                found = await self._client.chat.completions.create(**self._arguments(request, seed))
        except (openai.OpenAIError, ValueError) as error:  # ValueError: the reply is no JSON
            raise self._translated(error) from error
        try:
            return self._reply(found, request)
        except (AttributeError, TypeError, IndexError) as error:
            raise ModelUnavailable(f"{self._info.ref}: {self._base_url} sent no chat completion") from error

    async def choose(self, request: ChooseRequest) -> ModelReply:
        """Refuse: chat completions give log-probabilities of what was sampled, not of given continuations."""
        raise UnsupportedRequest(f"{self._info.ref} gives no log-probabilities of {len(request.choices)} choices")

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _arguments(self, request: CompleteRequest, seed: int) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "model": self._model,
            "messages": _messages(request.system, request.messages),
            self._limit_name: request.max_tokens + self._traits.hidden_tokens,
            "seed": seed,
        }
        if self._traits.samples and request.temperature is not None:
            arguments["temperature"] = request.temperature
        if self._traits.effort is not None:
            arguments["reasoning_effort"] = self._traits.effort
        if self._traits.stops and request.stop:
            arguments["stop"] = list(request.stop[:_SENT_STOPS])
        if request.tools:
            arguments["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool["name"],
                        "description": tool.get("description", ""),
                        "parameters": dict(tool.get("parameters") or {"type": "object", "properties": {}}),
                    },
                }
                for tool in request.tools
            ]
        if request.schema is not None:
            arguments["response_format"] = self._response_format(request.schema)
        return arguments

    def _response_format(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        strict = strict_schema(schema)
        if strict is None and self._own:
            raise UnsupportedRequest(
                f"{self._info.ref} cannot hold a reply to this schema: it must be an object at the top, without "
                "allOf, oneOf, not, if, patternProperties"
            )
        return {
            "type": "json_schema",
            "json_schema": {
                "name": "reply",
                "schema": strict if strict is not None else dict(schema),
                "strict": strict is not None,
            },
        }

    def _reply(self, found: ChatCompletion, request: CompleteRequest) -> ModelReply:
        choice = found.choices[0]
        message = choice.message
        text, cut = cut_at_stop(message.content or "", request.stop)
        calls = tuple(
            {"id": call.id, "name": call.function.name, "arguments": _arguments_of(call.function.arguments)}
            for call in message.tool_calls or ()
            if call.type == "function"
        )
        stop_reason = "stop" if cut else _STOP_REASONS.get(choice.finish_reason, "end")
        if calls and stop_reason == "end":  # some compatible servers say `stop` all the same
            stop_reason = "tool_calls"
        if message.refusal:
            text, stop_reason = message.refusal, "refusal"
        return ModelReply(
            text=text, tool_calls=calls, stop_reason=stop_reason, usage=self._usage(found, request, message.content)
        )

    def _usage(self, found: ChatCompletion, request: CompleteRequest, content: str | None) -> Usage:
        used = found.usage
        if used is None:
            # A server that does not count is charged at the most that it can have used, so that caps still hold.
            input_tokens, output_tokens, read, written = most_input_tokens(request), size_bytes(content or ""), 0, 0
        else:
            details = used.prompt_tokens_details
            input_tokens, output_tokens = used.prompt_tokens, used.completion_tokens
            read = (details.cached_tokens if details else 0) or 0
            written = getattr(details, "cache_write_tokens", 0) or 0
        return Usage(
            model_calls=1,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cached_tokens=read,
            cost_usd=self._price.cost_usd(
                input_tokens=input_tokens, output_tokens=output_tokens, cached_tokens=read, cache_write_tokens=written
            ),
        )

    def _translated(self, error: Exception) -> MetaharnessError:
        import openai

        if isinstance(error, openai.APIStatusError):
            said = error.body.get("message") if isinstance(error.body, Mapping) else None
            return status_error(
                ref=self._info.ref,
                status=error.status_code,
                message=str(said or error.message),
                code=f"{error.code or ''} {error.type or ''}".strip(),
                headers=error.response.headers,
                key=self._key,
                base_url=self._base_url,
            )
        return ModelUnavailable(f"{self._info.ref}: {one_line(self._key.scrub(str(error)))} ({self._base_url})")


def _messages(system: str | None, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for message in messages:
        one: dict[str, Any] = {"role": message["role"], "content": message["content"]}
        if message.get("tool_calls"):
            one["content"] = message["content"] or None
            one["tool_calls"] = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": json.dumps(dict(call["arguments"]))},
                }
                for call in message["tool_calls"]
            ]
        if message["role"] == "tool":
            one["tool_call_id"] = message["tool_call_id"]
        found.append(one)
    return found


def _arguments_of(text: str) -> dict[str, Any]:
    try:
        return tool_arguments(json.loads(text or "{}"))
    except ValueError:
        return tool_arguments(text)
