"""The real openai SDK against a loopback chat completions API."""

from __future__ import annotations

import json
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
from metaharness.models.openai_backend import OpenAIBackend
from metaharness.models.prices import FREE
from metaharness.models.provider import ApiKey
from metaharness.protocols import ModelBackend
from metaharness.spec import ModelSpec
from tests.models.doubles import ask, gateway
from tests.models.loopback import Answer, Loopback, loopback

KEY = "sk-proj-secret-1234"
TOOL = {
    "name": "add",
    "description": "Add two numbers.",
    "parameters": {"type": "object", "properties": {"a": {"type": "number"}}},
}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for name in ("OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def completion(finish_reason: str = "stop", usage: dict[str, Any] | None = None, **message: Any) -> Answer:
    used = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105} if usage is None else usage
    return Answer(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-4.1-mini",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": finish_reason,
                    "message": {"role": "assistant", "content": "Hello.", **message},
                }
            ],
            **({"usage": used} if used else {}),
        }
    )


def error(status: int, text: str, code: str | None = None, **headers: str) -> Answer:
    body = {"error": {"message": text, "type": "some_error", "param": None, "code": code}}
    return Answer(body, status, {name.replace("_", "-"): value for name, value in headers.items()})


@asynccontextmanager
async def gpt(
    *answers: Answer, model: str = "gpt-4.1-mini", **spec: Any
) -> AsyncIterator[tuple[ModelBackend, Loopback]]:
    async with loopback(*answers) as server:
        backend = create_backend(ModelSpec(ref=f"openai/{model}", base_url=f"{server.url}/v1", **spec))
        try:
            yield backend, server
        finally:
            await backend.aclose()


async def test_a_plain_call() -> None:
    usage = {
        "prompt_tokens": 1_000,
        "completion_tokens": 5,
        "total_tokens": 1_005,
        "prompt_tokens_details": {"cached_tokens": 400, "cache_write_tokens": 100},
    }
    async with gpt(completion(usage=usage)) as (backend, server):
        request = ask("Hi", system="Be brief.", max_tokens=64, temperature=0.5, stop=("END",))
        reply = await backend.complete(request, seed=42)
    asked = server.asked[0]
    assert (asked.method, asked.path) == ("POST", "/v1/chat/completions")
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body == {
        "model": "gpt-4.1-mini",
        "max_tokens": 64,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "stop": ["END"],
        "temperature": 0.5,
        "seed": 42,
    }
    assert (reply.text, reply.stop_reason, reply.cached) == ("Hello.", "end", False)
    cost_usd = (500 * 0.40 + 400 * 0.10 + 100 * 0.50 + 5 * 1.60) / 1e6
    assert reply.usage == Usage(
        model_calls=1, input_tokens=1_000, output_tokens=5, cached_tokens=400, cost_usd=pytest.approx(cost_usd)
    )


async def test_a_server_that_does_not_count_is_charged_at_the_most_it_can_have_used() -> None:
    async with gpt(completion(usage={})) as (backend, _):
        reply = await backend.complete(ask("x" * 100), seed=0)
    assert reply.usage.input_tokens >= 100
    assert reply.usage.output_tokens == len("Hello.")
    assert reply.usage.cost_usd > 0


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("stop", "end"),
        ("length", "length"),
        ("tool_calls", "tool_calls"),
        ("content_filter", "refusal"),
        ("new", "end"),
    ],
)
async def test_stop_reasons(given: str, expected: str) -> None:
    async with gpt(completion(given)) as (backend, _):
        assert (await backend.complete(ask(), seed=0)).stop_reason == expected


async def test_a_refusal_is_told() -> None:
    async with gpt(completion(content=None, refusal="I cannot help with that.")) as (backend, _):
        reply = await backend.complete(ask(), seed=0)
    assert (reply.text, reply.stop_reason) == ("I cannot help with that.", "refusal")


