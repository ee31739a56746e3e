from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from metaharness.protocols import SandboxEngine
from metaharness.sandboxes.bubblewrap import BubblewrapEngine
from tests.sandboxes.helpers import ENGINES, assert_nothing_left, opened, working_bubblewrap


@pytest_asyncio.fixture(params=ENGINES)
async def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SandboxEngine]:
    async with opened(request.param, tmp_path_factory.mktemp("sandboxes")) as made:
        yield made


@pytest_asyncio.fixture
async def bubblewrap() -> AsyncIterator[BubblewrapEngine]:
    made = await working_bubblewrap()
    yield made
    await made.sweep()
    assert_nothing_left(made)
