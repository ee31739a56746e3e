"""Models: backends by provider, prices, and the gateway through which everything is asked."""

from __future__ import annotations

from metaharness.errors import SpecError, UserError
from metaharness.models.prices import Price, price_of
from metaharness.protocols import ModelBackend
from metaharness.registry import Registry
from metaharness.spec import ModelSpec

__all__ = ["Price", "backend_registry", "create_backend", "price_of"]


def backend_registry() -> Registry:
    """Return the model providers by name: functions from a `ModelSpec` to a `ModelBackend`."""
    return Registry(
        "model provider",
        "metaharness.models",
        {
            "anthropic": "metaharness.models.anthropic_backend:create",
            "local": "metaharness.models.local:create",
            "openai": "metaharness.models.openai_backend:create",
            "replay": "metaharness.models.replay:create",
            "scripted": "metaharness.models.scripted:create",
        },
    )


def create_backend(spec: ModelSpec) -> ModelBackend:
    """Return the backend for `spec.ref`, which is `provider/model`.

    Raises:
        SpecError: No such provider (the message names those known), model or price.
        UserError: What the provider needs is absent: a key, a package, a file.
    """
    provider = spec.ref.partition("/")[0]
    try:
        create = backend_registry().load(provider)
    except UserError as error:
        raise SpecError(f"model.ref: {error}") from error
    backend: ModelBackend = create(spec)
    return backend