async def test_a_tool_call_goes_round() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    broken = {"id": "call_2", "type": "function", "function": {"name": "add", "arguments": '{"a": '}}
    first = completion("stop", content=None, tool_calls=[call, broken])
    async with gpt(first, completion()) as (backend, server):
        question = {"role": "user", "content": "?"}
        reply = await backend.complete(CompleteRequest(messages=(question,), tools=(TOOL,)), seed=0)
        assert (reply.text, reply.stop_reason) == ("", "tool_calls")
        assert reply.tool_calls == (
            {"id": "call_1", "name": "add", "arguments": {"a": 1}},
            {"id": "call_2", "name": "add", "arguments": {"invalid_arguments": '{"a": '}},
        )
        turn = {"role": "assistant", "content": "", "tool_calls": reply.tool_calls[:1]}
        result = {"role": "tool", "tool_call_id": "call_1", "content": "1"}
        await backend.complete(CompleteRequest(messages=(question, turn, result), tools=(TOOL,)), seed=0)
    assert server.asked[0].body["tools"] == [{"type": "function", "function": TOOL}]
    sent = server.asked[1].body["messages"]
    assert sent[1] == {"role": "assistant", "content": None, "tool_calls": [call]}
    assert sent[2] == {"role": "tool", "tool_call_id": "call_1", "content": "1"}


async def test_a_schema_constrains_the_output() -> None:
    schema = {"type": "object", "properties": {"label": {"enum": ["a", "b"]}}}
    async with gpt(completion(content='{"label": "a"}')) as (backend, server):
        assert (await backend.complete(ask(schema=schema), seed=0)).text == '{"label": "a"}'
        await backend.complete(ask(schema={"type": "array"}), seed=0)
    strict = server.asked[0].body["response_format"]["json_schema"]
    assert strict["strict"] is True
    assert strict["schema"] == {**schema, "additionalProperties": False, "required": ["label"]}
    assert server.asked[1].body["response_format"]["json_schema"]["strict"] is False


async def test_a_server_that_wants_the_other_limit_gets_it() -> None:
    refusal = error(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
    async with gpt(refusal, completion()) as (backend, server):
        await backend.complete(ask(max_tokens=9), seed=0)
        await backend.complete(ask(max_tokens=9), seed=0)
    assert [sorted(k for k in a.body if k.startswith("max")) for a in server.asked] == [
        ["max_tokens"],
        ["max_completion_tokens"],
        ["max_completion_tokens"],
    ]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-4o-mini-2024-07-18", {"temperature": 0.0, "max_completion_tokens": 10, "stop": ["\n"]}),
        ("ft:gpt-4.1-mini:acme::1", {"temperature": 0.0, "max_completion_tokens": 10, "stop": ["\n"]}),
        ("gpt-6-luna", {"temperature": 0.0, "max_completion_tokens": 10, "reasoning_effort": "none"}),
        ("gpt-5-mini-2025-08-07", {"max_completion_tokens": 10 + 4096, "reasoning_effort": "minimal"}),
        ("gpt-6.2-sol", {"max_completion_tokens": 10 + 4096, "reasoning_effort": "low"}),
        ("gpt-9", {"max_completion_tokens": 10 + 4096}),
    ],
)
async def test_each_of_openais_models_gets_what_it_takes(model: str, expected: dict[str, Any]) -> None:
    spec = ModelSpec(ref=f"openai/{model}", base_url="https://api.openai.com/v1")
    backend = OpenAIBackend(spec, key=ApiKey("OPENAI_API_KEY", KEY), price=FREE)
    try:
        sent = backend._arguments(ask(max_tokens=10, temperature=0.0, stop=("\n",)), seed=7)
        fixed = {"model": model, "messages": [{"role": "user", "content": "hello"}], "seed": 7}
        assert sent == {**fixed, **expected}
        assert backend.info.can_tools == (model != "gpt-6.2-sol")
        with pytest.raises(UnsupportedRequest, match="this schema"):
            backend._arguments(ask(schema={"type": "array"}), seed=7)
    finally:
        await backend.aclose()


async def test_a_proxy_before_openais_models_passes_their_restrictions_on() -> None:
    async with gpt(completion(), model="openai/gpt-6.2-sol", allow_unknown_price=True) as (backend, server):
        await backend.complete(ask(max_tokens=10, temperature=0.0), seed=0)
        assert backend.info.can_tools
    sent = server.asked[0].body
    assert (sent["model"], sent["reasoning_effort"]) == ("openai/gpt-6.2-sol", "low")
    assert "temperature" not in sent
    assert sent["max_completion_tokens"] == 10 + 4096


async def test_a_stop_that_is_not_sent_is_cut_here() -> None:
    async with gpt(completion(content="1\n2\n3")) as (backend, _):
        reply = await backend.complete(ask(stop=("a", "b", "c", "d", "\n2")), seed=0)
    assert (reply.text, reply.stop_reason) == ("1", "stop")


