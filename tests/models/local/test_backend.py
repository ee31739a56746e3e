"""The real model: chat, schemas, exact choices, determinism."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import pytest

from metaharness.errors import ModelRefused, SpecError, UnsupportedRequest
from metaharness.exchange import ChooseRequest, CompleteRequest
from metaharness.models import create_backend
from metaharness.models.bounds import most_input_tokens
from metaharness.models.local import CATALOG, LocalBackend, LocalModel
from metaharness.models.local.worker import Worker
from metaharness.spec import ModelSpec
from tests.models.local.conftest import SMALL

PROMPT = (
    "Classify the message into one category: refund, shipping, login, billing.\n"
    "Message: where is my parcel\nCategory: shipping\nMessage: the app crashes when I open it\nCategory:"
)
LABELS = (" refund", " shipping", " login", " billing")


def ask(text: str, **fields: Any) -> CompleteRequest:
    return CompleteRequest(messages=({"role": "user", "content": text},), **{"max_tokens": 12, **fields})


async def choose(backend: LocalBackend, prompt: str, *choices: str) -> list[float]:
    reply = await backend.choose(ChooseRequest(prompt=prompt, choices=choices))
    assert reply.logprobs is not None
    return list(reply.logprobs)


async def worker_of(backend: LocalBackend) -> Worker:
    """A connection of our own to a worker, past the backend."""
    await backend.complete(ask("hi", max_tokens=1), seed=0)
    return Worker(backend.directory / "w0.sock")


async def test_it_answers_in_chat(backend: LocalBackend) -> None:
    reply = await backend.complete(ask("What is the capital of France?", system="Be brief.", max_tokens=30), seed=1)
    assert "Paris" in reply.text
    assert reply.stop_reason == "end"
    assert reply.usage.model_calls == 1
    assert 10 < reply.usage.input_tokens < 60
    assert 1 <= reply.usage.output_tokens <= 30
    assert reply.usage.cost_usd == 0


async def test_history_and_system_prompt_reach_the_model(backend: LocalBackend) -> None:
    short = ask("And now?")
    long = CompleteRequest(
        messages=(
            {"role": "user", "content": "My name is Zebulon."},
            {"role": "assistant", "content": "Hello Zebulon."},
            {"role": "user", "content": "And now?"},
        ),
        system="You know everybody's name.",
        max_tokens=12,
    )
    few, many = [(await backend.complete(request, seed=1)).usage.input_tokens for request in (short, long)]
    assert many > few


async def test_why_a_reply_ended(backend: LocalBackend) -> None:
    cut = await backend.complete(ask("Tell a long story.", max_tokens=5), seed=1)
    assert (cut.stop_reason, cut.usage.output_tokens) == ("length", 5)
    count = ask("Count from 1 to 9, separated by commas.", max_tokens=40)
    whole = await backend.complete(count, seed=1)
    assert "3" in whole.text
    stopped = await backend.complete(ask("Count from 1 to 9, separated by commas.", max_tokens=40, stop=("3",)), seed=1)
    assert stopped.stop_reason == "stop"
    assert stopped.text == whole.text[: whole.text.index("3")]


async def test_the_cache_and_its_count(backend: LocalBackend) -> None:
    request = ask("Please describe, in a few words, the colours of a parrot in spring.")
    first, second = [await backend.complete(request, seed=1) for _ in range(2)]
    assert first.text == second.text
    assert first.usage.input_tokens == second.usage.input_tokens
    assert second.usage.cached_tokens == second.usage.input_tokens - 1
    assert first.usage.cached_tokens < second.usage.cached_tokens


async def test_seeds(backend: LocalBackend) -> None:
    request = ask("Tell me something surprising.", temperature=1.0)
    texts = [(await backend.complete(request, seed=seed)).text for seed in (1, 2, 3, 1)]
    assert texts[0] == texts[3]
    assert len(set(texts)) == 3
    cold = ask("Tell me something surprising.", temperature=0.0)
    assert len({(await backend.complete(cold, seed=seed)).text for seed in (1, 2)}) == 1


async def test_the_default_temperature(backend: LocalBackend) -> None:
    warm = LocalBackend(CATALOG["smollm2-135m"], settings=SMALL, temperature=1.5)
    texts = {(await warm.complete(ask("Tell me something surprising."), seed=seed)).text for seed in range(3)}
    await warm.aclose()
    assert len(texts) == 3
    assert warm.info.digest != backend.info.digest
    assert warm.directory == backend.directory


async def test_replies_do_not_depend_on_what_else_is_asked(backend: LocalBackend) -> None:
    """Equal requests give equal replies with an empty and a full cache, alone and together, on every worker."""
    long = " ".join(f"The {colour} box holds {number} marbles." for number, colour in enumerate(["red", "blue"] * 12))
    requests = [ask(f"{long} Question {number}?", temperature=0.7 * (number % 2)) for number in range(4)]
    choice = ChooseRequest(prompt=PROMPT, choices=(*LABELS, " zygote quark"))

    async def all_of() -> list[Any]:
        chats = [backend.complete(request, seed=7) for request in requests]
        return list(await asyncio.gather(*chats, backend.choose(choice), backend.choose(choice)))

    alone = [await backend.complete(request, seed=7) for request in requests] + [await backend.choose(choice)]
    together = await all_of() + await all_of()
    assert [reply.text for reply in together] == [reply.text for reply in [*alone, alone[-1]] * 2]
    assert {reply.logprobs for reply in together if reply.logprobs} == {alone[-1].logprobs}


async def test_probabilities_are_equal_to_the_last_bit_whatever_is_cached(backend: LocalBackend) -> None:
    """Token by token, two by two, and all at once, also where the cache grows beyond one block of 256 tokens."""
    worker = await worker_of(backend)
    story = " ".join(f"In town {number} the baker sold {number * 7 % 13} loaves of bread." for number in range(40))
    (tokens,) = await worker.tokenize([story])

    async def ask_at(length: int, *, cache: bool) -> tuple[float, int]:
        body = {"prompt": tokens[:length], "n_predict": 1, "temperature": 0, "n_probs": 1, "id_slot": 0}
        reply = await worker.complete({**body, "cache_prompt": cache})
        return reply["completion_probabilities"][0]["logprob"], reply["timings"]["prompt_n"]

    for start, end in ((4, 20), (254, 262)):
        whole = {length: await ask_at(length, cache=False) for length in range(start, end + 1, 4)}
        for step in (1, 2, 4):
            await ask_at(start, cache=False)
            for length in range(start + step, end + 1, step):
                logprob, evaluated = await ask_at(length, cache=True)
                assert evaluated == step
                if length in whole:
                    assert logprob == whole[length][0], (length, step)
    await worker.aclose()


async def test_a_schema_holds_the_reply(backend: LocalBackend) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    reply = await backend.complete(ask("Describe Tom, who is 31.", schema=schema, max_tokens=60), seed=1)
    assert reply.stop_reason == "end"
    assert "\n" not in reply.text
    assert {key: type(value) for key, value in json.loads(reply.text).items()} == {"name": str, "age": int}
    enum = {"enum": ["refund", "login"]}
    assert json.loads((await backend.complete(ask("Which?", schema=enum), seed=1)).text) in enum["enum"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"enum": []},
        {"$ref": "https://example.org/schema"},
        {"type": "string", "pattern": "(?=x)["},
    ],
    ids=["type", "unsatisfiable", "reference", "pattern"],
)
async def test_a_schema_that_cannot_be_held_is_refused(backend: LocalBackend, schema: dict[str, Any]) -> None:
    for _ in range(2):
        with pytest.raises(ModelRefused, match="schema: not valid"):
            await backend.complete(ask("x", schema=schema), seed=1)


async def test_choices_against_one_request_for_each_token(backend: LocalBackend) -> None:
    choices = (*LABELS, " refund", " refund of the parcel", " zygote quark", " 42!", " shipping and billing", "")
    found = await choose(backend, PROMPT, *choices)
    worker = await worker_of(backend)
    prompt, *wholes = await worker.tokenize([PROMPT, *(PROMPT + choice for choice in choices)])
    for choice, whole, logprob in zip(choices, wholes, found, strict=True):
        assert whole[: len(prompt)] == prompt
        expected = 0.0
        for at in range(len(prompt), len(whole)):
            body = {"prompt": whole[:at], "n_predict": 1, "temperature": 0, "cache_prompt": False, "n_probs": 1}
            reply = await worker.complete({**body, "logit_bias": [[whole[at], 1000]]})
            (entry,) = reply["completion_probabilities"]
            assert entry["id"] == whole[at]
            expected += entry["logprob"]
        assert logprob == pytest.approx(expected, abs=1e-3), choice
    await worker.aclose()
    assert found[0] == found[4]
    assert found[5] < found[0]
    assert found[-1] == 0.0


async def test_probabilities_of_all_tokens_add_up(backend: LocalBackend) -> None:
    worker = await worker_of(backend)
    reply = await worker.complete({"prompt": PROMPT, "n_predict": 1, "temperature": 0, "n_probs": 49_152})
    await worker.aclose()
    top = reply["completion_probabilities"][0]["top_logprobs"]
    assert sum(math.exp(entry["logprob"]) for entry in top) == pytest.approx(1, abs=1e-3)
    found = await choose(backend, PROMPT, *(entry["token"] for entry in top[:20]))
    assert found == pytest.approx([entry["logprob"] for entry in top[:20]], abs=1e-3)


async def test_a_choice_that_merges_with_the_end_of_the_prompt(backend: LocalBackend) -> None:
    """A prompt that ends in a space: its last token is taken back, so that the labels keep their usual tokens."""
    usual = await choose(backend, PROMPT, *LABELS)
    merged = await choose(backend, PROMPT + " ", *(label.strip() for label in LABELS))
    assert merged == pytest.approx(usual, abs=1e-3)


async def test_cost_of_a_choice(backend: LocalBackend) -> None:
    request = ChooseRequest(prompt=PROMPT, choices=(" refund", " refund request", " login"))
    await backend.choose(request)
    reply = await backend.choose(request)
    worker = await worker_of(backend)
    (prompt,) = await worker.tokenize([PROMPT])
    await worker.aclose()
    # The prompt, and the one token that is evaluated to score what follows it.
    assert reply.usage.input_tokens == len(prompt) + 1
    assert reply.usage.cached_tokens == len(prompt) - 1
    assert reply.usage.output_tokens == 0
    assert reply.usage.input_tokens <= most_input_tokens(request)


async def test_a_prompt_is_needed_to_choose(backend: LocalBackend) -> None:
    with pytest.raises(ModelRefused, match="at least one token"):
        await choose(backend, "", "a", "b")


async def test_special_tokens_in_a_raw_prompt_are_special(backend: LocalBackend) -> None:
    worker = await worker_of(backend)
    tokens = await worker.tokenize(["<|im_start|>user\nHi<|im_end|>", "Hi", "<|im_end|><|endoftext|><|im_end|>"])
    await worker.aclose()
    assert tokens[0][0] == 1
    assert tokens[0][-1] == 2
    assert len(tokens[1]) == 1


async def test_texts_that_look_like_the_separator_are_kept_apart(backend: LocalBackend) -> None:
    worker = await worker_of(backend)
    nasty = "<|im_end|><|endoftext|><|im_end|><|im_start|><|endoftext|><|im_end|>"
    texts = [f"a{nasty}b", "", nasty, "c"]
    together = await worker.tokenize(texts)
    single = [(await worker.tokenize([text, "x"]))[0] for text in ("", "c")]
    await worker.aclose()
    assert len(together) == len(texts)
    assert [together[1], together[3]] == single
    assert together[2] == [2, 0, 2, 1, 0, 2]


@pytest.mark.parametrize("kind", ["complete", "choose"])
async def test_a_prompt_that_does_not_fit_is_refused(backend: LocalBackend, kind: str) -> None:
    text = "word " * (SMALL.context_tokens + 1)
    with pytest.raises(ModelRefused, match="exceeds the available context size"):
        await (backend.complete(ask(text), seed=1) if kind == "complete" else choose(backend, text, "a", "b"))


async def test_a_reply_ends_with_the_context(backend: LocalBackend) -> None:
    reply = await backend.complete(ask("word " * (SMALL.context_tokens - 60), max_tokens=500), seed=1)
    assert reply.stop_reason in ("length", "end")
    assert reply.usage.input_tokens + reply.usage.output_tokens <= SMALL.context_tokens + 1


async def test_text_that_is_no_text_is_refused(backend: LocalBackend) -> None:
    with pytest.raises(ModelRefused, match="surrogate"):
        await backend.complete(ask("bad \ud800 text"), seed=1)


async def test_tools_are_unsupported(backend: LocalBackend) -> None:
    with pytest.raises(UnsupportedRequest, match="schema"):
        await backend.complete(ask("x", tools=({"name": "f", "parameters": {}},)), seed=1)
    assert not backend.info.can_tools


async def test_a_base_model_has_no_chat(backend: LocalBackend) -> None:
    chat = CATALOG["smollm2-135m"]
    fields = {name: getattr(chat, name) for name in LocalModel.__slots__}
    base = LocalBackend(LocalModel(**{**fields, "chat": False}), settings=SMALL)
    with pytest.raises(UnsupportedRequest, match="base model"):
        await base.complete(ask("x"), seed=1)
    assert not base.info.can_schema
    assert await choose(base, PROMPT, *LABELS) == await choose(backend, PROMPT, *LABELS)
    await base.aclose()


async def test_a_cancelled_call_leaves_room_for_the_next(backend: LocalBackend) -> None:
    story = ask("Tell a very long story about the sea, with many chapters.", max_tokens=400)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(backend.complete(story, seed=1), 0.5)
    replies = await asyncio.wait_for(
        asyncio.gather(*(backend.complete(ask("hi", max_tokens=1), seed=1) for _ in range(8))), 60
    )
    assert len({reply.text for reply in replies}) == 1


async def test_identity_says_what_can_change_a_reply(backend: LocalBackend) -> None:
    identity = backend.info.identity
    assert identity["weights_sha256"] == CATALOG["smollm2-135m"].served_sha256
    assert identity["runtime"].startswith("xllamacpp 20")
    assert identity["mode"] == "deterministic"
    assert identity["threads"] == 1
    assert backend.info.honours_seed


def test_an_unknown_model_names_those_known() -> None:
    with pytest.raises(SpecError, match=r"model\.ref: unknown local model 'smollm2'; did you mean 'smollm2-135m'"):
        create_backend(ModelSpec(ref="local/smollm2"))


async def test_it_is_created_from_a_spec(backend: LocalBackend) -> None:
    made = create_backend(ModelSpec(ref="local/smollm2-135m", temperature=0.5))
    assert made.info.ref == "local/smollm2-135m"
    assert made.info.identity["default_temperature"] == 0.5
    await made.aclose()
