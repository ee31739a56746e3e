"""`scripted/<name>` and `scripted/<module>:<function>`: deterministic stand-ins for models, in tests and demos."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import inspect
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from metaharness.budget import Usage
from metaharness.errors import SpecError, unknown_name
from metaharness.exchange import ChooseRequest, CompleteRequest, ModelInfo, ModelReply, Request, canonical_json
from metaharness.models.schema_fill import count_words, fill_schema, occurring
from metaharness.spec import ModelSpec

Script = Callable[[Request, int], ModelReply | str | Sequence[float]]
"""Gets a request and the seed (0 for `choose`); returns a reply, its text, or log-probabilities of the choices."""

_OPTIONS = re.compile(r"(?:one of|choices|labels|options)\b[^:\n]*:\s*(.+)", re.IGNORECASE)


def create(spec: ModelSpec) -> ScriptedBackend:
    """Return the backend for `scripted/<name>`, `scripted/constant=<text>` or `scripted/<module>:<function>`.

    Raises:
        SpecError: There is no such script, or it cannot be loaded.
    """
    name = spec.ref.partition("/")[2]
    if name == "constant" or name.startswith("constant="):
        return ScriptedBackend(constant(name.partition("=")[2] or "ok"), ref=spec.ref)
    if name in _BUILTIN:
        return ScriptedBackend(_BUILTIN[name], ref=spec.ref)
    module_name, colon, attribute = name.partition(":")
    if not colon:
        raise SpecError(f"model.ref: {unknown_name('script', name, [*_BUILTIN, 'constant'])}; or give module:function")
    try:
        script: Script = getattr(importlib.import_module(module_name), attribute)
    except Exception as error:
        raise SpecError(f"model.ref: {spec.ref!r} cannot be loaded: {error}") from error
    if not callable(script):
        raise SpecError(f"model.ref: {spec.ref!r} is no function of a request and a seed")
    return ScriptedBackend(script, ref=spec.ref)


class ScriptedBackend:
    """A model whose replies are a function of request and seed.

    Args:
        script: The function.
        ref: Model reference.
        failures: What to raise at the first, second, … call instead of asking the script; None asks it.
        latency_s: Seconds that each call takes.
        can_choose: As `ModelInfo`; likewise `can_schema` and `can_tools`.
        hidden_tokens: As `ModelInfo`; likewise `max_in_flight`.

    Attributes:
        calls: Every request so far, those that failed included.
        closed: Whether `aclose` was called.
    """

    def __init__(
        self,
        script: Script,
        *,
        ref: str = "scripted/function",
        failures: Iterable[Exception | None] = (),
        latency_s: float = 0.0,
        can_choose: bool = True,
        can_schema: bool = True,
        can_tools: bool = True,
        hidden_tokens: int = 0,
        max_in_flight: int | None = None,
    ) -> None:
        self._script = script
        self._failures: Iterator[Exception | None] = iter(failures)
        self._latency_s = latency_s
        self.calls: list[Request] = []
        self.closed = False
        self._info = ModelInfo(
            ref=ref,
            identity={"script": _digest(script)},
            can_choose=can_choose,
            can_schema=can_schema,
            can_tools=can_tools,
            honours_seed=True,
            hidden_tokens=hidden_tokens,
            max_in_flight=max_in_flight,
        )

    @property
    def info(self) -> ModelInfo:
        """What it is and can do."""
        return self._info

    async def complete(self, request: CompleteRequest, *, seed: int) -> ModelReply:
        """See `ModelBackend`."""
        return await self._answer(request, seed)

    async def choose(self, request: ChooseRequest) -> ModelReply:
        """See `ModelBackend`."""
        return await self._answer(request, 0)

    async def aclose(self) -> None:
        """Note that it was closed."""
        self.closed = True

    async def _answer(self, request: Request, seed: int) -> ModelReply:
        self.calls.append(request)
        failure = next(self._failures, None)
        if self._latency_s:
            await asyncio.sleep(self._latency_s)
        if failure is not None:
            raise failure
        found = self._script(request, seed)
        if not isinstance(found, ModelReply):
            found = ModelReply(text=found) if isinstance(found, str) else ModelReply(logprobs=tuple(found))
        return found if found.usage.model_calls else replace(found, usage=_counted(request, found))


def _counted(request: Request, reply: ModelReply) -> Usage:
    """Return a usage that counts words as tokens: the same everywhere."""
    answer = reply.text + "".join(canonical_json(dict(call)) for call in reply.tool_calls)
    return Usage(model_calls=1, input_tokens=len(prompt_of(request).split()), output_tokens=max(1, len(answer.split())))


def _digest(script: Script) -> str:
    """Return a digest of the script's source, so that replies of an older version are not taken for its own."""
    name = f"{getattr(script, '__module__', '')}:{getattr(script, '__qualname__', type(script).__name__)}"
    try:
        source = inspect.getsource(script)
    except (OSError, TypeError):
        source = ""
    return f"{name}:{hashlib.sha256(source.encode()).hexdigest()[:16]}"


