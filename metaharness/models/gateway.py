"""The host's one way to a model: reply cache, budget, retries, recording."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from metaharness.budget import Budget, Reservation, Usage
from metaharness.errors import BudgetExhausted, ModelRefused, ModelUnavailable
from metaharness.exchange import (
    ChooseRequest,
    CompleteRequest,
    ModelInfo,
    ModelReply,
    Request,
    canonical_json,
    reply_key,
)
from metaharness.models.bounds import most_usage
from metaharness.models.checks import check_request
from metaharness.models.prices import Price
from metaharness.models.retry import RetryPolicy, ask
from metaharness.protocols import ModelBackend, ReplyCache


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One call as the trusted side saw it.

    Attributes:
        request: What was asked, the default temperature filled in.
        reply: What came back, or None.
        error: `Kind: message` when nothing came back.
        started_at: Unix time in seconds.
        seconds: How long it took, waiting and retries included.
        cached: Whether the reply had been paid for before.
    """

    request: Request
    reply: ModelReply | None
    error: str | None
    started_at: float
    seconds: float
    cached: bool


@dataclass(slots=True)
class _Flight:
    """A reply that is being asked for, how many calls wait for it, and whether one of them has taken its cost."""

    task: asyncio.Task[ModelReply]
    waiters: int = 0
    claimed: bool = False


