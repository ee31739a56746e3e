"""What the local model does a second: choosing among eight labels and short chats, one, two and four at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from metaharness.exchange import ChooseRequest, CompleteRequest, ModelReply
from metaharness.models import create_backend
from metaharness.spec import ModelSpec
from tests.benchmarks.stats import spread

INSTRUCTION = (
    "Which topic is this customer message mainly about? Answer with one word: account, billing, cancel, delivery, "
    "feedback, refund, sales or technical."
)
LABELS = (" account", " billing", " cancel", " delivery", " feedback", " refund", " sales", " technical")
CALLS = 24


def run() -> dict[str, float]:
    """Return milliseconds a call and calls a second, by kind and concurrency."""
    return asyncio.run(_run())


async def _run() -> dict[str, float]:
    backend = create_backend(ModelSpec(ref="local/smollm2-135m"))
    figures: dict[str, float] = {}

    async def choose(number: int) -> ModelReply:
        text = f"{INSTRUCTION}\n\nMessage: the parcel with order number {number} has not come yet\nTopic:"
        return await backend.choose(ChooseRequest(prompt=text, choices=LABELS))

    async def chat(number: int) -> ModelReply:
        message = {
            "role": "user",
            "content": f"{INSTRUCTION}\n\nthe parcel with order number {number} has not come yet",
        }
        return await backend.complete(CompleteRequest(messages=(message,), max_tokens=8, temperature=0.0), seed=0)

    kinds: dict[str, Callable[[int], Awaitable[ModelReply]]] = {"choose": choose, "chat": chat}
    try:
        await choose(-1)
        for kind, call in kinds.items():
            for concurrency in (1, 2, 4):
                seconds: list[float] = []
                gate = asyncio.Semaphore(concurrency)

                async def timed(
                    number: int,
                    call: Callable[[int], Awaitable[ModelReply]] = call,
                    gate: asyncio.Semaphore = gate,
                    seconds: list[float] = seconds,
                ) -> None:
                    async with gate:
                        started = time.perf_counter()
                        await call(number)
                        seconds.append(time.perf_counter() - started)

                started = time.perf_counter()
                await asyncio.gather(*(timed(1000 * concurrency + number) for number in range(CALLS)))
                figures[f"{kind}_per_s_{concurrency}"] = round(CALLS / (time.perf_counter() - started), 1)
                figures |= spread(f"{kind}_ms_{concurrency}", [1000 * value for value in seconds], 0)
    finally:
        await backend.aclose()
    return figures
