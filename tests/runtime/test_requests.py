from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaharness.runtime import ToolCall
from metaharness.runtime.requests import MAX_DEPTH, choose_body, complete_body, shell_body

USER = {"role": "user", "content": "hi"}


def test_a_text_is_one_user_message_and_everything_is_written_out() -> None:
    assert complete_body("hi") == {
        "messages": [USER],
        "system": None,
        "max_tokens": 256,
        "temperature": None,
        "stop": [],
        "tools": [],
        "schema": None,
    }


def test_a_body_survives_its_own_check() -> None:
    body = complete_body(
        (USER, {"role": "assistant", "content": "", "tool_calls": [ToolCall("1", "add", {"a": (1, 2)})]},
         {"role": "tool", "content": "3", "tool_call_id": "1"}),
        system="s", temperature=1, stop=("\n",), tools=[{"name": "add"}], schema={"type": "object"},
    )  # fmt: skip
    assert body["messages"][1]["tool_calls"] == [{"id": "1", "name": "add", "arguments": {"a": [1, 2]}}]
    assert body["tools"][0]["parameters"] == {"type": "object", "properties": {}}
    assert complete_body(**json.loads(json.dumps(body))) == body


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"messages": []}, ValueError, "messages must not be empty"),
        ({"messages": USER}, TypeError, "messages must be a list, not dict"),
        ({"messages": ["hi"]}, TypeError, r"messages\[0\] must be an object with role and content, not str"),
        ({"messages": [{"role": "system", "content": "x"}]}, ValueError, "pass the system prompt as system="),
        ({"messages": [{"role": "bot", "content": ""}]}, ValueError, "must be user, assistant or tool, not 'bot'"),
        ({"messages": [{"role": ["user"], "content": "x"}]}, TypeError, r"role must be a text \(str\), not list"),
        ({"messages": [{"role": "user"}]}, TypeError, r"messages\[0\]: content must be a text \(str\), not None"),
        ({"messages": [{**USER, "name": "x"}]}, ValueError, "a message of role user has no 'name'"),
        ({"messages": [{"role": "tool", "content": "x"}]}, TypeError, "tool_call_id must be a text"),
        ({"messages": [{"role": "assistant", "content": "", "tool_calls": [1]}]}, TypeError, "must be a ToolCall"),
        ({"system": 3}, TypeError, "system must be a text"),
        ({"max_tokens": 0}, ValueError, "max_tokens must be from 1 to"),
        ({"max_tokens": 1.5}, TypeError, "max_tokens must be a whole number, not float"),
        ({"max_tokens": True}, TypeError, "max_tokens must be a whole number, not bool"),
        ({"temperature": 3}, ValueError, "temperature must be from 0 to 2"),
        ({"temperature": float("nan")}, ValueError, "temperature must be a finite number"),
        ({"temperature": 10**400}, ValueError, "temperature must be a finite number"),
        ({"temperature": "hot"}, TypeError, "temperature must be a number, not str"),
        ({"stop": "\n"}, TypeError, r"stop must be a list of texts, such as \['\\n'\], not one text"),
        ({"stop": [""]}, ValueError, r"stop\[0\] is empty"),
        ({"stop": ["x"] * 17}, ValueError, "stop has 17 items, at most 16"),
        ({"tools": [{"name": ""}]}, ValueError, r"tools\[0\]: name is empty"),
        ({"tools": [{"name": "x", "type": "function"}]}, ValueError, "has name, description, parameters, no 'type'"),
        ({"tools": [{"name": "x", "parameters": []}]}, TypeError, "parameters must be a JSON object, not list"),
        ({"schema": {"a": {1, 2}}}, TypeError, "schema must be JSON: it holds set"),
        ({"schema": {1: 2}}, TypeError, "every key must be a text"),
        ({"schema": {"a": float("inf")}}, ValueError, "schema must be a finite number"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_named(change: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        complete_body(**{"messages": "hi", **change})


def test_deep_nesting_is_refused() -> None:
    deep: Any = {}
    for _ in range(MAX_DEPTH + 1):
        deep = {"a": deep}
    with pytest.raises(ValueError, match=f"nested more than {MAX_DEPTH} deep"):
        complete_body("hi", schema=deep)


def test_choose() -> None:
    assert choose_body("p", ("a", "b")) == {"prompt": "p", "choices": ["a", "b"]}
    for choices, says in (
        ((), "must not be empty"),
        ("ab", "must be a list of texts"),
        (["a", ""], r"choices\[1\] is empty"),
    ):
        with pytest.raises((TypeError, ValueError), match=says):
            choose_body("p", choices)


def test_shell() -> None:
    assert shell_body("ls", 3) == {"command": "ls", "timeout_s": 3.0}
    with pytest.raises(ValueError, match="timeout_s must be above 0"):
        shell_body("ls", 0)
    with pytest.raises(TypeError, match="command must be a text"):
        shell_body(["ls"])  # type: ignore[arg-type]


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=3),
)
fields = ("messages", "system", "max_tokens", "temperature", "stop", "tools", "schema")


@given(st.fixed_dictionaries(dict.fromkeys(fields, junk)))
def test_junk_is_refused_with_a_type_or_value_error_or_becomes_json(arguments: dict[str, Any]) -> None:
    try:
        body = complete_body(**arguments)
    except (TypeError, ValueError):
        return
    json.dumps(body, allow_nan=False)
