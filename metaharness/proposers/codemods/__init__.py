"""`codemods`: the proposer that needs no model; one file an operator."""

from __future__ import annotations

from metaharness.proposers.codemods.operators import OPERATORS, Operator
from metaharness.proposers.codemods.proposer import Codemods

__all__ = ["OPERATORS", "Codemods", "Operator"]
