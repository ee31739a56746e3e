"""Smallest values that satisfy a JSON schema, for scripted models."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_MAX_DEPTH = 16


def fill_schema(schema: Mapping[str, Any], text: str) -> Any:
    """Return a value that satisfies the common part of `schema`, made out of `text`.

    Strings become `text`, numbers its first number, enumerations the member that occurs in it first.

    Args:
        schema: JSON schema of types, properties, items, enum, const, anyOf and local references.
        text: What the value is about.
    """
    return _fill(schema, text, schema, 0)


def _fill(schema: Mapping[str, Any], text: str, root: Mapping[str, Any], depth: int) -> Any:
    if depth > _MAX_DEPTH:
        return None
    if "$ref" in schema:
        target: Any = root
        for part in str(schema["$ref"]).split("/")[1:]:
            target = target.get(part, {}) if isinstance(target, Mapping) else {}
        return _fill(target, text, root, depth + 1)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return occurring(schema["enum"], text)
    for name in ("anyOf", "oneOf", "allOf"):
        if schema.get(name):
            return _fill(schema[name][0], text, root, depth + 1)
    kind = schema.get("type")
    if isinstance(kind, list | tuple):
        kind = kind[0]
    if kind == "object" or (kind is None and "properties" in schema):
        return {name: _fill(part, text, root, depth + 1) for name, part in schema.get("properties", {}).items()}
    if kind == "array":
        return [_fill(schema.get("items", {}), text, root, depth + 1) for _ in range(schema.get("minItems", 1))]
    if kind in ("integer", "number"):
        match = _NUMBER.search(text)
        value = float(match.group()) if match else 0.0
        value = min(max(value, schema.get("minimum", value)), schema.get("maximum", value))
        return int(value) if kind == "integer" else value
    if kind == "boolean":
        return bool(text.strip())
    if kind == "null":
        return None
    return text[: schema["maxLength"]] if "maxLength" in schema else text


def occurring(options: Sequence[Any], text: str) -> Any:
    """Return the option that occurs in `text` most often as whole words; the first of equals."""
    return max(options, key=lambda option: count_words(str(option), text))


def count_words(phrase: str, text: str) -> int:
    """Return how often `phrase` occurs in `text` as whole words, whatever the case; `_` and `-` count as spaces."""
    wanted = " ".join(re.findall(r"\w+", phrase.lower().replace("_", " ")))
    given = " ".join(re.findall(r"\w+", text.lower().replace("_", " ")))
    return len(re.findall(rf"(?<!\w){re.escape(wanted)}(?!\w)", given)) if wanted else 0
