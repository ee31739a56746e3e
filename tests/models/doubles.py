"""An in-memory reply cache, and what most gateway tests need."""

from __future__ import annotations

from typing import Any

from metaharness.budget import Budget, Caps
from metaharness.exchange import CompleteRequest, ModelReply
from metaharness.models.gateway import ModelGateway
from metaharness.models.prices import FREE
from metaharness.protocols import ModelBackend, ReplyCache


class MemoryReplies:
    """A `ReplyCache` that keeps JSON, as a durable one does."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Any]] = {}

    def get_reply(self, key: str) -> ModelReply | None:
        return ModelReply.from_json(self.kept[key], cached=True) if key in self.kept else None

    def put_reply(self, key: str, reply: ModelReply) -> None:
        assert not reply.cached
        assert key not in self.kept
        self.kept[key] = reply.to_json()


def ask(text: str = "hello", **fields: Any) -> CompleteRequest:
    return CompleteRequest(messages=({"role": "user", "content": text},), **fields)


def gateway(
    backend: ModelBackend, budget: Budget | None = None, replies: ReplyCache | None = None, **changes: Any
) -> ModelGateway:
    settings: dict[str, Any] = {"price": FREE, "default_temperature": 0.0, "timeout_s": 5.0, "retries": 0, **changes}
    return ModelGateway(backend, budget=budget or Budget(Caps()), replies=replies, **settings)
