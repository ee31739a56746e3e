"""Sandbox engines: where code that a model wrote an hour ago is run."""

from __future__ import annotations

from metaharness.errors import MissingDependency
from metaharness.protocols import SandboxEngine
from metaharness.registry import Registry

AUTOMATIC = ("bubblewrap",)  # in the order of preference; an engine that contains nothing is never chosen by itself


def engine_registry() -> Registry:
    """Return the registry of sandbox engines."""
    return Registry(
        "sandbox engine",
        "metaharness.sandboxes",
        {
            "bubblewrap": "metaharness.sandboxes.bubblewrap:BubblewrapEngine",
            "unsafe-process": "metaharness.sandboxes.unsafe_process:UnsafeProcessEngine",
        },
    )


async def select_engine(name: str) -> SandboxEngine:
    """Return a working engine.

    Args:
        name: Name of an engine, or `auto` for the best one that works here.

    Raises:
        UserError: The name is unknown.
        MissingDependency: It cannot work on this machine; the message says why and what to do.
    """
    registry = engine_registry()
    refusals = []
    for candidate in AUTOMATIC if name == "auto" else (name,):
        engine: SandboxEngine = registry.load(candidate)()
        report = await engine.probe()
        if report.available:
            return engine
        refusals.append(f"{candidate}: {report.reason}")
    if name == "auto":
        refusals.append('to run without any isolation, for development only: engine = "unsafe-process"')
    raise MissingDependency(f"no sandbox engine works here ({'; '.join(refusals)})")


__all__ = ["AUTOMATIC", "engine_registry", "select_engine"]
