"""The real anthropic SDK against a loopback Messages API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from metaharness.budget import Usage
from metaharness.errors import (
    MetaharnessError,
    ModelAccessError,
    ModelRefused,
    ModelUnavailable,
    SpecError,
    UnsupportedRequest,
)
from metaharness.exchange import ChooseRequest, CompleteRequest
from metaharness.models import create_backend
from metaharness.protocols import ModelBackend
from metaharness.spec import ModelSpec, PriceSpec
from tests.models.doubles import ask, gateway
from tests.models.loopback import Answer, Loopback, loopback

KEY = "sk-ant-secret-1234"
TOOL = {
    "name": "add",
    "description": "Add two numbers.",
    "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    for name in ("ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def message(*content: dict[str, Any], stop_reason: str = "end_turn", **usage: int) -> Answer:
    used = {"input_tokens": 10, "output_tokens": 5, **usage}
    return Answer(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-haiku-4-5",
            "content": list(content) or [{"type": "text", "text": "Hello."}],
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": used,
        }
    )


def error(status: int, kind: str, text: str, **headers: str) -> Answer:
    body = {"type": "error", "error": {"type": kind, "message": text}}
    return Answer(body, status, {name.replace("_", "-"): value for name, value in headers.items()})


@asynccontextmanager
async def claude(
    *answers: Answer, model: str = "claude-haiku-4-5", **spec: Any
) -> AsyncIterator[tuple[ModelBackend, Loopback]]:
    async with loopback(*answers) as server:
        backend = create_backend(ModelSpec(ref=f"anthropic/{model}", base_url=server.url, **spec))
        try:
            yield backend, server
        finally:
            await backend.aclose()


async def test_a_plain_call() -> None:
    async with claude(message(cache_read_input_tokens=100, cache_creation_input_tokens=1_000)) as (backend, server):
        request = ask("Hi", system="Be brief.", max_tokens=64, temperature=0.5, stop=("END", "\n\n"))
        reply = await backend.complete(request, seed=1)
    asked = server.asked[0]
    assert (asked.method, asked.path) == ("POST", "/v1/messages")
    assert KEY in (asked.headers.get("x-api-key"), asked.headers.get("authorization", "").removeprefix("Bearer "))
    assert asked.body == {
        "model": "claude-haiku-4-5",
        "max_tokens": 64,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "stop_sequences": ["END"],
        "temperature": 0.5,
    }
    assert (reply.text, reply.stop_reason, reply.cached) == ("Hello.", "end", False)
    cost_usd = (10 * 1.0 + 100 * 0.1 + 1_000 * 1.25 + 5 * 5.0) / 1e6
    assert reply.usage == Usage(
        model_calls=1, input_tokens=1_110, output_tokens=5, cached_tokens=100, cost_usd=pytest.approx(cost_usd)
    )


async def test_a_stop_of_white_space_is_cut_here() -> None:
    async with claude(message({"type": "text", "text": "one\ntwo"})) as (backend, server):
        reply = await backend.complete(ask(stop=("\n",)), seed=0)
    assert "stop_sequences" not in server.asked[0].body
    assert (reply.text, reply.stop_reason) == ("one", "stop")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("end_turn", "end"),
        ("max_tokens", "length"),
        ("stop_sequence", "stop"),
        ("tool_use", "tool_calls"),
        ("refusal", "refusal"),
        ("model_context_window_exceeded", "length"),
        ("something_new", "end"),
    ],
)
async def test_stop_reasons(given: str, expected: str) -> None:
    async with claude(message(stop_reason=given)) as (backend, _):
        assert (await backend.complete(ask(), seed=0)).stop_reason == expected


async def test_a_tool_call_goes_round() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1, "b": 2}}
    other = {**call, "id": "toolu_2"}
    first = message({"type": "text", "text": "Adding."}, call, other, stop_reason="tool_use")
    async with claude(first, message()) as (backend, server):
        question = {"role": "user", "content": "1+2?"}
        reply = await backend.complete(CompleteRequest(messages=(question,), tools=(TOOL,)), seed=0)
        assert reply.stop_reason == "tool_calls"
        assert reply.tool_calls[0] == {"id": "toolu_1", "name": "add", "arguments": {"a": 1, "b": 2}}
        turn = {"role": "assistant", "content": reply.text, "tool_calls": reply.tool_calls}
        results = [{"role": "tool", "tool_call_id": c["id"], "content": "3"} for c in reply.tool_calls]
        await backend.complete(CompleteRequest(messages=(question, turn, *results), tools=(TOOL,)), seed=0)
    assert server.asked[0].body["tools"] == [
        {"name": "add", "description": "Add two numbers.", "input_schema": TOOL["parameters"]}
    ]
    sent = server.asked[1].body["messages"]
    assert sent[1] == {"role": "assistant", "content": [{"type": "text", "text": "Adding."}, call, other]}
    assert sent[2]["role"] == "user"
    assert [block["tool_use_id"] for block in sent[2]["content"]] == ["toolu_1", "toolu_2"]
    assert len(sent) == 3
    assert sent[2]["content"][1]["cache_control"] == {"type": "ephemeral"}


async def test_thinking_goes_back_with_the_tool_call_that_it_led_to() -> None:
    thinking = {"type": "thinking", "thinking": "", "signature": "c2ln"}
    call = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}}
    async with claude(message(thinking, call, stop_reason="tool_use"), message(), model="claude-opus-5-5") as (
        backend,
        server,
    ):
        question = {"role": "user", "content": "?"}
        reply = await backend.complete(CompleteRequest(messages=(question,), tools=(TOOL,)), seed=0)
        assert reply.text == ""
        turn = {"role": "assistant", "content": "", "tool_calls": reply.tool_calls}
        result = {"role": "tool", "tool_call_id": "toolu_1", "content": "1"}
        await backend.complete(CompleteRequest(messages=(question, turn, result), tools=(TOOL,)), seed=0)
        changed = {**turn, "content": "I changed this."}
        await backend.complete(CompleteRequest(messages=(question, changed, result), tools=(TOOL,)), seed=0)
    assert server.asked[1].body["messages"][1]["content"] == [thinking, call]
    assert server.asked[2].body["messages"][1]["content"] == [{"type": "text", "text": "I changed this."}, call]


async def test_a_schema_constrains_the_output() -> None:
    schema = {
        "type": "object",
        "properties": {"label": {"enum": ["a", "b"]}, "note": {"type": ["string", "null"], "maxLength": 5}},
        "required": ["label"],
    }
    async with claude(message({"type": "text", "text": '{"label": "a"}'})) as (backend, server):
        reply = await backend.complete(ask(schema=schema), seed=0)
        assert reply.text == '{"label": "a"}'
        with pytest.raises(UnsupportedRequest, match="this schema"):
            await backend.complete(ask(schema={"description": "anything"}), seed=0)
    sent = server.asked[0].body["output_config"]["format"]
    assert sent["type"] == "json_schema"
    assert sent["schema"]["additionalProperties"] is False
    assert sent["schema"]["properties"]["label"] == {"enum": ["a", "b"]}
    assert [part["type"] for part in sent["schema"]["properties"]["note"]["anyOf"]] == ["string", "null"]


@pytest.mark.parametrize(
    ("model", "body", "hidden"),
    [
        ("claude-sonnet-4-6", {"temperature": 0.0}, 0),
        ("claude-haiku-4-5-20251001", {"temperature": 0.0}, 0),
        ("claude-opus-4-8", {}, 0),
        ("claude-sonnet-5", {"thinking": {"type": "disabled"}}, 0),
        ("claude-sonnet-5-5", {"thinking": {"type": "between_tools"}}, 0),
        ("claude-haiku-5-5", {"thinking": {"type": "disabled"}}, 0),
        ("claude-fable-5-2", {"output_config": {"effort": "low"}}, 4096),
        ("claude-opus-9", {}, 4096),
        ("anthropic.claude-sonnet-5-v1:0", {"thinking": {"type": "disabled"}}, 0),
        ("anthropic/claude-opus-5@20260724", {"thinking": {"type": "disabled"}}, 0),
        ("some-other-model", {"temperature": 0.0}, 0),
    ],
)
async def test_each_model_gets_what_it_takes(model: str, body: dict[str, Any], hidden: int) -> None:
    async with claude(message(), model=model, allow_unknown_price=True) as (backend, server):
        await backend.complete(ask(max_tokens=10, temperature=0.0), seed=0)
        assert backend.info.hidden_tokens == hidden
    sent = server.asked[0].body
    assert {name: sent[name] for name in ("temperature", "thinking", "output_config") if name in sent} == body
    assert sent["max_tokens"] == 10 + hidden


def test_a_temperature_that_would_do_nothing_is_refused() -> None:
    with pytest.raises(SpecError, match=r"model.temperature: claude-sonnet-5 takes no sampling temperature"):
        create_backend(ModelSpec(ref="anthropic/claude-sonnet-5", temperature=0.3))


ERRORS: list[tuple[Answer, type[MetaharnessError], str]] = [
    (error(400, "invalid_request_error", "prompt is too long"), ModelRefused, "HTTP 400: prompt is too long"),
    (error(400, "invalid_request_error", "Your credit balance is too low"), ModelAccessError, "no credit left"),
    (error(400, "invalid_request_error", "tools.0: billing_error is no type"), ModelRefused, "HTTP 400"),
    (error(401, "authentication_error", f"invalid x-api-key {KEY}"), ModelAccessError, "ANTHROPIC_API_KEY"),
    (error(402, "billing_error", "Pay first"), ModelAccessError, "no credit left"),
    (error(403, "permission_error", "Not yours"), ModelAccessError, "HTTP 403"),
    (error(404, "not_found_error", "model: claude-x"), ModelAccessError, "knows no such model"),
    (error(413, "request_too_large", "Too large"), ModelRefused, "HTTP 413"),
    (error(429, "rate_limit_error", "Slow down", retry_after="7"), ModelUnavailable, "HTTP 429"),
    (error(500, "api_error", "Oops"), ModelUnavailable, "HTTP 500"),
    (error(529, "overloaded_error", "Overloaded"), ModelUnavailable, "HTTP 529"),
    (Answer(b"<html>502 Bad Gateway</html>", 502, {"content-type": "text/html"}), ModelUnavailable, "HTTP 502"),
    (Answer(b"not json"), ModelUnavailable, "anthropic/claude-haiku-4-5"),
    (Answer({"completely": "different"}), ModelUnavailable, "no Messages API reply"),
    (Answer(b"<html>hello</html>", 200, {"content-type": "text/html"}), ModelUnavailable, "no Messages API reply"),
    (Answer(drop=True), ModelUnavailable, "onnection"),
    (message(), ModelUnavailable, "imed out"),
]
ERRORS[-1][0].hang_s = 2.0


@pytest.mark.parametrize(("answer", "kind", "text"), ERRORS, ids=[f"{e[0].status}-{e[2]}" for e in ERRORS])
async def test_errors_have_a_class_and_no_key(answer: Answer, kind: type[MetaharnessError], text: str) -> None:
    async with claude(answer, timeout_s=0.3) as (backend, server):
        with pytest.raises(kind, match=text) as caught:
            await backend.complete(ask(), seed=0)
        assert len(server.asked) == 1  # the SDK's own retries are off
    assert "\n" not in str(caught.value)
    assert KEY not in str(caught.value)
    if isinstance(caught.value, ModelUnavailable) and "429" in text:
        assert caught.value.retry_after_s == 7.0


async def test_through_the_gateway_a_busy_provider_is_asked_again() -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    busy = error(429, "rate_limit_error", "Slow down", retry_after="3")
    late = message()
    late.hang_s = 1.0
    async with claude(busy, error(500, "api_error", "Oops"), late, message()) as (backend, server):
        way = gateway(backend, retries=4, sleep=sleep, timeout_s=0.3)
        reply = await way.port(scope="task", attempt=0).complete(ask())
    assert reply.text == "Hello."
    assert len(server.asked) == 4
    assert pauses[0] >= 3.0


async def test_choose_is_unsupported() -> None:
    async with claude(message()) as (backend, server):
        with pytest.raises(UnsupportedRequest):
            await backend.choose(ChooseRequest(prompt="x", choices=("a",)))
        assert not backend.info.can_choose
    assert not server.asked


def test_the_key_is_named_when_it_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    with pytest.raises(ModelAccessError, match="ANTHROPIC_API_KEY is not set"):
        create_backend(ModelSpec(ref="anthropic/claude-haiku-4-5"))
    with pytest.raises(ModelAccessError, match="MY_KEY is not set"):
        create_backend(ModelSpec(ref="anthropic/claude-haiku-4-5", api_key_env="MY_KEY"))
    monkeypatch.setenv("MY_KEY", "sk-\n\u201c")
    with pytest.raises(ModelAccessError, match="MY_KEY holds characters that no key has"):
        create_backend(ModelSpec(ref="anthropic/claude-haiku-4-5", api_key_env="MY_KEY"))


async def test_the_identity_has_no_secrets_and_no_price() -> None:
    spec = ModelSpec(ref="anthropic/claude-haiku-4-5", base_url="https://user:pass@proxy.example:8443/v?token=abc")
    backend = create_backend(spec)
    try:
        shown = f"{backend.info} {backend!r} {vars(backend)}"
        assert backend.info.identity["base_url"] == "https://proxy.example:8443/v"
        assert KEY not in shown
        assert "pass" not in str(backend.info)
        price = PriceSpec(input_usd_per_mtok=9, output_usd_per_mtok=9)
        dear = create_backend(spec.model_copy(update={"price": price}))
        assert dear.info.digest == backend.info.digest
        await dear.aclose()
    finally:
        await backend.aclose()
