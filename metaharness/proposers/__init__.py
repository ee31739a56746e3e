"""Proposers: what writes new candidates."""

from __future__ import annotations

from metaharness.registry import Registry


def proposer_registry() -> Registry:
    """Return the proposers by name: classes that are constructed with `donors`, harness sources by name."""
    return Registry("proposer", "metaharness.proposers", {"codemods": "metaharness.proposers.codemods:Codemods"})
