"""Imports of a module: what they bind, adding one where a sorter would, and removing what is not used."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass

import libcst as cst

from metaharness.proposers.codemods.module import Statement, StepModule, is_import, leading


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Binding:
    """One imported name: `from module import name as bound`, or `import module as bound` with no name."""

    module: str
    name: str = ""
    bound: str

    @property
    def section(self) -> int:
        """0 for `__future__`, 1 for the standard library, 2 for others, 3 for metaharness, 4 for relative ones."""
        top = self.module.partition(".")[0]
        if top in ("__future__", ""):
            return 0 if top else 4
        return 1 if top in sys.stdlib_module_names else 3 if top == "metaharness" else 2

    def statement(self) -> cst.SimpleStatementLine:
        """Return the statement for this name alone."""
        if not self.name:
            renamed = "" if self.bound == self.module.partition(".")[0] else f" as {self.bound}"
            text = f"import {self.module}{renamed}"
        else:
            renamed = "" if self.bound == self.name else f" as {self.bound}"
            text = f"from {self.module} import {self.name}{renamed}"
        return cst.ensure_type(cst.parse_statement(text), cst.SimpleStatementLine)


def bindings(module: StepModule) -> dict[str, Binding]:
    """Return what the top-level imports of a module bind, by bound name; `import *` binds nothing here."""
    found = {}
    for node in module.body:
        if is_import(node) and isinstance(node, cst.SimpleStatementLine):
            for part in node.body:
                for item in _bindings_of(part):
                    found[item.bound] = item
    return found


def add_bindings(module: StepModule, wanted: Iterable[Binding]) -> StepModule:
    """Return a module which also imports these names."""
    for binding in sorted(wanted, key=lambda item: (item.section, item)):
        module = _add(module, binding)
    return module


def drop_bindings(module: StepModule, names: frozenset[str]) -> StepModule:
    """Return a module which no longer imports these bound names."""
    body: list[Statement] = []
    carried: list[cst.EmptyLine] = []
    for node in module.body:
        kept: Statement | None = node
        if is_import(node) and isinstance(node, cst.SimpleStatementLine) and len(node.body) == 1:
            kept = _without_names(node, names)
        if kept is None:
            carried = carried or list(leading(node))
            continue
        if carried:
            kept = kept if leading(kept) else kept.with_changes(leading_lines=carried)
            carried = []
        body.append(kept)
    return module.with_body(body)


def _bindings_of(part: cst.CSTNode) -> list[Binding]:
    if isinstance(part, cst.Import):
        return [
            Binding(module=_dotted(alias.name), bound=_as_name(alias) or _dotted(alias.name).partition(".")[0])
            for alias in part.names
        ]
    if isinstance(part, cst.ImportFrom) and not isinstance(part.names, cst.ImportStar):
        origin = _origin(part)
        return [
            Binding(module=origin, name=_dotted(alias.name), bound=_as_name(alias) or _dotted(alias.name))
            for alias in part.names
        ]
    return []


def _add(module: StepModule, binding: Binding) -> StepModule:
    statements = [
        (number, node, _bindings_of(node.body[0]))
        for number, node in enumerate(module.body)
        if is_import(node) and isinstance(node, cst.SimpleStatementLine) and len(node.body) == 1
    ]
    for number, node, found in statements:
        same = binding.name and any(item.name and item.module == binding.module for item in found)
        if same and isinstance(node.body[0], cst.ImportFrom):
            grown = _joined([*found, binding], node)
            return module.with_body([*module.body[:number], grown, *module.body[number + 1 :]])
    key = (binding.section, bool(binding.name), binding.module)
    earlier = [
        number
        for number, _, found in statements
        if found and (found[0].section, bool(found[0].name), found[0].module) < key
    ]
    new = binding.statement()
    if earlier:
        place = max(earlier) + 1
    elif statements:
        place = statements[0][0]
    else:
        place = 1 if module.tree.get_docstring() is not None else 0
    before = _section_at(module, place - 1)
    after = _section_at(module, place)
    body = list(module.body)
    blank = cst.EmptyLine(indent=False)
    if after == binding.section and place < len(body):
        new = new.with_changes(leading_lines=leading(body[place]) if before != after else [])
        body[place] = body[place].with_changes(leading_lines=[])
    elif place > 0 and before != binding.section:
        new = new.with_changes(leading_lines=[blank])
    if place < len(body) and after != binding.section and not leading(body[place]):
        body[place] = body[place].with_changes(leading_lines=[blank])
    return module.with_body([*body[:place], new, *body[place:]])


def _section_at(module: StepModule, place: int) -> int | None:
    if not 0 <= place < len(module.body):
        return None
    node = module.body[place]
    if not is_import(node) or not isinstance(node, cst.SimpleStatementLine):
        return None
    found = _bindings_of(node.body[0])
    return found[0].section if found else None


def _joined(found: Iterable[Binding], old: cst.SimpleStatementLine) -> cst.SimpleStatementLine:
    # As a sorter does by default: constants, then classes, then the rest.
    def rank(item: Binding) -> tuple[int, str]:
        kind = 0 if item.name.isupper() and len(item.name) > 1 else 1 if item.name[:1].isupper() else 2
        return kind, item.name

    items = sorted({item.bound: item for item in found}.values(), key=rank)
    written = [item.name if item.bound == item.name else f"{item.name} as {item.bound}" for item in items]
    text = f"from {items[0].module} import {', '.join(written)}"
    if len(text) > 120:
        text = f"from {items[0].module} import (\n" + "".join(f"    {name},\n" for name in written) + ")"
    new = cst.ensure_type(cst.parse_statement(text), cst.SimpleStatementLine)
    return new.with_changes(leading_lines=leading(old), trailing_whitespace=old.trailing_whitespace)


def _without_names(node: cst.SimpleStatementLine, names: frozenset[str]) -> cst.SimpleStatementLine | None:
    found = _bindings_of(node.body[0])
    kept = [item for item in found if item.bound not in names]
    if len(kept) == len(found):
        return node
    if not kept:
        return None
    if isinstance(node.body[0], cst.ImportFrom):
        return _joined(kept, node)
    written = ", ".join(
        item.module if item.bound == item.module.partition(".")[0] else f"{item.module} as {item.bound}"
        for item in kept
    )
    new = cst.ensure_type(cst.parse_statement(f"import {written}"), cst.SimpleStatementLine)
    return new.with_changes(leading_lines=leading(node), trailing_whitespace=node.trailing_whitespace)


def _as_name(alias: cst.ImportAlias) -> str | None:
    return alias.evaluated_alias


def _dotted(node: cst.BaseExpression) -> str:
    if isinstance(node, cst.Attribute):
        return f"{_dotted(node.value)}.{node.attr.value}"
    return cst.ensure_type(node, cst.Name).value


def _origin(part: cst.ImportFrom) -> str:
    return "." * len(part.relative) + (_dotted(part.module) if part.module is not None else "")
