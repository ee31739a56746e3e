from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from metaharness.sandboxes.bubblewrap import BubblewrapEngine
from tests.sandboxes.helpers import assert_nothing_left, run_python, working_bubblewrap


@pytest_asyncio.fixture
async def bubblewrap() -> AsyncIterator[BubblewrapEngine]:
    """The engine; after each attack the next sandbox works, and nothing is left on the host."""
    made = await working_bubblewrap()
    yield made
    after = await run_python(made, "print('unaffected')")
    assert (after.text, after.end.code) == ("unaffected\n", 0)
    await made.sweep()
    assert_nothing_left(made)
