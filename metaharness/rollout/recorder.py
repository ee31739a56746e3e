"""The trajectory of a rollout, written on the trusted side from what passed through the host."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from metaharness.exchange import ChooseRequest, CompleteRequest, ModelInfo, ModelReply, canonical_json
from metaharness.models.gateway import CallRecord
from metaharness.runtime.frames import valid_json, valid_text
from metaharness.trajectory import (
    Agent,
    AtifToolCall,
    FinalMetrics,
    Metrics,
    Observation,
    ObservationResult,
    Step,
    Trajectory,
)

MAX_RECORDED_CHARS = 8 * 1024 * 1024
"""Most characters of text in one trajectory; what comes later is cut, and each cut says so."""


@dataclass(frozen=True, slots=True)
class _Said:
    """A finished call, to be found again by the digest of its messages."""

    step_id: int
    reply: Mapping[str, Any] | None


class Recorder:
    """Builds one trajectory, step by step.

    Args:
        model: The model that is asked.
        clock: Unix time in seconds.
    """

    def __init__(self, *, model: ModelInfo, clock: Callable[[], float]) -> None:
        self._model = model
        self._clock = clock
        self._steps: list[Step] = []
        self._said: dict[bytes, _Said] = {}
        self._left_chars = MAX_RECORDED_CHARS
        self._calls = 0
        self._shells = 0

    @property
    def steps(self) -> int:
        """How many steps there are so far."""
        return len(self._steps)

    def user(self, text: str, **ours: Any) -> None:
        """Record what the environment says: a task, or that labels were given."""
        self._add(self._clock(), source="user", message=self._keep(text), ours=ours)

    def call(self, record: CallRecord) -> None:
        """Record a model call when it has ended: what was new in its messages, then the reply."""
        self._calls += 1
        request, reply = record.request, record.reply
        messages = _messages(request)
        digests = _prefixes(request, messages)
        ours: dict[str, Any] = {"call": self._calls}
        new = len(messages)
        while new and digests[new - 1] not in self._said:
            new -= 1
        if new:
            earlier = self._said[digests[new - 1]]
            ours["repeats" if new == len(messages) else "continues"] = earlier.step_id
            # The reply to the earlier call stands there as its own step already.
            if new < len(messages) and messages[new] == earlier.reply:
                new += 1
        self._messages(record.started_at, messages[new:], ours)
        ours |= {"seconds": round(record.seconds, 3), "cached": record.cached, "params": _params(request)}
        if record.error is not None:
            ours["error"] = valid_text(record.error)
        if reply is not None:
            ours["stop_reason"] = reply.stop_reason
        self._add(
            record.started_at + record.seconds,
            source="agent",
            model_name=self._model.ref,
            llm_call_count=1,
            message="" if reply is None else self._keep(_said_in(request, reply, ours)),
            tool_calls=None if reply is None else self._tool_calls(reply.tool_calls),
            metrics=None if reply is None else _metrics(reply, paid=not record.cached),
            ours=ours,
        )
        if digests and reply is not None:
            self._said.setdefault(digests[-1], _Said(len(self._steps), _as_message(reply)))

    def shell(self, command: str, timeout_s: float) -> Callable[[str, int], None]:
        """Note that a shell command starts; the returned function records it with its output and exit code."""
        started_at = self._clock()

        def done(output: str, exit_code: int) -> None:
            self._shells += 1
            call_id = f"shell-{self._shells}"
            self._add(
                started_at,
                source="agent",
                tool_calls=[
                    AtifToolCall(
                        tool_call_id=call_id,
                        function_name="shell",
                        arguments={"command": self._keep(command), "timeout_s": timeout_s},
                    )
                ],
                observation=Observation(
                    results=[ObservationResult(source_call_id=call_id, content=self._keep(output))]
                ),
                ours={"exit_code": exit_code, "seconds": round(self._clock() - started_at, 3)},
            )

        return done

    def finish(self, *, agent: str, version: str, session_id: str, ours: Mapping[str, Any]) -> Trajectory:
        """Return the trajectory; `ours` stands under `extra.metaharness`."""
        metrics = [step.metrics for step in self._steps if step.metrics is not None]
        return Trajectory(
            session_id=session_id,
            agent=Agent(name=agent, version=version, model_name=self._model.ref),
            steps=self._steps,
            final_metrics=FinalMetrics(
                total_prompt_tokens=sum(m.prompt_tokens or 0 for m in metrics),
                total_completion_tokens=sum(m.completion_tokens or 0 for m in metrics),
                total_cached_tokens=sum(m.cached_tokens or 0 for m in metrics),
                total_cost_usd=sum(m.cost_usd or 0.0 for m in metrics),
                total_steps=len(self._steps),
            ),
            extra={"metaharness": {**ours, "model_calls": self._calls}},
        )

    def _messages(self, at: float, messages: Sequence[Mapping[str, Any]], call: Mapping[str, Any]) -> None:
        """Record messages of a request as one step: plain text when it is one user text, else text parts and roles."""
        if not messages:
            return
        texts = [self._keep(_text(message)) for message in messages]
        roles = [message["role"] for message in messages]
        ours = {"call": call["call"]}
        if roles == ["user"]:
            self._add(at, source="user", message=texts[0], ours=ours)
        else:
            parts = [{"type": "text", "text": text} for text in texts]
            self._add(at, source="user", message=parts, ours={**ours, "roles": roles})

    def _tool_calls(self, calls: Sequence[Mapping[str, Any]]) -> list[AtifToolCall] | None:
        made = []
        for call in calls:
            arguments = valid_json(dict(call["arguments"]))
            text = canonical_json(arguments)
            if self._keep(text) != text:
                arguments = {"cut": len(text)}
            made.append(
                AtifToolCall(
                    tool_call_id=valid_text(call["id"]), function_name=valid_text(call["name"]), arguments=arguments
                )
            )
        return made or None

    def _keep(self, text: str) -> str:
        text = valid_text(text)
        if len(text) > self._left_chars:
            text = f"{text[: self._left_chars]}[{len(text) - self._left_chars} characters not recorded]"
        self._left_chars = max(0, self._left_chars - len(text))
        return text

    def _add(self, at: float, *, ours: Mapping[str, Any], **fields: Any) -> None:
        self._steps.append(
            Step(
                step_id=len(self._steps) + 1,
                timestamp=datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds"),
                extra={"metaharness": dict(ours)} if ours else None,
                **fields,
            )
        )


def _messages(request: CompleteRequest | ChooseRequest) -> list[dict[str, Any]]:
    if isinstance(request, ChooseRequest):
        return [{"role": "user", "content": request.prompt}]
    system = [] if request.system is None else [{"role": "system", "content": request.system}]
    return [*system, *(dict(message) for message in request.messages)]


def _prefixes(request: CompleteRequest | ChooseRequest, messages: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """Return a digest for each prefix of the messages; raw text for `choose` is no chat message."""
    digest = hashlib.sha256(type(request).__name__.encode())
    made = []
    for message in messages:
        text = canonical_json(message).encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(text) + text)
        made.append(digest.copy().digest())
    return made


def _as_message(reply: ModelReply) -> dict[str, Any]:
    """Return a reply as the message by which a harness passes it back."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.tool_calls:
        message["tool_calls"] = [{key: call[key] for key in ("id", "name", "arguments")} for call in reply.tool_calls]
    return message


