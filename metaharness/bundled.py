"""Where the bundled content lies: inside a wheel, or at the top of a checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from metaharness.errors import MissingDependency

BundledKind = Literal["envs", "seed_harnesses", "archive"]


def bundled_dir(kind: BundledKind) -> Path:
    """Return the directory of bundled content.

    Args:
        kind: Name of the top-level folder.

    Raises:
        MissingDependency: This installation carries none.
    """
    package = Path(__file__).resolve().parent
    packed = package / "_bundled" / kind
    if packed.is_dir():
        return packed
    checkout = package.parent
    # In a wheel the parent is site-packages, where a folder of this name would be somebody else's.
    if (checkout / "pyproject.toml").is_file() and (checkout / kind).is_dir():
        return checkout / kind
    raise MissingDependency(f"this installation of metaharness carries no {kind}/: use its wheel or a checkout")
