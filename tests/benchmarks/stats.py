"""Median with minimum and maximum, under keys that carry the unit."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def spread(key: str, values: Sequence[float], digits: int = 2) -> dict[str, float]:
    """Return `key`, `key_min` and `key_max`; the first is the median."""
    return {
        key: round(statistics.median(values), digits),
        f"{key}_min": round(min(values), digits),
        f"{key}_max": round(max(values), digits),
    }
