"""`move_constant`: move a number within the bounds that a comment beside it declares.

The comment is `# range: LOW..HIGH`, with `, log` where steps should multiply.
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass

import libcst as cst

from metaharness.proposers.codemods.material import Material, Move
from metaharness.proposers.codemods.module import StepModule
from metaharness.source import SourceTree

NAME = "move_constant"
_NUMBER = r"-?\d+(?:\.\d+)?"
_RANGE = re.compile(rf"\brange:\s*({_NUMBER})\s*\.\.\s*({_NUMBER})\s*(,\s*log)?")
_WIDE = 6
"""Ratio of the bounds from which a positive whole number is also doubled and halved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """A number with declared bounds."""

    value: float
    low: float
    high: float
    log: bool
    whole: bool

    def steps(self) -> list[float]:
        """Return the values to try, within the bounds, without the present one."""
        span = self.high - self.low
        tried: list[float] = []
        if self.log or (self.whole and self.low >= 0 and self.high >= _WIDE * max(self.low, 1)):
            base = self.value if self.value > 0 else max(self.low, 1.0)
            tried += [base * factor for factor in (0.5, 1 / math.sqrt(2), math.sqrt(2), 2.0)]
        if not self.log:
            step = max(1.0, span / 12) if self.whole else span / 10
            tried += [self.value + step * number for number in (-3, -1, 1, 3)]
        rounded = [float(round(x)) if self.whole else float(f"{x:.2g}") for x in tried]
        inside = [min(self.high, max(self.low, x)) for x in rounded]
        return sorted(set(inside) - {self.value})

    def written(self, value: float) -> str:
        """Return a value as it stands in code."""
        return str(int(value)) if self.whole else repr(float(value))


def bounded_constants(module: StepModule) -> dict[str, Bounded]:
    """Return the constants of a module that are numbers with declared bounds, by name."""
    found = {}
    for name, node in module.constants.items():
        comment = node.trailing_whitespace.comment
        match = _RANGE.search(comment.value) if comment is not None else None
        value = _number(module.code_of(_value(node)))
        if match is None or value is None:
            continue
        low, high = float(match.group(1)), float(match.group(2))
        if low < high:
            found[name] = Bounded(
                value=float(value), low=low, high=high, log=match.group(3) is not None, whole=isinstance(value, int)
            )
    return found


def moves(material: Material) -> list[Move]:
    """Return moves for every constant with bounds."""
    found: list[Move] = []
    for path, site in material.sites.items():
        for name, bounded in bounded_constants(site.module).items():
            found.extend(_move(material, path, name, bounded, value) for value in bounded.steps())
    return found


def with_value(module: StepModule, name: str, text: str) -> StepModule:
    """Return a module in which a constant has another value."""
    node = module.constants[name]
    only = node.body[0]
    changed = node.with_changes(body=[only.with_changes(value=cst.parse_expression(text))])
    return module.replace(name, changed)


def _move(material: Material, path: str, name: str, bounded: Bounded, value: float) -> Move:
    old, new = bounded.written(bounded.value), bounded.written(value)
    way = "up" if value > bounded.value else "down"

    def apply() -> SourceTree | None:
        return material.changed(path, with_value(material.sites[path].module, name, new), name)

    return Move(
        mechanism=f"{NAME} {name} {way}",
        hypothesis=f"{name} may be too {'low' if way == 'up' else 'high'} at {old}: try {new}.",
        apply=apply,
        details={"target": name, "from": old, "to": new, "path": path},
    )


def _value(node: cst.SimpleStatementLine) -> cst.BaseExpression:
    only = node.body[0]
    value = only.value if isinstance(only, cst.Assign | cst.AnnAssign) else None
    return value if value is not None else cst.Name("None")


def _number(text: str) -> int | float | None:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
