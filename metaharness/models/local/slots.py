"""Which worker and slot takes a call: the one whose cache already holds the beginning of the prompt."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Slot:
    """One cached prompt of one worker.

    Attributes:
        worker: Number of the worker.
        number: Number of the slot within the worker.
        text: What was last evaluated there, as far as this process knows; other processes may have used it since.
        busy: Whether a call of this process holds it.
        used: Order of the last use; a slot with a small value is given up first.
    """

    worker: int
    number: int
    text: str = ""
    busy: bool = False
    used: int = 0


class SlotPool:
    """Slots of all workers, handed out one call each. Used from one event loop; those who wait are served in order.

    Args:
        workers: Workers.
        slots: Slots of each.
        first: Worker that comes first among equals; differs between processes that share a server.
    """

    def __init__(self, workers: int, slots: int, *, first: int | None = None) -> None:
        first = os.getpid() if first is None else first
        order = [(first + offset) % workers for offset in range(workers)]
        self._slots = [Slot(worker=worker, number=number) for number in range(slots) for worker in order]
        self._free = asyncio.Semaphore(len(self._slots))
        self._uses = 0

    @asynccontextmanager
    async def take(self, text: str) -> AsyncIterator[Slot]:
        """Hold a slot for a call whose prompt is `text`.

        Taken from the workers with the fewest calls: the slot which shares the longest beginning, if that is at least
        half of what it holds or of the prompt; else the one that has not been used for the longest time.
        """
        async with self._free:
            slot = self._best(text)
            slot.busy = True
            try:
                yield slot
            finally:
                self._uses += 1
                slot.text, slot.used, slot.busy = text, self._uses, False

    def _best(self, text: str) -> Slot:
        calls: dict[int, int] = {}
        for slot in self._slots:
            calls[slot.worker] = calls.get(slot.worker, 0) + slot.busy
        free = [slot for slot in self._slots if not slot.busy]
        fewest = min(calls[slot.worker] for slot in free)
        candidates = [slot for slot in free if calls[slot.worker] == fewest]
        return max(candidates, key=lambda slot: (_worth(slot.text, text), -slot.used))


def _worth(held: str, text: str) -> int:
    shared = common_prefix(held, text)
    return shared if 2 * shared >= min(len(held), len(text)) else 0


def common_prefix(first: str, second: str) -> int:
    """Return how many characters two texts begin with in common."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
