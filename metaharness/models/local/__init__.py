"""Small models on this machine, without a key or a network: `local/smollm2-135m`."""

from __future__ import annotations

from metaharness.errors import SpecError, UserError
from metaharness.models.local.backend import LocalBackend
from metaharness.models.local.catalog import CATALOG, LocalModel, model_named
from metaharness.models.local.settings import LocalSettings
from metaharness.spec import ModelSpec

__all__ = ["CATALOG", "LocalBackend", "LocalModel", "LocalSettings", "create"]


def create(spec: ModelSpec) -> LocalBackend:
    """Return the backend for `local/<name>`.

    Raises:
        SpecError: There is no such model; the message names those there are.
        MissingDependency: The runtime or the weights are not installed; the message says what to run.
        UserError: The weights are not those of the catalogue, or a directory cannot be made.
    """
    try:
        model = model_named(spec.ref.partition("/")[2])
    except UserError as error:
        raise SpecError(f"model.ref: {error}") from error
    return LocalBackend(model, temperature=spec.temperature)
