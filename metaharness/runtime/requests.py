"""The bodies of requests from a harness: made and checked in the sandbox, checked again on the host.

Standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, Optional, Sequence

from .api import ToolCall

MAX_MESSAGES = 10_000
MAX_CHOICES = 1_000
MAX_STOPS = 16
MAX_TOOLS = 128
MAX_TOKENS = 1_000_000
MAX_DEPTH = 32
"""Deepest nesting of lists and objects in tools, schemas and arguments."""

_MESSAGE_KEYS = {
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls"},
    "tool": {"role", "content", "tool_call_id"},
}


def complete_body(
    messages: "Sequence[Mapping[str, Any]] | str",
    *,
    system: Optional[str] = None,
    max_tokens: int = 256,
    temperature: Optional[float] = None,
    stop: Sequence[str] = (),
    tools: Sequence[Mapping[str, Any]] = (),
    schema: Optional[Mapping[str, Any]] = None,
) -> Dict[str, Any]:
    """Return the body of a `model` request, everything written out.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.
    """
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    if isinstance(max_tokens, bool) or not isinstance(max_tokens, int):
        raise TypeError(f"max_tokens must be a whole number, not {_kind(max_tokens)}")
    if not 1 <= max_tokens <= MAX_TOKENS:
        raise ValueError(f"max_tokens must be from 1 to {MAX_TOKENS}, not {max_tokens}")
    if temperature is not None:
        temperature = _number("temperature", temperature)
        if not 0 <= temperature <= 2:
            raise ValueError(f"temperature must be from 0 to 2, not {temperature}")
    listed = _list("messages", messages, MAX_MESSAGES)
    return {
        "messages": [_message(number, message) for number, message in enumerate(listed)],
        "system": None if system is None else _text("system", system),
        "max_tokens": max_tokens,
        "temperature": temperature,
        "stop": _texts("stop", stop, MAX_STOPS, empty=True),
        "tools": [_tool(number, tool) for number, tool in enumerate(_list("tools", tools, MAX_TOOLS, empty=True))],
        "schema": None if schema is None else _object("schema", schema),
    }


def choose_body(prompt: str, choices: Sequence[str]) -> Dict[str, Any]:
    """Return the body of a `choose` request; raises as `complete_body`."""
    return {"prompt": _text("prompt", prompt), "choices": _texts("choices", choices, MAX_CHOICES)}


def shell_body(command: str, timeout_s: float = 60.0) -> Dict[str, Any]:
    """Return the body of a `shell` request; raises as `complete_body`."""
    seconds = _number("timeout_s", timeout_s)
    if seconds <= 0:
        raise ValueError(f"timeout_s must be above 0, not {seconds}")
    return {"command": _text("command", command), "timeout_s": seconds}


def _message(number: int, message: Any) -> Dict[str, Any]:
    where = f"messages[{number}]"
    if not isinstance(message, Mapping):
        raise TypeError(f"{where} must be an object with role and content, not {_kind(message)}")
    role = message.get("role")
    if role == "system":
        raise ValueError(f"{where}: pass the system prompt as system=, not as a message")
    if not isinstance(role, str):
        raise TypeError(f"{where}: role must be a text (str), not {_kind(role)}")
    if role not in _MESSAGE_KEYS:
        raise ValueError(f"{where}: role must be user, assistant or tool, not {role!r:.80}")
    unknown = set(message) - _MESSAGE_KEYS[role]
    if unknown:
        raise ValueError(f"{where}: a message of role {role} has no {sorted(map(str, unknown))[0]!r:.80}")
    made: Dict[str, Any] = {"role": role, "content": _text(f"{where}: content", message.get("content"))}
    if role == "tool":
        made["tool_call_id"] = _text(f"{where}: tool_call_id", message.get("tool_call_id"))
    calls = message.get("tool_calls")
    if calls:
        made["tool_calls"] = [
            _tool_call(f"{where}: tool_calls[{n}]", call) for n, call in enumerate(_list(where, calls, MAX_TOOLS))
        ]
    return made


def _tool_call(where: str, call: Any) -> Dict[str, Any]:
    if isinstance(call, ToolCall):
        call = {"id": call.id, "name": call.name, "arguments": call.arguments}
    if not isinstance(call, Mapping) or set(call) != {"id", "name", "arguments"}:
        raise TypeError(f"{where} must be a ToolCall, or an object with id, name and arguments")
    return {
        "id": _text(f"{where}: id", call["id"]),
        "name": _text(f"{where}: name", call["name"]),
        "arguments": _object(f"{where}: arguments", call["arguments"]),
    }


def _tool(number: int, tool: Any) -> Dict[str, Any]:
    where = f"tools[{number}]"
    if not isinstance(tool, Mapping):
        raise TypeError(f"{where} must be an object with name, description and parameters, not {_kind(tool)}")
    unknown = set(tool) - {"name", "description", "parameters"}
    if unknown:
        raise ValueError(f"{where}: a tool has name, description, parameters, no {sorted(map(str, unknown))[0]!r:.80}")
    name = _text(f"{where}: name", tool.get("name"))
    if not name:
        raise ValueError(f"{where}: name is empty")
    return {
        "name": name,
        "description": _text(f"{where}: description", tool.get("description", "")),
        "parameters": _object(f"{where}: parameters", tool.get("parameters", {"type": "object", "properties": {}})),
    }


def _list(name: str, value: Any, most: int, empty: bool = False) -> List[Any]:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Sequence):
        raise TypeError(f"{name} must be a list, not {_kind(value)}")
    if not value and not empty:
        raise ValueError(f"{name} must not be empty")
    if len(value) > most:
        raise ValueError(f"{name} has {len(value)} items, at most {most} are allowed")
    return list(value)


def _texts(name: str, value: Any, most: int, empty: bool = False) -> List[str]:
    if isinstance(value, str):
        raise TypeError(f"{name} must be a list of texts, such as [{value!r:.40}], not one text")
    texts = [_text(f"{name}[{number}]", text) for number, text in enumerate(_list(name, value, most, empty))]
    if "" in texts:
        raise ValueError(f"{name}[{texts.index('')}] is empty")
    return texts


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a text (str), not {_kind(value)}")
    return str(value)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, not {_kind(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number")
    return number


def _object(name: str, value: Any) -> Dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a JSON object, not {_kind(value)}")
    made: Dict[str, Any] = _json(name, value, 0)
    return made


def _json(name: str, value: Any, depth: int) -> Any:
    """Return a copy of a JSON value, mappings as dict and sequences as list."""
    if depth > MAX_DEPTH:
        raise ValueError(f"{name} is nested more than {MAX_DEPTH} deep")
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _number(name, value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError(f"{name} must be JSON: every key must be a text")
        return {str(key): _json(name, item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(name, item, depth + 1) for item in value]
    raise TypeError(f"{name} must be JSON: it holds {_kind(value)}")


def _kind(value: Any) -> str:
    return "None" if value is None else type(value).__name__
