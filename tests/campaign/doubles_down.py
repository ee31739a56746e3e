"""A model whose provider is down."""

from __future__ import annotations

from metaharness.errors import ModelUnavailable
from metaharness.exchange import Request


def down(request: Request, seed: int) -> str:
    raise ModelUnavailable("503 service unavailable")
