"""metaharness: search over the program around a model.

The public surface is small and loaded on first use, so that importing the package stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metaharness.api import export, open_archive, resume, run

__version__ = "0.1.0"
__all__ = ["__version__", "export", "open_archive", "resume", "run"]


def __getattr__(name: str) -> Any:
    """Load the public functions on first use."""
    if name in __all__:
        from metaharness import api

        return getattr(api, name)
    raise AttributeError(f"module 'metaharness' has no attribute {name!r}")
