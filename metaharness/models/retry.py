"""Asking a backend: time limit, retries, and what counts as worth one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from metaharness.errors import MetaharnessError, ModelUnavailable
from metaharness.exchange import CompleteRequest, ModelReply, Request, seed_of
from metaharness.protocols import ModelBackend

FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 60.0
# A provider that asks for a longer pause than this has no quota left for us: say so instead of sleeping.
LONGEST_RETRY_AFTER_S = 600.0


@runtime_checkable
class KeyedBackend(Protocol):
    """A backend that answers by reply key, as a replay does. Where a backend has this, it is asked so."""

    async def reply_by_key(self, key: str, request: Request) -> ModelReply:
        """Return the reply with this key; raises as `ModelBackend.complete`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how long a call is tried.

    Attributes:
        timeout_s: Time limit of one try.
        retries: Tries after the first.
        sleep: Waits for a number of seconds.
    """

    timeout_s: float
    retries: int
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


async def ask(backend: ModelBackend, request: Request, *, key: str, policy: RetryPolicy) -> ModelReply:
    """Return the backend's reply; rate limits, server errors, lost connections and time-outs are tried again.

    The pause grows exponentially with full jitter and is never shorter than what the provider asked for. The jitter
    comes from the reply key: calls spread out, and yet each run waits alike.

    Args:
        backend: The model.
        request: The request.
        key: Reply key; the sampling seed belongs to it.
        policy: How often and how long.

    Raises:
        ModelUnavailable: No try succeeded.
        ModelRefused: The provider rejected the request.
        UnsupportedRequest: The backend cannot do this.
        UserError: No call can succeed; the campaign must stop.
    """
    jitter = random.Random(key)  # noqa: S311 - spreads retries, guards nothing
    for number in range(policy.retries + 1):
        try:
            return await _ask_once(backend, request, key=key, timeout_s=policy.timeout_s)
        except ModelUnavailable as error:
            wanted_s = error.retry_after_s or 0.0
            if number == policy.retries or wanted_s > LONGEST_RETRY_AFTER_S:
                tries = f"{number + 1} {'try' if number == 0 else 'tries'}"
                wish = f"; the provider asks to wait {wanted_s:.0f} s" if wanted_s > LONGEST_RETRY_AFTER_S else ""
                raise ModelUnavailable(f"{error} ({tries}{wish})", retry_after_s=error.retry_after_s) from error
            pause_s = jitter.uniform(0, min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**number))
        await policy.sleep(max(pause_s, wanted_s + pause_s / 4 if wanted_s else 0.0))
    raise AssertionError("unreachable: the last try returns or raises")


async def _ask_once(backend: ModelBackend, request: Request, *, key: str, timeout_s: float) -> ModelReply:
    try:
        async with asyncio.timeout(timeout_s):
            if isinstance(backend, KeyedBackend):
                return await backend.reply_by_key(key, request)
            if isinstance(request, CompleteRequest):
                return await backend.complete(request, seed=seed_of(key))
            return await backend.choose(request)
    except TimeoutError as error:
        raise ModelUnavailable(f"{backend.info.ref} gave no reply within {timeout_s:g} s") from error
    except MetaharnessError:
        raise
    except Exception as error:
        # A backend may be anyone's plug-in: what it lets slip is a failure around the rollout, not of the harness.
        raise ModelUnavailable(f"{backend.info.ref} failed: {type(error).__name__}: {error}") from error
