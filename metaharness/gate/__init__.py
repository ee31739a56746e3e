"""The gate: checks of a proposal before it becomes a candidate."""

from __future__ import annotations

from metaharness.gate.contract import check_harness
from metaharness.gate.duplicates import normalised_digest
from metaharness.gate.gate import Gate

__all__ = ["Gate", "check_harness", "normalised_digest"]
