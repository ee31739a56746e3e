"""Environments: from a reference to tasks and a scorer.

A reference is a bundled name, a path, `module:Class`, or `PREFIX:REST` with a loader for the prefix. A loader is a
function `load(rest, *, base) -> Environment`; another package adds one with an entry point in the group
`metaharness.environments`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

from metaharness.bundled import bundled_dir
from metaharness.environments.config import CONFIG_FILE
from metaharness.environments.limits import limit_tasks
from metaharness.environments.native import NativeEnvironment
from metaharness.errors import EnvironmentFormatError, UserError, unknown_name
from metaharness.protocols import Environment
from metaharness.registry import Registry
from metaharness.task import Split

Loader = Callable[..., Environment]

LOADERS = Registry("environment", "metaharness.environments", {"native": "metaharness.environments:load_native"})
"""Known prefixes."""


def bundled_environments() -> list[str]:
    """Return the names of the bundled environments, sorted."""
    return sorted(path.parent.name for path in bundled_dir("envs").glob(f"*/{CONFIG_FILE}"))


def load_native(rest: str, *, base: Path) -> Environment:
    """Load a directory with an env.toml."""
    return NativeEnvironment(_path(rest, base))


def load_environment(
    ref: str, *, base: Path, limits: tuple[int | None, int | None, int | None] | None = None
) -> Environment:
    """Load an environment.

    Args:
        ref: Bundled name, path, `PREFIX:REST`, or `module:Class` (called without arguments).
        base: Directory that a relative path starts from.
        limits: Most tasks of train, val and test.

    Raises:
        EnvironmentFormatError: It is unknown, or breaks its format.
    """
    environment = _load(ref, base)
    caps = {split: cap for split, cap in zip(Split, limits or (), strict=False) if cap is not None}
    return limit_tasks(environment, caps)


def _load(ref: str, base: Path) -> Environment:
    if not ref.isprintable():
        raise EnvironmentFormatError(f"unknown environment {ref!r}: it holds control characters")
    bundled = bundled_environments()
    if ref in bundled:
        return NativeEnvironment(bundled_dir("envs") / ref)
    prefix, colon, rest = ref.partition(":")
    if colon and prefix in LOADERS.targets():
        loader: Loader = LOADERS.load(prefix)
        return loader(rest, base=base)
    if colon and _importable(prefix):
        return _plugin(ref)
    path = _path(ref, base)
    if _exists(path) or (not colon and ("/" in ref or ref.startswith((".", "~")))):
        return NativeEnvironment(path)
    known = [*bundled, *(f"{name}:…" for name in LOADERS.targets())]
    raise EnvironmentFormatError(f"{unknown_name('environment', ref, known)}, a path with a `/`, or module:Class")


def _path(ref: str, base: Path) -> Path:
    try:
        return base / Path(ref).expanduser()
    except RuntimeError as error:  # `~name` without such a user
        raise EnvironmentFormatError(f"environment {ref!r}: {error}") from error


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # too long: no such file
        return False


def _importable(module: str) -> bool:
    """Return whether the module's top package can be found; nothing is imported."""
    try:
        return importlib.util.find_spec(module.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False


def _plugin(ref: str) -> Environment:
    """Return an instance of `module:Class`."""
    try:
        environment = LOADERS.load(ref)()
    except UserError:
        raise
    except Exception as error:
        raise EnvironmentFormatError(f"environment {ref!r} cannot be made: {type(error).__name__}: {error}") from error
    if not isinstance(environment, Environment):
        raise EnvironmentFormatError(f"environment {ref!r} has not the methods of an environment (info, tasks, open)")
    return environment
