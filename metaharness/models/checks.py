"""Whether a request is well formed: backends may rely on its shape, whoever made it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metaharness.errors import ModelRefused, UnsupportedRequest
from metaharness.exchange import ChooseRequest, CompleteRequest, ModelInfo, Request

_ROLES = ("user", "assistant", "tool")


def check_request(request: Request, info: ModelInfo) -> None:
    """Check the shape of `request`, and that the model can do what it asks for.

    Raises:
        ModelRefused: It is malformed; the message names the field.
        UnsupportedRequest: The model has no `choose`, schemas or tools.
    """
    if isinstance(request, ChooseRequest):
        if not request.choices:
            raise ModelRefused("choices: at least one is needed")
        if not info.can_choose:
            raise UnsupportedRequest(f"{info.ref} gives no log-probabilities of choices")
        return
    if request.max_tokens < 1:
        raise ModelRefused(f"max_tokens: must be at least 1 (got {request.max_tokens})")
    if request.temperature is not None and not 0 <= request.temperature <= 2:
        raise ModelRefused(f"temperature: must be between 0 and 2 (got {request.temperature})")
    _check_messages(request)
    for index, tool in enumerate(request.tools):
        if not isinstance(tool.get("name"), str) or not isinstance(tool.get("parameters", {}), Mapping):
            raise ModelRefused(f"tools[{index}]: needs a name, and a JSON schema as parameters")
    if request.tools and not info.can_tools:
        raise UnsupportedRequest(f"{info.ref} takes no tools")
    if request.schema is not None and not info.can_schema:
        raise UnsupportedRequest(f"{info.ref} cannot hold a reply to a schema")


def _check_messages(request: CompleteRequest) -> None:
    if not request.messages:
        raise ModelRefused("messages: at least one is needed")
    for index, message in enumerate(request.messages):
        where = f"messages[{index}]"
        role = message.get("role")
        if role not in _ROLES:
            hint = "; pass a system prompt as `system`" if role == "system" else ""
            raise ModelRefused(f"{where}.role: must be one of {', '.join(_ROLES)} (got {role!r}){hint}")
        if not isinstance(message.get("content"), str):
            raise ModelRefused(f"{where}.content: must be a text")
        if role == "tool" and not isinstance(message.get("tool_call_id"), str):
            raise ModelRefused(f"{where}.tool_call_id: must name the tool call that this answers")
        for number, call in enumerate(_calls(message, where)):
            if (
                not isinstance(call, Mapping)
                or not isinstance(call.get("id"), str)
                or not isinstance(call.get("name"), str)
                or not isinstance(call.get("arguments"), Mapping)
            ):
                raise ModelRefused(f"{where}.tool_calls[{number}]: needs id, name and arguments (an object)")


def _calls(message: Mapping[str, Any], where: str) -> list[Any]:
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list | tuple):
        raise ModelRefused(f"{where}.tool_calls: must be a list")
    if calls and message["role"] != "assistant":
        raise ModelRefused(f"{where}.tool_calls: only an assistant message has tool calls")
    return list(calls)
