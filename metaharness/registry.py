"""Names to objects: one entry-point group a protocol, listed without importing."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from metaharness.errors import UserError, unknown_name


class Registry:
    """Plug-ins of one kind: our own by table, third parties' by entry points, anything by `module:Class`.

    Args:
        kind: What a user calls it: `strategy`, `proposer`, `sandbox engine`, `model backend`, `scorer`.
        group: Entry-point group, for example `metaharness.strategies`.
        builtin: Name to `module:attribute`.
    """

    def __init__(self, kind: str, group: str, builtin: Mapping[str, str]) -> None:
        self._kind = kind
        self._group = group
        self._builtin = dict(builtin)

    def targets(self) -> dict[str, str]:
        """Return all known names with their `module:attribute`; nothing is imported. Our own names win."""
        found = {point.name: point.value for point in entry_points(group=self._group)}
        return {**found, **self._builtin}

    def load(self, name: str) -> Any:
        """Return the object that `name` stands for.

        Raises:
            UserError: The name is unknown, or the plug-in fails to import (the message names it).
        """
        targets = self.targets()
        target = targets.get(name) or (name if ":" in name else None)
        if target is None:
            raise UserError(unknown_name(self._kind, name, targets))
        module_name, _, attribute = target.partition(":")
        try:
            found: Any = importlib.import_module(module_name)
            for part in attribute.split("."):
                found = getattr(found, part)
        except Exception as error:
            raise UserError(f"{self._kind} {name!r} ({target}) cannot be loaded: {error}") from error
        return found
