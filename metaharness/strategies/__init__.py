"""Strategies: the policies that decide what to do next. Pure: state in, decision out."""

from __future__ import annotations

from metaharness.registry import Registry


def strategy_registry() -> Registry:
    """Return the known strategies by name."""
    return Registry(
        "strategy",
        "metaharness.strategies",
        {
            "greedy": "metaharness.strategies.greedy:Greedy",
            "independent": "metaharness.strategies.independent:Independent",
        },
    )
