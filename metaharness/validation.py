"""One clear line out of a pydantic error: which field, what is wrong, what was meant."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError


def first_error(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the first error of `error` as one line: `budget.rollouts: must be greater than 0 (got 0)`.

    Args:
        error: What `model.model_validate` raised.
        model: The model, for the nearest known name of an unknown field.
    """
    details = error.errors(include_url=False)
    # A misspelt field is missing under its right name too; how it was spelt helps more.
    detail = next((found for found in details if found["type"] == "extra_forbidden"), details[0])
    location = detail["loc"]
    where = field_path(location)
    if detail["type"] == "extra_forbidden":
        known = _fields_at(model, location[:-1])
        near = get_close_matches(str(location[-1]), known, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return f"{where}: unknown field{hint} (known: {', '.join(sorted(known))})"
    if detail["type"] == "missing":
        return f"{where}: missing"
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    message = message[:1].lower() + message[1:]
    given = detail.get("input")
    shown = f" (got {given!r})" if isinstance(given, str | int | float | bool) else ""
    return f"{where}: {message}{shown}" if where else message


def field_path(location: tuple[int | str, ...]) -> str:
    """Return `environments[0].ref` for `("environments", 0, "ref")`; always one line, whatever a file's keys hold."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
            continue
        name = part if part and part.isprintable() else repr(part)
        path += f".{name}" if path else name
    return path


def _fields_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    current: Any = model
    for part in location:
        if isinstance(part, int):
            continue
        field = current.model_fields.get(part) if _is_model(current) else None
        current = _model_in(field.annotation) if field else None
    return list(current.model_fields) if _is_model(current) else []


def _is_model(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseModel)


def _model_in(annotation: Any) -> Any:
    if _is_model(annotation):
        return annotation
    for argument in get_args(annotation) if get_origin(annotation) else ():
        found = _model_in(argument)
        if found is not None:
            return found
    return None
