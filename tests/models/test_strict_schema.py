"""The strict subset: narrower than what was asked, never wider."""

from __future__ import annotations

from typing import Any

import pytest

from metaharness.models.strict_schema import strict_schema


def test_objects_are_closed_and_complete_at_every_depth() -> None:
    schema = {
        "$defs": {"part": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        "type": "object",
        "properties": {
            "list": {"type": "array", "items": {"$ref": "#/$defs/part"}},
            "either": {"anyOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"type": "null"}]},
            "maybe": {"type": ["object", "null"], "properties": {}},
        },
        "required": ["list"],
    }
    found = strict_schema(schema)
    assert found is not None
    assert found["required"] == ["list", "either", "maybe"]
    assert found["$defs"]["part"]["additionalProperties"] is False
    assert found["properties"]["either"]["anyOf"][0]["required"] == ["a"]
    assert found["properties"]["maybe"]["additionalProperties"] is False
    assert schema["required"] == ["list"]
    assert strict_schema(found) == found


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}},
        {"anyOf": [{"type": "object"}]},
        {"type": "object"},
        {"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}]}}},
        {"type": "object", "properties": {"a": {"type": "array", "items": {"not": {}}}}},
        {"type": "object", "properties": {"a": {"anyOf": [{"allOf": []}]}}},
        {"type": "object", "properties": {"a": {"type": "object", "additionalProperties": {"type": "string"}}}},
        {"type": "object", "properties": {}, "$defs": {"a": {"if": {}}}},
        {"type": "object", "properties": {"a": True}},
    ],
)
def test_what_is_outside_is_none(schema: dict[str, Any]) -> None:
    assert strict_schema(schema) is None
