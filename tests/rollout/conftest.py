from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rollout.support import Bench


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One stage for all tests: what lies there is named by its digest."""
    return tmp_path_factory.mktemp("stage")


@pytest.fixture
def bench(stage: Path) -> Callable[..., Bench]:
    def make(**options: object) -> Bench:
        return Bench(stage, **options)  # type: ignore[arg-type]

    return make