def test_a_temperature_that_would_do_nothing_is_refused() -> None:
    with pytest.raises(SpecError, match=r"gpt-6\.2-sol takes no sampling temperature"):
        create_backend(ModelSpec(ref="openai/gpt-6.2-sol", temperature=0.3))


ERRORS: list[tuple[Answer, type[MetaharnessError], str]] = [
    (error(400, "maximum context length", "context_length_exceeded"), ModelRefused, "HTTP 400: maximum context"),
    (error(401, f"Incorrect API key provided: {KEY}", "invalid_api_key"), ModelAccessError, "OPENAI_API_KEY"),
    (error(403, "Country not supported"), ModelAccessError, "HTTP 403"),
    (error(403, "Your input was flagged"), ModelRefused, "HTTP 403: Your input was flagged"),
    (error(404, "The model does not exist", "model_not_found"), ModelAccessError, "knows no such model"),
    (error(429, "Rate limit reached", "rate_limit_exceeded", retry_after="7"), ModelUnavailable, "HTTP 429"),
    (error(429, "You exceeded your current quota", "insufficient_quota"), ModelAccessError, "no credit left"),
    (error(500, "Oops"), ModelUnavailable, "HTTP 500"),
    (error(503, f"Upstream said:\n{KEY} is bad"), ModelUnavailable, r"Upstream said: \*\*\* is bad"),
    (Answer(b"not json"), ModelUnavailable, "openai/gpt-4.1-mini"),
    (Answer({"choices": []}), ModelUnavailable, "no chat completion"),
    (Answer(b"<html>hello</html>", 200, {"content-type": "text/html"}), ModelUnavailable, "no chat completion"),
    (Answer(drop=True), ModelUnavailable, "onnection"),
    (completion(), ModelUnavailable, "imed out"),
]
ERRORS[-1][0].hang_s = 2.0


@pytest.mark.parametrize(("answer", "kind", "text"), ERRORS, ids=[f"{e[0].status}-{e[2]}" for e in ERRORS])
async def test_errors_have_a_class_and_no_key(answer: Answer, kind: type[MetaharnessError], text: str) -> None:
    async with gpt(answer, timeout_s=0.3) as (backend, server):
        with pytest.raises(kind, match=text) as caught:
            await backend.complete(ask(), seed=0)
        assert len(server.asked) == 1  # the SDK's own retries are off
    assert "\n" not in str(caught.value)
    assert KEY not in str(caught.value)
    if isinstance(caught.value, ModelUnavailable) and "429" in text:
        assert caught.value.retry_after_s == 7.0


async def test_through_the_gateway_a_hang_is_a_time_out_and_asked_again() -> None:
    late = completion()
    late.hang_s = 1.0
    async with gpt(late, completion()) as (backend, server):
        way = gateway(backend, retries=1, timeout_s=0.2, sleep=_no_sleep)
        reply = await way.port(scope="task", attempt=0).complete(ask())
    assert reply.text == "Hello."
    assert len(server.asked) == 2


async def _no_sleep(seconds: float) -> None:
    return


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    async with gpt(completion()) as (backend, server):
        url = server.url
    spec = ModelSpec(ref="openai/x", base_url=url, allow_unknown_price=True)
    backend = create_backend(spec)
    try:
        with pytest.raises(ModelUnavailable, match=f"onnection.*{url}"):
            await backend.complete(ask(), seed=0)
    finally:
        await backend.aclose()


async def test_an_endpoint_of_ones_own_needs_no_key_and_openais_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    async with gpt(completion()) as (backend, server):
        await backend.complete(ask(), seed=0)
    assert KEY not in json.dumps(server.asked[0].headers)
    with pytest.raises(ModelAccessError, match="OPENAI_API_KEY is not set"):
        create_backend(ModelSpec(ref="openai/gpt-4.1-mini"))
    with pytest.raises(ModelAccessError, match="MY_KEY is not set"):
        create_backend(ModelSpec(ref="openai/gpt-4.1-mini", base_url="http://127.0.0.1:1", api_key_env="MY_KEY"))


async def test_the_identity_has_no_secrets() -> None:
    async with gpt(completion()) as (backend, server):
        assert backend.info.identity["base_url"] == f"{server.url}/v1"
        assert KEY not in f"{backend.info} {backend!r} {vars(backend)}"
        with pytest.raises(UnsupportedRequest):
            await backend.choose(ChooseRequest(prompt="x", choices=("a",)))
