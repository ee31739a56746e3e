"""Which names a piece of Python code takes from the module around it."""

from __future__ import annotations

import builtins
import symtable

BUILTINS = frozenset(dir(builtins)) | {"__file__", "__name__", "__doc__"}


def global_names(code: str) -> frozenset[str]:
    """Return the names that a statement reads from its module: annotations, decorators and defaults included.

    Args:
        code: One or more top-level statements.

    Raises:
        SyntaxError: It does not parse.
    """
    found: set[str] = set()
    tables = [symtable.symtable(code, "<step>", "exec")]
    while tables:
        table = tables.pop()
        at_top = table.get_type() == "module"
        found.update(
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_referenced() and (at_top or symbol.is_global())
        )
        tables.extend(table.get_children())
    return frozenset(found) - BUILTINS


def fresh_name(wanted: str, taken: frozenset[str] | set[str]) -> str:
    """Return `wanted`, with a number put behind it when the name is taken."""
    if wanted not in taken:
        return wanted
    number = 2
    while f"{wanted}_{number}" in taken:
        number += 1
    return f"{wanted}_{number}"
