"""Shared by all tests: what to do when a part of the machine is absent."""

from __future__ import annotations

import os

import pytest


def require(present: bool, what: str) -> None:
    """Skip with the reason when a part is absent; fail instead where everything must be there (CI)."""
    if present:
        return
    if os.environ.get("METAHARNESS_REQUIRE_ALL"):
        pytest.fail(f"{what} is absent, and METAHARNESS_REQUIRE_ALL is set")
    pytest.skip(f"{what} is absent")
