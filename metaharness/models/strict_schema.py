"""JSON schemas in the strict subset of structured outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_UNKNOWN = frozenset(
    {
        "allOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "patternProperties",
        "dependentRequired",
        "dependentSchemas",
        "propertyNames",
        "unevaluatedProperties",
        "prefixItems",
        "contains",
        "uniqueItems",
    }
)


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a schema of the strict subset whose every value also satisfies `schema`; None where there is none.

    Objects take no further properties and hold all that are named: narrower than `schema`, never wider.
    """
    if schema.get("type") != "object" or "properties" not in schema:
        return None
    found = _strict(schema)
    return found if isinstance(found, dict) else None


def _strict(schema: Any) -> Any:
    """Return the strict form of a schema, or None where it leaves the subset."""
    if not isinstance(schema, Mapping) or _UNKNOWN & schema.keys():
        return None
    found: dict[str, Any] = dict(schema)
    for name in ("properties", "$defs", "definitions"):
        if name in found:
            parts = {key: _strict(value) for key, value in found[name].items()}
            if None in parts.values():
                return None
            found[name] = parts
    if "items" in found and (items := _strict(found["items"])) is None:
        return None
    if "items" in found:
        found["items"] = items
    if "anyOf" in found:
        variants = [_strict(variant) for variant in found["anyOf"]]
        if None in variants:
            return None
        found["anyOf"] = variants
    types = found.get("type")
    if types == "object" or (isinstance(types, list | tuple) and "object" in types):
        if isinstance(found.get("additionalProperties"), Mapping):
            return None  # a map with free keys
        found["properties"] = found.get("properties", {})
        found["additionalProperties"] = False
        found["required"] = list(found["properties"])
    return found
