"""One exchange with a model: request and reply, as values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from metaharness.budget import Usage

STOP_REASONS = ("end", "length", "stop", "tool_calls", "refusal")


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no white space: equal values give equal text."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteRequest:
    """Ask for a reply to chat messages.

    Attributes:
        messages: `{"role": "user"|"assistant"|"tool", "content": str, ...}`; assistant messages may carry
            `tool_calls`, tool messages a `tool_call_id`.
        system: System prompt.
        max_tokens: Most tokens of the reply, at least 1.
        temperature: In [0, 2]; None leaves it to the provider.
        stop: Texts at which the reply ends.
        tools: `{"name", "description", "parameters"}`, parameters as JSON schema.
        schema: JSON schema that the reply must satisfy.
    """

    messages: tuple[Mapping[str, Any], ...]
    system: str | None = None
    max_tokens: int = 256
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    schema: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that the reply key is made of."""
        return {
            "kind": "complete",
            "messages": [dict(message) for message in self.messages],
            "system": self.system,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "stop": list(self.stop),
            "tools": [dict(tool) for tool in self.tools],
            "schema": dict(self.schema) if self.schema is not None else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ChooseRequest:
    """Ask for the natural-log probability of each of `choices` as the continuation of raw text `prompt`."""

    prompt: str
    choices: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that the reply key is made of."""
        return {"kind": "choose", "prompt": self.prompt, "choices": list(self.choices)}


Request = CompleteRequest | ChooseRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """What a backend gave.

    Attributes:
        text: Reply text; empty for `choose`.
        tool_calls: `{"id", "name", "arguments": object}`.
        stop_reason: One of `STOP_REASONS`.
        logprobs: Natural-log probabilities for `choose`, else None.
        usage: Tokens and dollars of this call (`model_calls` is 1).
        cached: True when the reply came from the reply cache (then it has cost nothing now).
    """

    text: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    stop_reason: str = "end"
    logprobs: tuple[float, ...] | None = None
    usage: Usage = field(default_factory=Usage)
    cached: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object (without `cached`), as the reply cache keeps it."""
        return {
            "text": self.text,
            "tool_calls": [dict(call) for call in self.tool_calls],
            "stop_reason": self.stop_reason,
            "logprobs": list(self.logprobs) if self.logprobs is not None else None,
            "usage": self.usage.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], *, cached: bool = False) -> ModelReply:
        """Read what `to_json` wrote."""
        logprobs = data.get("logprobs")
        return cls(
            text=data["text"],
            tool_calls=tuple(data.get("tool_calls", ())),
            stop_reason=data["stop_reason"],
            logprobs=tuple(logprobs) if logprobs is not None else None,
            usage=Usage.from_json(data["usage"]),
            cached=cached,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What a backend is and can do.

    Attributes:
        ref: Reference as in the spec, for example `local/smollm2-135m`.
        identity: Everything that can change a reply besides the request (runtime version, weights' digest, threads,
            mode, base URL, default temperature); part of the reply key and recorded with the campaign.
        can_choose: Whether `choose` works.
        can_schema: Whether a schema constrains the output.
        can_tools: Whether tool calls work.
        honours_seed: Whether equal seeds give equal replies.
        hidden_tokens: Most output tokens of reasoning that a reply may use on top of the request's `max_tokens`; the
            budget reserves them with each call.
        max_in_flight: Calls that it works on at the same time, or None; more wait outside, where no time limit runs.
    """

    ref: str
    identity: Mapping[str, Any] = field(default_factory=dict)
    can_choose: bool = False
    can_schema: bool = False
    can_tools: bool = False
    honours_seed: bool = False
    hidden_tokens: int = 0
    max_in_flight: int | None = None

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of reference and identity."""
        return hashlib.sha256(canonical_json([self.ref, dict(self.identity)]).encode()).hexdigest()


def reply_key(info: ModelInfo, request: Request, *, scope: str, attempt: int, occurrence: int) -> str:
    """Return the key of a reply: SHA-256 (hex) of model, request, scope, attempt and occurrence.

    Args:
        info: The model.
        request: The request.
        scope: What attempts are paired over; the task's digest, so that every candidate that asks the same thing on the
            same task and attempt gets the same reply.
        attempt: Attempt of the rollout, from 0.
        occurrence: How often this request was made before within the rollout, from 0 (a vote gets different replies).
    """
    body = [info.digest, request.to_json(), scope, attempt, occurrence]
    return hashlib.sha256(canonical_json(body).encode()).hexdigest()


def seed_of(key: str) -> int:
    """Return the sampling seed that belongs to a reply key, in [0, 2**31)."""
    return int(key[:8], 16) & 0x7FFF_FFFF