def prompt_of(request: Request) -> str:
    """Return all text of a request: what a script looks at."""
    if isinstance(request, ChooseRequest):
        return request.prompt
    return "\n".join([request.system or "", *(message["content"] for message in request.messages)]).strip()


def _last(request: Request) -> str:
    """Return the last message, or the last paragraph of a raw prompt."""
    if isinstance(request, ChooseRequest):
        return request.prompt.rstrip().rpartition("\n\n")[2]
    return str(request.messages[-1]["content"])


def _completed(request: CompleteRequest, text: str) -> ModelReply:
    """Return `text` as a reply that keeps to the request's schema, stops and token limit (in words)."""
    if request.schema is not None:
        return ModelReply(text=json.dumps(fill_schema(request.schema, text), ensure_ascii=False))
    for stop in request.stop:
        if stop in text:
            return replace(_completed(replace(request, stop=()), text[: text.index(stop)]), stop_reason="stop")
    pieces = re.findall(r"\s*\S+", text)
    if len(pieces) > request.max_tokens:
        return ModelReply(text="".join(pieces[: request.max_tokens]), stop_reason="length")
    return ModelReply(text=text)


def _even(request: ChooseRequest) -> list[float]:
    return [-math.log(len(request.choices))] * len(request.choices)


def echo(request: Request, seed: int) -> ModelReply | list[float]:  # noqa: ARG001
    """Repeat the last message; give all choices the same probability."""
    return _completed(request, _last(request)) if isinstance(request, CompleteRequest) else _even(request)


def constant(text: str) -> Script:
    """Return a script that always says `text`, and prefers the choice of that name."""

    def say(request: Request, seed: int) -> ModelReply | list[float]:  # noqa: ARG001
        if isinstance(request, CompleteRequest):
            return _completed(request, text)
        return _log_shares([20.0 if choice.strip() == text else 0.0 for choice in request.choices])

    say.__qualname__ = f"constant({text!r})"
    return say


def keyword(request: Request, seed: int) -> ModelReply | list[float]:  # noqa: ARG001
    """Pick the choice that occurs in the text most often.

    Choices of a completion are a schema's enumeration, or a line such as `Answer with one of: red, green, blue`.
    """
    if isinstance(request, ChooseRequest):
        return _log_shares([2.0 * count_words(choice, _last(request)) for choice in request.choices])
    last = _last(request)
    listed = _OPTIONS.search(prompt_of(request))
    if request.schema is None and listed:
        options = [option.strip(" \t.'\"`") for option in re.split(r"[,;|]", listed.group(1))]
        return _completed(request, occurring(options, last.replace(listed.group(0), "")))
    return _completed(request, last)


def tool_caller(request: Request, seed: int) -> ModelReply | list[float]:
    """Call the first tool once, with arguments made of the last message; then answer what it gave."""
    if isinstance(request, ChooseRequest):
        return _even(request)
    if not request.tools or request.messages[-1]["role"] == "tool":
        return _completed(request, _last(request))
    tool = request.tools[0]
    arguments = fill_schema(tool.get("parameters") or {"type": "object"}, _last(request))
    call = {"id": f"call_{seed}", "name": tool["name"], "arguments": arguments}
    return ModelReply(tool_calls=(call,), stop_reason="tool_calls")


def _log_shares(weights: Sequence[float]) -> list[float]:
    """Return log-probabilities in proportion to the exponentials of `weights`."""
    top = max(weights)
    total = top + math.log(sum(math.exp(weight - top) for weight in weights))
    return [weight - total for weight in weights]


_BUILTIN: dict[str, Script] = {"echo": echo, "keyword": keyword, "tool_caller": tool_caller}
