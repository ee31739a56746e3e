from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from metaharness.models.local.slots import Slot, SlotPool, common_prefix

A = "Classify the message: " + "a" * 50
B = "Answer with a number: " + "b" * 50


async def use(pool: SlotPool, text: str) -> tuple[int, int]:
    async with pool.take(text) as slot:
        return slot.worker, slot.number


@given(st.text(alphabet="ab", max_size=40), st.text(alphabet="ab", max_size=40))
def test_common_prefix(first: str, second: str) -> None:
    length = common_prefix(first, second)
    assert first[:length] == second[:length]
    assert first[length : length + 1] != second[length : length + 1] or length == min(len(first), len(second))


async def test_a_prompt_returns_to_the_slot_that_holds_its_beginning() -> None:
    pool = SlotPool(2, 2, first=0)
    home_a = await use(pool, A + "1")
    home_b = await use(pool, B + "1")
    assert home_a != home_b
    assert await use(pool, A + "2") == home_a
    assert await use(pool, B + "2") == home_b


async def test_a_new_prompt_takes_the_slot_unused_for_longest() -> None:
    pool = SlotPool(1, 3, first=0)
    homes = [await use(pool, text) for text in ("x" * 40, "y" * 40, "z" * 40)]
    assert len(set(homes)) == 3
    assert await use(pool, "x" * 41) == homes[0]
    assert await use(pool, "w" * 40) == homes[1]


async def test_calls_at_the_same_time_are_spread_over_the_workers() -> None:
    pool = SlotPool(2, 2, first=1)
    async with pool.take(A) as first, pool.take(A) as second, pool.take(A) as third, pool.take(A) as fourth:
        assert {first.worker, second.worker} == {0, 1}
        assert {third.worker, fourth.worker} == {0, 1}
        assert len({(slot.worker, slot.number) for slot in (first, second, third, fourth)}) == 4


async def test_processes_that_share_a_server_begin_at_different_workers() -> None:
    assert (await use(SlotPool(2, 1, first=0), A))[0] != (await use(SlotPool(2, 1, first=1), A))[0]


async def test_more_calls_than_slots_wait_in_order() -> None:
    pool = SlotPool(1, 1, first=0)
    order: list[int] = []
    held: list[Slot] = []

    async def call(number: int) -> None:
        async with pool.take(A) as slot:
            assert not held
            held.append(slot)
            await asyncio.sleep(0)
            order.append(number)
            held.clear()

    await asyncio.gather(*(call(number) for number in range(6)))
    assert order == list(range(6))


async def test_a_cancelled_call_gives_its_slot_back() -> None:
    pool = SlotPool(1, 1, first=0)
    entered = asyncio.Event()

    async def hang() -> None:
        async with pool.take(A):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hang())
    await entered.wait()
    waiting = asyncio.create_task(use(pool, B))
    await asyncio.sleep(0)
    task.cancel()
    assert await asyncio.wait_for(waiting, 1) == (0, 0)
