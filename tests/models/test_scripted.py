"""Scripted models: deterministic, within the request's schema, stops and limits."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaharness.errors import ModelUnavailable, SpecError
from metaharness.exchange import ChooseRequest, CompleteRequest, ModelReply, Request
from metaharness.models import create_backend
from metaharness.models.schema_fill import fill_schema
from metaharness.models.scripted import ScriptedBackend
from metaharness.spec import ModelSpec
from tests.models.doubles import ask


def shout(request: Request, seed: int) -> str:
    assert isinstance(request, CompleteRequest)
    return str(request.messages[-1]["content"]).upper()


NO_SCRIPT = "this is no function"


async def say(ref: str, request: Request) -> ModelReply:
    backend = create_backend(ModelSpec(ref=ref))
    if isinstance(request, CompleteRequest):
        return await backend.complete(request, seed=1)
    return await backend.choose(request)


async def test_echo() -> None:
    assert (await say("scripted/echo", ask("a b c"))).text == "a b c"
    short = await say("scripted/echo", ask("a b c", max_tokens=2))
    assert (short.text, short.stop_reason, short.usage.output_tokens) == ("a b", "length", 2)
    stopped = await say("scripted/echo", ask("a b\nc", stop=("\n",)))
    assert (stopped.text, stopped.stop_reason) == ("a b", "stop")
    even = await say("scripted/echo", ChooseRequest(prompt="x", choices=("a", "b", "c", "d")))
    assert even.logprobs == pytest.approx([math.log(0.25)] * 4)


async def test_constant() -> None:
    assert (await say("scripted/constant", ask())).text == "ok"
    assert (await say("scripted/constant=yes sir", ask())).text == "yes sir"
    chosen = await say("scripted/constant=b", ChooseRequest(prompt="x", choices=("a", " b")))
    assert chosen.logprobs is not None
    assert chosen.logprobs[1] > math.log(0.99)


async def test_keyword() -> None:
    choices = ("card_lost", "refund", "greeting")
    chosen = await say("scripted/keyword", ChooseRequest(prompt="…\n\nI want a Refund now", choices=choices))
    assert chosen.logprobs is not None
    assert sum(math.exp(value) for value in chosen.logprobs) == pytest.approx(1.0)
    assert max(range(3), key=lambda index: chosen.logprobs[index] if chosen.logprobs else 0.0) == 1
    system = "Answer with one of: card_lost, refund, greeting."
    assert (await say("scripted/keyword", ask("My card, lost again", system=system))).text == "card_lost"
    listed = ask("One of these labels: red, green, blue\n\nThe grass is green.")
    assert (await say("scripted/keyword", listed)).text == "green"
    schema = {"type": "object", "properties": {"label": {"enum": list(choices)}}}
    assert json.loads((await say("scripted/keyword", ask("a refund", schema=schema))).text) == {"label": "refund"}


async def test_tool_caller() -> None:
    tool = {"name": "run", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}}
    backend = create_backend(ModelSpec(ref="scripted/tool_caller"))
    called = await backend.complete(ask("ls", tools=(tool,)), seed=7)
    assert called.stop_reason == "tool_calls"
    assert called.tool_calls == ({"id": "call_7", "name": "run", "arguments": {"command": "ls"}},)
    messages = (
        {"role": "user", "content": "ls"},
        {"role": "assistant", "content": "", "tool_calls": called.tool_calls},
        {"role": "tool", "tool_call_id": "call_7", "content": "a.txt"},
    )
    assert (await backend.complete(CompleteRequest(messages=messages, tools=(tool,)), seed=7)).text == "a.txt"


async def test_a_function_of_ones_own() -> None:
    assert (await say("scripted/tests.models.test_scripted:shout", ask("hello"))).text == "HELLO"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("eco", "unknown script 'eco'; did you mean 'echo'"),
        ("no_such_module_at_all:f", "cannot be loaded"),
        ("tests.models.test_scripted:absent", "cannot be loaded"),
        ("tests.models.test_scripted:NO_SCRIPT", "no function"),
    ],
)
def test_bad_names(name: str, message: str) -> None:
    with pytest.raises(SpecError, match=f"model.ref: .*{message}"):
        create_backend(ModelSpec(ref=f"scripted/{name}"))


async def test_failures_are_injected_in_order() -> None:
    backend = ScriptedBackend(shout, failures=[None, ModelUnavailable("gone")])
    assert (await backend.complete(ask("a"), seed=0)).text == "A"
    with pytest.raises(ModelUnavailable, match="gone"):
        await backend.complete(ask("b"), seed=0)
    assert (await backend.complete(ask("c"), seed=0)).text == "C"
    assert len(backend.calls) == 3


def test_another_script_is_another_model() -> None:
    def first(request: Request, seed: int) -> str:
        return "a"

    one = ScriptedBackend(first).info.digest

    def first(request: Request, seed: int) -> str:  # type: ignore[no-redef]
        return "b"

    assert ScriptedBackend(first).info.digest != one
    refs = ("scripted/constant=a", "scripted/constant=b", "scripted/echo")
    assert len({create_backend(ModelSpec(ref=ref)).info.digest for ref in refs}) == 3


def test_schemas_are_filled() -> None:
    schema: dict[str, Any] = {
        "$defs": {"size": {"type": "integer", "minimum": 5, "maximum": 9}},
        "type": "object",
        "properties": {
            "size": {"$ref": "#/$defs/size"},
            "price": {"type": "number"},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}, "minItems": 2},
            "kind": {"const": "order"},
            "colour": {"anyOf": [{"enum": ["red", "blue"]}, {"type": "null"}]},
            "urgent": {"type": "boolean"},
            "none": {"type": "null"},
        },
    }
    assert fill_schema(schema, "12.5 blue things") == {
        "size": 9,
        "price": 12.5,
        "tags": ["12.", "12."],
        "kind": "order",
        "colour": "blue",
        "urgent": True,
        "none": None,
    }
    endless = {"$ref": "#"}
    assert fill_schema(endless, "x") is None


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner)))
def test_filling_an_enumeration_gives_a_member(value: Any) -> None:
    assert fill_schema({"enum": [value, "other"]}, "some text") in [value, "other"]