class ModelGateway:
    """Meters, caches and records the calls of a campaign; hands out one `Port` a rollout.

    What a call may use at most is reserved in the budget before it is asked, so a cap holds with any number of calls
    in flight. Where only calls in flight keep a call from fitting, it waits for one of them to end. Equal keys are
    asked once. Used from one event loop.

    Args:
        backend: The model.
        budget: The campaign's budget.
        replies: Durable replies; None asks anew each time.
        price: Token prices, for the bounds, and for the cost where the backend states none.
        default_temperature: For requests that name none.
        timeout_s: Time limit of one try.
        retries: Tries after the first.
        sleep: Waits between tries.
        clock: Unix time in seconds.
        max_in_flight: Calls at the backend at the same time; a backend may allow fewer.
    """

    def __init__(
        self,
        backend: ModelBackend,
        *,
        budget: Budget,
        replies: ReplyCache | None,
        price: Price,
        default_temperature: float,
        timeout_s: float,
        retries: int,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.time,
        max_in_flight: int = 64,
    ) -> None:
        self._backend = backend
        self._budget = budget
        self._replies = replies
        self._price = price
        self._policy = RetryPolicy(timeout_s=timeout_s, retries=retries, sleep=sleep)
        self.default_temperature = default_temperature
        self.clock = clock
        self.info: ModelInfo = replace(
            backend.info, identity={**backend.info.identity, "default_temperature": default_temperature}
        )
        self._slots = asyncio.Semaphore(min(max_in_flight, self.info.max_in_flight or max_in_flight))
        self._flights: dict[str, _Flight] = {}
        self._asking: Counter[int | None] = Counter()  # calls at the backend, by the id of the fund that pays
        self._freed = asyncio.Event()

    def port(
        self,
        *,
        scope: str,
        attempt: int,
        record: Callable[[CallRecord], None] | None = None,
        fund: Reservation | None = None,
    ) -> Port:
        """Return the model as one rollout sees it.

        Args:
            scope: What attempts are paired over, see `reply_key`.
            attempt: Attempt of the rollout, from 0.
            record: Receives every call when it has ended, however.
            fund: Reservation that pays for its calls; None takes from what is free.
        """
        return Port(self, scope=scope, attempt=attempt, record=record, fund=fund)

    async def aclose(self) -> None:
        """End what is in flight, and give the backend's connections and processes back."""
        tasks = [flight.task for flight in self._flights.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._flights.clear()
        await self._backend.aclose()

    async def reply_to(self, request: Request, *, key: str, fund: Reservation | None) -> ModelReply:
        """Return the reply with this key: kept, in flight, or asked for now (then `cached` is false).

        Raises:
            BudgetExhausted: It does not fit the budget, or the fund.
            MetaharnessError: As `ModelBackend.complete`.
        """
        while True:
            kept = self._replies.get_reply(key) if self._replies is not None else None
            if kept is not None:
                return replace(kept, cached=True)
            flight = self._flights.get(key)
            leads = flight is None
            if flight is None:
                flight = _Flight(task=asyncio.create_task(self._fly(request, key, fund)))
                self._flights[key] = flight
            await self._await_flight(key, flight)
            if flight.task.cancelled():
                raise ModelUnavailable(f"{self.info.ref}: the gateway was closed during the call")
            error = flight.task.exception()
            if isinstance(error, BudgetExhausted) and not leads:
                continue  # that was another rollout's fund; try with our own
            if error is not None:
                raise error
            # Calls resume in the order in which they came, so the cost falls on the first that is still there.
            reply = replace(flight.task.result(), cached=flight.claimed)
            flight.claimed = True
            return reply

    async def _await_flight(self, key: str, flight: _Flight) -> None:
        """Wait for the end of a flight; the last call that loses interest ends it."""
        flight.waiters += 1
        try:
            await asyncio.wait([flight.task])
        except asyncio.CancelledError:
            if flight.waiters == 1 and not flight.task.done():
                if self._flights.get(key) is flight:
                    del self._flights[key]
                flight.task.cancel()
                await asyncio.wait([flight.task])
            raise
        finally:
            flight.waiters -= 1
            if flight.task.done() and not flight.task.cancelled():
                flight.task.exception()  # seen, even when no call is left to raise it

    async def _fly(self, request: Request, key: str, fund: Reservation | None) -> ModelReply:
        try:
            async with self._slots:
                return await self._ask(request, key, fund)
        finally:
            if (flight := self._flights.get(key)) is not None and flight.task is asyncio.current_task():
                del self._flights[key]

    async def _ask(self, request: Request, key: str, fund: Reservation | None) -> ModelReply:
        bound = most_usage(request, self._price, hidden_tokens=self.info.hidden_tokens)
        reservation = await self._reserve(bound, fund)
        payer = _payer(fund)
        actual = Usage()
        self._asking[payer] += 1
        try:
            reply = await ask(self._backend, request, key=key, policy=self._policy)
            reply = replace(reply, usage=self._charged(reply.usage), cached=False)
            actual = reply.usage
        finally:
            self._asking[payer] -= 1
            self._budget.settle(reservation, actual)
            self._freed.set()
            self._freed = asyncio.Event()
        if self._replies is not None:
            self._replies.put_reply(key, reply)
        return reply

    async def _reserve(self, bound: Usage, fund: Reservation | None) -> Reservation:
        while True:
            try:
                return self._budget.draw(fund, bound) if fund is not None else self._budget.reserve(bound)
            except BudgetExhausted:
                if not self._asking[_payer(fund)]:
                    raise
            await self._freed.wait()

    def _charged(self, usage: Usage) -> Usage:
        """Return the usage of one call, with a cost also where the backend states none."""
        cost_usd = usage.cost_usd or self._price.cost_usd(
            input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, cached_tokens=usage.cached_tokens
        )
        return replace(usage, rollouts=0, proposals=0, model_calls=1, cost_usd=cost_usd)


def _payer(fund: Reservation | None) -> int | None:
    return fund.id if fund is not None else None


class Port:
    """The model as one rollout sees it on the host (a `ModelPort`).

    Attributes:
        usage: What its calls have cost so far; a reply that was paid for before costs nothing.
    """

    def __init__(
        self,
        gateway: ModelGateway,
        *,
        scope: str,
        attempt: int,
        record: Callable[[CallRecord], None] | None,
        fund: Reservation | None,
    ) -> None:
        self._gateway = gateway
        self._scope = scope
        self._attempt = attempt
        self._record = record
        self._fund = fund
        self._made: Counter[str] = Counter()
        self.usage = Usage()

    async def complete(self, request: CompleteRequest) -> ModelReply:
        """See `ModelPort`."""
        if request.temperature is None:
            request = replace(request, temperature=self._gateway.default_temperature)
        return await self._call(request)

    async def choose(self, request: ChooseRequest) -> ModelReply:
        """See `ModelPort`."""
        return await self._call(request)

    async def _call(self, request: Request) -> ModelReply:
        started_at = self._gateway.clock()
        reply: ModelReply | None = None
        error: str | None = None
        try:
            check_request(request, self._gateway.info)
            reply = await self._gateway.reply_to(request, key=self._key(request), fund=self._fund)
        except asyncio.CancelledError:
            error = "cancelled"
            raise
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
            raise
        finally:
            if reply is not None and not reply.cached:
                self.usage += reply.usage
            if self._record is not None:
                self._record(
                    CallRecord(
                        request=request,
                        reply=reply,
                        error=error,
                        started_at=started_at,
                        seconds=self._gateway.clock() - started_at,
                        cached=reply is not None and reply.cached,
                    )
                )
        return reply

    def _key(self, request: Request) -> str:
        """Return the key of this request, which counts as made: asked again, it is the next occurrence."""
        try:
            text = canonical_json(request.to_json())
            text.encode()
        except (TypeError, ValueError) as error:
            raise ModelRefused(f"the request is not JSON text: {error}") from error
        occurrence = self._made[text]
        self._made[text] += 1
        return reply_key(self._gateway.info, request, scope=self._scope, attempt=self._attempt, occurrence=occurrence)
