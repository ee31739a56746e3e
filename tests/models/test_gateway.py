"""The gateway: cache, occurrences, budget, single flight, retries, records."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaharness.budget import Budget, Caps, Usage
from metaharness.errors import (
    BudgetExhausted,
    ModelAccessError,
    ModelRefused,
    ModelUnavailable,
    UnsupportedRequest,
)
from metaharness.exchange import ChooseRequest, CompleteRequest, ModelReply, Request, reply_key, seed_of
from metaharness.ledger import Ledger
from metaharness.models.bounds import most_input_tokens, most_usage
from metaharness.models.gateway import CallRecord
from metaharness.models.prices import FREE, Price
from metaharness.models.scripted import ScriptedBackend, echo
from metaharness.protocols import ModelPort, ReplyCache
from tests.models.doubles import MemoryReplies, ask, gateway

DEAR = Price(input_usd_per_mtok=1.0, output_usd_per_mtok=10.0, cached_usd_per_mtok=0.1, cache_write_usd_per_mtok=1.25)


def seeded(request: Request, seed: int) -> str:
    return f"seed {seed}"


async def test_a_reply_is_paid_once_and_then_cached() -> None:
    backend, budget, replies = ScriptedBackend(echo), Budget(Caps()), MemoryReplies()
    first, second = gateway(backend, budget, replies, price=DEAR), gateway(backend, budget, replies, price=DEAR)
    port = first.port(scope="task", attempt=0)
    paid = await port.complete(ask())
    assert (paid.text, paid.cached, paid.usage.model_calls) == ("hello", False, 1)
    assert port.usage == paid.usage == budget.spent
    assert paid.usage.cost_usd == pytest.approx((1 * 1.0 + 1 * 10.0) / 1e6)

    again = second.port(scope="task", attempt=0)
    kept = await again.complete(ask())
    assert (kept.text, kept.cached) == ("hello", True)
    assert again.usage == Usage()
    assert budget.spent == paid.usage
    assert budget.reserved == Usage()
    assert len(backend.calls) == 1


async def test_replies_survive_in_the_ledger(tmp_path: Path) -> None:
    backend = ScriptedBackend(seeded)
    with Ledger.create(tmp_path / "campaign") as ledger:
        port = gateway(backend, replies=ledger.reply_cache("rollouts")).port(scope="task", attempt=0)
        paid = await port.complete(ask())
    with Ledger.open(tmp_path / "campaign") as ledger:
        port = gateway(backend, replies=ledger.reply_cache("rollouts")).port(scope="task", attempt=0)
        kept = await port.complete(ask())
        assert (kept.text, kept.cached) == (paid.text, True)
        assert ledger.spent() == paid.usage
    assert len(backend.calls) == 1


async def test_the_key_holds_model_settings_request_scope_attempt_and_occurrence() -> None:
    replies = MemoryReplies()
    way = gateway(ScriptedBackend(seeded), replies=replies)
    port = way.port(scope="task", attempt=3)
    votes = [await port.complete(ask()) for _ in range(3)]
    assert len({vote.text for vote in votes}) == 3
    filled = ask(temperature=0.0)
    keys = [reply_key(way.info, filled, scope="task", attempt=3, occurrence=n) for n in range(3)]
    assert list(replies.kept) == keys
    assert [vote.text for vote in votes] == [f"seed {seed_of(key)}" for key in keys]

    same = way.port(scope="task", attempt=3)
    assert [(await same.complete(ask())).text for _ in range(3)] == [vote.text for vote in votes]
    others = [way.port(scope="other", attempt=3), way.port(scope="task", attempt=4)]
    assert votes[0].text not in [(await other.complete(ask())).text for other in others]
    warm = gateway(ScriptedBackend(seeded), replies=replies, default_temperature=0.5)
    assert not (await warm.port(scope="task", attempt=3).complete(ask())).cached


async def test_equal_requests_at_the_same_time_in_one_port_are_separate() -> None:
    backend = ScriptedBackend(seeded, latency_s=0.01)
    port = gateway(backend, replies=MemoryReplies()).port(scope="task", attempt=0)
    votes = await asyncio.gather(*(port.complete(ask()) for _ in range(5)))
    assert len({vote.text for vote in votes}) == 5
    assert port.usage.model_calls == 5


@pytest.mark.parametrize("replies", [MemoryReplies(), None])
async def test_equal_keys_from_two_ports_are_asked_once(replies: ReplyCache | None) -> None:
    backend, budget = ScriptedBackend(echo, latency_s=0.01), Budget(Caps())
    way = gateway(backend, budget, replies)
    ports = [way.port(scope="task", attempt=0) for _ in range(8)]
    found = await asyncio.gather(*(port.complete(ask()) for port in ports))
    assert len(backend.calls) == 1
    assert [reply.cached for reply in found] == [False] + [True] * 7
    assert sum((port.usage for port in ports), Usage()) == budget.spent
    assert budget.spent.model_calls == 1


async def test_the_first_to_ask_may_leave_and_the_call_goes_on() -> None:
    backend, budget = ScriptedBackend(echo, latency_s=0.02), Budget(Caps())
    way = gateway(backend, budget)
    first, second = way.port(scope="task", attempt=0), way.port(scope="task", attempt=0)
    leaving = asyncio.create_task(first.complete(ask()))
    staying = asyncio.create_task(second.complete(ask()))
    await asyncio.sleep(0.005)
    leaving.cancel()
    reply = await staying
    assert leaving.cancelled()
    assert len(backend.calls) == 1
    assert not reply.cached
    assert (first.usage, second.usage) == (Usage(), budget.spent)


async def test_cancellation_gives_the_reservation_back_and_the_next_call_starts_anew() -> None:
    backend = ScriptedBackend(echo, latency_s=0.05)
    budget = Budget(Caps(tokens=10_000))
    records: list[CallRecord] = []
    way = gateway(backend, budget)
    port = way.port(scope="task", attempt=0, record=records.append)
    call = asyncio.create_task(port.complete(ask()))
    await asyncio.sleep(0.01)
    assert budget.reserved.tokens > 0
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert budget.reserved == Usage() == budget.spent
    assert [(record.error, record.reply) for record in records] == [("cancelled", None)]
    assert (await way.port(scope="task", attempt=0).complete(ask())).text == "hello"
    assert len(backend.calls) == 2


async def test_a_cap_holds_with_64_calls_at_once_and_all_that_fits_is_used() -> None:
    bound = most_usage(ask("x", temperature=0.0, max_tokens=10), DEAR)
    cost_usd = (1 * 1.0 + 10 * 10.0) / 1e6

    def spend(request: Request, seed: int) -> ModelReply:
        return ModelReply(text="y", usage=Usage(model_calls=1, input_tokens=1, output_tokens=10))

    most: list[float] = []

    class Watched(ScriptedBackend):
        async def complete(self, request: CompleteRequest, *, seed: int) -> ModelReply:
            most.append((budget.spent + budget.reserved).cost_usd)
            return await super().complete(request, seed=seed)

    cap_usd = bound.cost_usd * 3.5 + cost_usd * 20
    budget = Budget(Caps(usd=cap_usd))
    way = gateway(Watched(spend, latency_s=0.001), budget, price=DEAR)
    ports = [way.port(scope=f"task {number}", attempt=0) for number in range(64)]
    results = await asyncio.gather(*(port.complete(ask("x", max_tokens=10)) for port in ports), return_exceptions=True)
    done = [result for result in results if isinstance(result, ModelReply)]
    refused = [result for result in results if isinstance(result, BudgetExhausted)]
    assert len(done) + len(refused) == 64
    assert refused
    assert max(most) <= cap_usd + 1e-12
    assert budget.spent.cost_usd == pytest.approx(len(done) * cost_usd)
    # It waited for others to end rather than give up: at the end not one more call would have fitted.
    assert budget.spent.cost_usd + bound.cost_usd > cap_usd
    assert budget.reserved == Usage()


async def test_a_fund_pays_and_gets_back_what_a_call_did_not_use() -> None:
    budget = Budget(Caps(tokens=2_000))
    fund = budget.reserve(Usage(input_tokens=1_000))
    budget.reserve(Usage(input_tokens=1_000))
    way = gateway(ScriptedBackend(echo), budget)
    with pytest.raises(BudgetExhausted):
        await way.port(scope="task", attempt=0).complete(ask(max_tokens=100))
    port = way.port(scope="task", attempt=0, fund=fund)
    for _ in range(50):
        await port.complete(ask(max_tokens=100))
    assert port.usage.tokens == 100 == budget.spent.tokens
    assert budget.reserved.tokens == 1_900
    with pytest.raises(BudgetExhausted, match="reserve is used up"):
        await port.complete(ask(max_tokens=1_000))


async def test_an_empty_fund_of_one_rollout_does_not_end_another() -> None:
    budget = Budget(Caps(tokens=100_000))
    poor = budget.reserve(Usage(input_tokens=10))
    backend = ScriptedBackend(echo, latency_s=0.01)
    way = gateway(backend, budget)
    results = await asyncio.gather(
        way.port(scope="task", attempt=0, fund=poor).complete(ask()),
        way.port(scope="task", attempt=0).complete(ask()),
        return_exceptions=True,
    )
    assert isinstance(results[0], BudgetExhausted)
    assert isinstance(results[1], ModelReply)


async def test_more_than_was_bounded_is_settled_at_the_truth() -> None:
    def spend(request: Request, seed: int) -> ModelReply:
        return ModelReply(usage=Usage(model_calls=1, input_tokens=9_000, output_tokens=1))

    budget = Budget(Caps(tokens=5_000))
    port = gateway(ScriptedBackend(spend), budget).port(scope="task", attempt=0)
    await port.complete(ask())
    assert budget.spent.tokens == 9_001
    with pytest.raises(BudgetExhausted):
        await port.complete(ask())


async def test_hidden_tokens_are_reserved_too() -> None:
    budget = Budget(Caps(tokens=2_000))
    port = gateway(ScriptedBackend(echo, hidden_tokens=4_096), budget).port(scope="task", attempt=0)
    with pytest.raises(BudgetExhausted):
        await port.complete(ask(max_tokens=10))


async def test_errors_worth_a_retry_are_retried_with_growing_pauses() -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    failures = [ModelUnavailable("busy"), ModelUnavailable("busy", retry_after_s=30.0), ModelUnavailable("busy")]
    backend = ScriptedBackend(echo, failures=[*failures, None])
    budget = Budget(Caps())
    port = gateway(backend, budget, retries=3, sleep=sleep).port(scope="task", attempt=0)
    assert (await port.complete(ask())).text == "hello"
    assert len(backend.calls) == 4
    assert 0 <= pauses[0] <= 2
    assert 30 <= pauses[1] <= 31
    assert 0 <= pauses[2] <= 8
    assert budget.spent.model_calls == 1

    first, pauses = pauses, []
    repeated = ScriptedBackend(echo, failures=[*failures, None])
    await gateway(repeated, retries=3, sleep=sleep).port(scope="task", attempt=0).complete(ask())
    assert pauses == first


async def test_retries_end() -> None:
    async def sleep(seconds: float) -> None:
        return

    backend = ScriptedBackend(echo, failures=[ModelUnavailable("HTTP 500")] * 9)
    budget = Budget(Caps(tokens=10_000))
    port = gateway(backend, budget, retries=2, sleep=sleep).port(scope="task", attempt=0)
    with pytest.raises(ModelUnavailable, match=r"HTTP 500 \(3 tries\)"):
        await port.complete(ask())
    assert len(backend.calls) == 3
    assert budget.reserved == Usage() == budget.spent


async def test_a_provider_that_asks_for_a_very_long_pause_is_not_waited_for() -> None:
    backend = ScriptedBackend(echo, failures=[ModelUnavailable("HTTP 429", retry_after_s=7_200.0)] * 2)
    with pytest.raises(ModelUnavailable, match=r"asks to wait 7200 s"):
        await gateway(backend, retries=5).port(scope="task", attempt=0).complete(ask())
    assert len(backend.calls) == 1


async def test_a_call_that_takes_too_long_is_unavailable() -> None:
    backend = ScriptedBackend(echo, latency_s=5.0)
    with pytest.raises(ModelUnavailable, match=r"no reply within 0\.02 s"):
        await gateway(backend, timeout_s=0.02).port(scope="task", attempt=0).complete(ask())


@pytest.mark.parametrize("failure", [ModelRefused("HTTP 400"), UnsupportedRequest("no"), ModelAccessError("no key")])
async def test_other_errors_are_not_retried(failure: Exception) -> None:
    backend = ScriptedBackend(echo, failures=[failure])
    records: list[CallRecord] = []
    port = gateway(backend, retries=5).port(scope="task", attempt=0, record=records.append)
    with pytest.raises(type(failure), match=str(failure)):
        await port.complete(ask())
    assert len(backend.calls) == 1
    assert records[0].error == f"{type(failure).__name__}: {failure}"


async def test_what_a_plug_in_lets_slip_is_no_fault_of_the_harness() -> None:
    backend = ScriptedBackend(echo, failures=[ZeroDivisionError("oops")])
    with pytest.raises(ModelUnavailable, match="ZeroDivisionError: oops"):
        await gateway(backend).port(scope="task", attempt=0).complete(ask())
    assert len(backend.calls) == 1


async def test_an_error_reaches_all_that_wait_for_the_call() -> None:
    backend = ScriptedBackend(echo, failures=[ModelRefused("HTTP 400")], latency_s=0.01)
    way = gateway(backend)
    results = await asyncio.gather(
        *(way.port(scope="task", attempt=0).complete(ask()) for _ in range(3)), return_exceptions=True
    )
    assert [type(result) for result in results] == [ModelRefused] * 3
    assert len(backend.calls) == 1


async def test_records_say_what_was_asked_and_when() -> None:
    times = iter(float(second) for second in range(100, 200))
    records: list[CallRecord] = []
    replies = MemoryReplies()
    way = gateway(ScriptedBackend(echo), replies=replies, clock=lambda: next(times), default_temperature=0.7)
    for _ in range(2):
        port = way.port(scope="task", attempt=0, record=records.append)
        await port.complete(ask())
        await port.choose(ChooseRequest(prompt="a", choices=("x", "y")))
    first = records[0]
    assert isinstance(first.request, CompleteRequest)
    assert first.request.temperature == 0.7
    assert (first.started_at, first.seconds, first.error, first.cached) == (100.0, 1.0, None, False)
    assert [record.cached for record in records] == [False, False, True, True]
    assert records[1].reply is not None
    assert records[1].reply.logprobs == pytest.approx((-0.6931, -0.6931), abs=1e-3)


async def test_a_harness_may_choose_its_own_temperature() -> None:
    backend = ScriptedBackend(echo)
    await gateway(backend, default_temperature=0.7).port(scope="task", attempt=0).complete(ask(temperature=0.1))
    assert isinstance(backend.calls[0], CompleteRequest)
    assert backend.calls[0].temperature == 0.1


@pytest.mark.parametrize(("allowed", "can", "expected"), [(3, None, 3), (3, 2, 2), (3, 9, 3)])
async def test_no_more_calls_are_in_flight_than_allowed(allowed: int, can: int | None, expected: int) -> None:
    running, most = 0, 0

    class Watched(ScriptedBackend):
        async def complete(self, request: CompleteRequest, *, seed: int) -> ModelReply:
            nonlocal running, most
            running += 1
            most = max(most, running)
            try:
                return await super().complete(request, seed=seed)
            finally:
                running -= 1

    way = gateway(Watched(echo, latency_s=0.002, max_in_flight=can), max_in_flight=allowed)
    await asyncio.gather(*(way.port(scope=str(n), attempt=0).complete(ask()) for n in range(20)))
    assert most == expected


async def test_no_time_limit_runs_while_a_call_waits_for_its_turn() -> None:
    way = gateway(ScriptedBackend(echo, latency_s=0.05, max_in_flight=1), timeout_s=0.15)
    replies = await asyncio.gather(*(way.port(scope=str(n), attempt=0).complete(ask()) for n in range(6)))
    assert len(replies) == 6


async def test_closing_ends_what_is_in_flight() -> None:
    backend, budget = ScriptedBackend(echo, latency_s=5.0), Budget(Caps(tokens=10_000))
    way = gateway(backend, budget)
    call = asyncio.create_task(way.port(scope="task", attempt=0).complete(ask()))
    await asyncio.sleep(0.01)
    await way.aclose()
    with pytest.raises(ModelUnavailable, match="closed"):
        await call
    assert backend.closed
    assert budget.reserved == Usage()


MALFORMED = [
    (CompleteRequest(messages=()), "messages"),
    (CompleteRequest(messages=({"role": "system", "content": "x"},)), "pass a system prompt as `system`"),
    (CompleteRequest(messages=({"role": "user", "content": ["x"]},)), "content"),
    (CompleteRequest(messages=({"role": "tool", "content": "x"},)), "tool_call_id"),
    (CompleteRequest(messages=({"role": "user", "content": "x", "tool_calls": [{}]},)), "only an assistant"),
    (CompleteRequest(messages=({"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]},)), "tool_calls"),
    (ask(max_tokens=0), "max_tokens"),
    (ask(temperature=float("nan")), "temperature"),
    (ask(tools=({"name": 3},)), "tools"),
    (ask("\ud800"), "not JSON text"),
    (ChooseRequest(prompt="x", choices=()), "choices"),
]


@pytest.mark.parametrize(("request_", "message"), MALFORMED, ids=[message for _, message in MALFORMED])
async def test_malformed_requests_never_reach_the_backend(request_: Request, message: str) -> None:
    backend, budget = ScriptedBackend(echo), Budget(Caps())
    port = gateway(backend, budget).port(scope="task", attempt=0)
    with pytest.raises(ModelRefused, match=message):
        await (port.choose(request_) if isinstance(request_, ChooseRequest) else port.complete(request_))
    assert not backend.calls
    assert budget.spent == Usage()


async def test_what_the_model_cannot_do_is_unsupported() -> None:
    backend = ScriptedBackend(echo, can_choose=False, can_schema=False, can_tools=False)
    port: ModelPort = gateway(backend).port(scope="task", attempt=0)
    with pytest.raises(UnsupportedRequest):
        await port.choose(ChooseRequest(prompt="x", choices=("a",)))
    with pytest.raises(UnsupportedRequest):
        await port.complete(ask(schema={"type": "object"}))
    with pytest.raises(UnsupportedRequest):
        await port.complete(ask(tools=({"name": "f", "description": "", "parameters": {}},)))
    assert not backend.calls


@given(st.text(), st.text(), st.integers(1, 10_000))
def test_the_bound_covers_one_token_a_byte(text: str, system: str, max_tokens: int) -> None:
    request = ask(text, system=system, max_tokens=max_tokens)
    size = len(text.encode("utf-8", "surrogatepass")) + len(system.encode("utf-8", "surrogatepass"))
    assert most_input_tokens(request) >= size
    bound = most_usage(request, FREE, hidden_tokens=7)
    assert bound.output_tokens == max_tokens + 7
    assert bound.cost_usd == 0.0


@settings(max_examples=30, deadline=None)
@given(
    cap=st.integers(500, 3_000),
    calls=st.lists(st.tuples(st.integers(1, 200), st.integers(0, 3)), min_size=1, max_size=30),
)
def test_whatever_is_asked_together_a_cap_holds(cap: int, calls: list[tuple[int, int]]) -> None:
    def spend(request: Request, seed: int) -> ModelReply:
        assert isinstance(request, CompleteRequest)
        return ModelReply(usage=Usage(model_calls=1, input_tokens=5, output_tokens=seed % request.max_tokens + 1))

    async def run() -> None:
        budget = Budget(Caps(tokens=cap))
        way = gateway(ScriptedBackend(spend, latency_s=1e-4), budget, MemoryReplies(), max_in_flight=8)
        ports = [way.port(scope=str(scope), attempt=0) for scope in range(4)]
        results = await asyncio.gather(
            *(ports[scope].complete(ask(max_tokens=size)) for size, scope in calls), return_exceptions=True
        )
        assert all(isinstance(result, ModelReply | BudgetExhausted) for result in results)
        assert budget.spent.tokens <= cap
        assert budget.reserved == Usage()
        assert sum((port.usage for port in ports), Usage()) == budget.spent

    asyncio.run(run())


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.none() | st.integers(0, 6)), min_size=1, max_size=16)
)
def test_whoever_gives_up_when_the_books_agree(calls: list[tuple[int, int, int | None]]) -> None:
    """Ports that ask overlapping things, some of which are cancelled after a few milliseconds."""

    async def run() -> None:
        budget, replies = Budget(Caps(tokens=1_500)), MemoryReplies()
        way = gateway(ScriptedBackend(echo, latency_s=0.002), budget, replies, max_in_flight=3)
        ports = [way.port(scope="task", attempt=0) for _ in range(3)]

        async def one(port: int, text: int, cancel_after_ms: int | None) -> object:
            call = asyncio.ensure_future(ports[port].complete(ask(str(text))))
            if cancel_after_ms is not None:
                await asyncio.sleep(cancel_after_ms / 1_000)
                call.cancel()
            return (await asyncio.gather(call, return_exceptions=True))[0]

        for found in await asyncio.gather(*(one(*call) for call in calls)):
            assert isinstance(found, ModelReply | BudgetExhausted | asyncio.CancelledError)
        assert budget.reserved == Usage()
        kept = [ModelReply.from_json(reply).usage for reply in replies.kept.values()]
        assert budget.spent == sum(kept, Usage())
        assert sum((port.usage for port in ports), Usage()).tokens <= budget.spent.tokens <= 1_500
        await way.aclose()

    asyncio.run(run())