def _text(message: Mapping[str, Any]) -> str:
    calls = message.get("tool_calls")
    return f"{message['content']}\n{json.dumps(calls, ensure_ascii=False)}" if calls else str(message["content"])


def _params(request: CompleteRequest | ChooseRequest) -> dict[str, Any]:
    if isinstance(request, ChooseRequest):
        return {"choose": len(request.choices)}
    params: dict[str, Any] = {"max_tokens": request.max_tokens, "temperature": request.temperature}
    if request.stop:
        params["stop"] = list(request.stop)
    if request.tools:
        params["tools"] = [tool["name"] for tool in request.tools]
    if request.schema is not None:
        params["schema"] = True
    return params


def _said_in(request: CompleteRequest | ChooseRequest, reply: ModelReply, ours: dict[str, Any]) -> str:
    """Return the text of a reply; for `choose`, the likeliest choice, and all of them into `ours`."""
    if not isinstance(request, ChooseRequest):
        return reply.text
    logprobs = reply.logprobs or ()
    ours["choices"] = [valid_text(choice) for choice in request.choices]
    ours["logprobs"] = [round(value, 4) if math.isfinite(value) else None for value in logprobs]
    return max(zip(logprobs, request.choices, strict=False), key=lambda pair: pair[0], default=(0.0, ""))[1]


def _metrics(reply: ModelReply, *, paid: bool) -> Metrics:
    return Metrics(
        prompt_tokens=reply.usage.input_tokens,
        completion_tokens=reply.usage.output_tokens,
        cached_tokens=reply.usage.cached_tokens,
        cost_usd=reply.usage.cost_usd if paid else 0.0,
    )
