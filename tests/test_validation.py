from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, ValidationError

from metaharness.validation import field_path, first_error


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    size: int


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    parts: list[Inner] = []


def message(data: object) -> str:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(data)
    return first_error(caught.value, Outer)


def test_a_field_is_named_by_its_path() -> None:
    assert field_path(("parts", 0, "size")) == "parts[0].size"
    assert message({"name": "x", "parts": [{"size": "big"}]}).startswith(
        "parts[0].size: input should be a valid integer"
    )
    assert message({}) == "name: missing"


def test_an_unknown_field_comes_with_the_nearest_known_one() -> None:
    assert message({"name": "x", "parts": [{"size": 1, "sise": 2}]}) == (
        "parts[0].sise: unknown field; did you mean 'size'? (known: size)"
    )


@given(st.text())
def test_any_key_gives_one_line(key: str) -> None:
    if key in Outer.model_fields:
        return
    assert len(message({"name": "x", key: 1}).splitlines()) == 1
