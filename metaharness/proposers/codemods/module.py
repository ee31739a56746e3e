"""`StepModule`: one Python file of a harness as named pieces that can be exchanged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import libcst as cst

from metaharness.proposers.codemods.names import global_names

Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement

_BLANK = cst.EmptyLine(indent=False)


class StepModule:
    """An immutable view of a module's top level.

    Args:
        tree: The module.
    """

    def __init__(self, tree: cst.Module) -> None:
        self.tree = tree

    @classmethod
    def parse(cls, text: str) -> StepModule | None:
        """Return the module, or None when the text is not Python that can be taken apart."""
        try:
            module = cls(cst.parse_module(text))
            _ = module.uses
        except (cst.ParserSyntaxError, SyntaxError, RecursionError, ValueError):
            return None
        return module

    @property
    def code(self) -> str:
        """The text of the module."""
        return self.tree.code

    @cached_property
    def body(self) -> tuple[Statement, ...]:
        """The top-level statements."""
        return tuple(self.tree.body)

    @cached_property
    def functions(self) -> Mapping[str, cst.FunctionDef]:
        """Top-level functions by name."""
        return {node.name.value: node for node in self.body if isinstance(node, cst.FunctionDef)}

    @cached_property
    def classes(self) -> Mapping[str, cst.ClassDef]:
        """Top-level classes by name."""
        return {node.name.value: node for node in self.body if isinstance(node, cst.ClassDef)}

    @cached_property
    def constants(self) -> Mapping[str, cst.SimpleStatementLine]:
        """Statements that do nothing but bind one name, by that name."""
        found = {}
        for node in self.body:
            name = constant_name(node)
            if name and isinstance(node, cst.SimpleStatementLine):
                found[name] = node
        return found

    @cached_property
    def pieces(self) -> Mapping[str, Statement]:
        """Functions, classes and constants by name."""
        return {**self.constants, **self.classes, **self.functions}

    @cached_property
    def uses(self) -> Mapping[str, frozenset[str]]:
        """Names that each piece reads from the module."""
        return {name: global_names(self.code_of(node)) for name, node in self.pieces.items()}

    def code_of(self, node: cst.CSTNode) -> str:
        """Return the code of a node."""
        return self.tree.code_for_node(node)

    @cached_property
    def signatures(self) -> Mapping[str, str]:
        """Parameters and result of each function as text, without white space."""
        found = {}
        for name, node in self.functions.items():
            returns = self.code_of(node.returns.annotation) if node.returns else ""
            text = "".join(f"({self.code_of(node.params)})->{returns}".split())
            found[name] = f"async {text}" if node.asynchronous else text
        return found

    @cached_property
    def plain(self) -> Mapping[str, str]:
        """The code of each piece without the blank lines and comments before it."""
        return {name: self.code_of(without_leading(node)).strip() for name, node in self.pieces.items()}

    def closure(self, names: Iterable[str], stop: frozenset[str] = frozenset()) -> list[str]:
        """Return the pieces that `names` need, themselves included, in the order of the file.

        Args:
            names: Where to start.
            stop: Names that are not followed and not returned.
        """
        reached: set[str] = set()
        pending = [name for name in names if name in self.pieces]
        while pending:
            name = pending.pop()
            if name in reached or name in stop:
                continue
            reached.add(name)
            pending.extend(other for other in self.uses[name] if other in self.pieces)
        return [name for name in self.pieces_in_order if name in reached]

    @cached_property
    def pieces_in_order(self) -> tuple[str, ...]:
        """Names of the pieces in the order of the file."""
        order = {id(node): number for number, node in enumerate(self.body)}
        return tuple(sorted(self.pieces, key=lambda name: order[id(self.pieces[name])]))

    @cached_property
    def loose_names(self) -> frozenset[str]:
        """Names that statements read which are neither pieces nor imports."""
        named = {id(node) for node in self.pieces.values()}
        loose = [node for node in self.body if id(node) not in named and not is_import(node)]
        return frozenset().union(*(global_names(self.code_of(node)) for node in loose)) if loose else frozenset()

    @cached_property
    def bound_names(self) -> frozenset[str]:
        """All names that the module's top level binds."""
        loose = symbols_bound(self.code)
        return frozenset(self.pieces) | loose

    # ---------------------------------------------------------------------------------------- changed copies

    def with_body(self, body: Sequence[Statement]) -> StepModule:
        """Return a copy with other top-level statements."""
        return StepModule(self.tree.with_changes(body=list(body)))

    def replace(self, name: str, node: Statement) -> StepModule:
        """Return a copy in which a piece is another statement, with the blank lines that stood before it."""
        old = self.pieces[name]
        new = node.with_changes(leading_lines=leading(old))
        return self.with_body([new if item is old else item for item in self.body])

    def insert_before(self, name: str, nodes: Sequence[Statement]) -> StepModule:
        """Return a copy with functions or classes put before a piece, two blank lines apart."""
        place = self.body.index(self.pieces[name])
        anchor = self.body[place]
        first, *rest = [*nodes, anchor]
        spaced = [
            first.with_changes(leading_lines=[_BLANK, _BLANK]),
            *(node.with_changes(leading_lines=_two_blank(leading(node))) for node in rest),
        ]
        return self.with_body([*self.body[:place], *spaced, *self.body[place + 1 :]])

    def add_constants(self, nodes: Sequence[cst.SimpleStatementLine]) -> StepModule:
        """Return a copy with constants put behind those that are there, else behind the imports."""
        if not nodes:
            return self
        blocks = [number for number, node in enumerate(self.body) if not isinstance(node, cst.BaseCompoundStatement)]
        constants = [number for number in blocks if constant_name(self.body[number])]
        first_piece = min(
            (number for number, node in enumerate(self.body) if isinstance(node, cst.FunctionDef | cst.ClassDef)),
            default=len(self.body),
        )
        before = [number for number in (constants or blocks) if number < first_piece]
        place = max(before, default=-1) + 1
        own_block = not constants or not before
        added = [
            node.with_changes(leading_lines=[_BLANK] if own_block and not number else [])
            for number, node in enumerate(nodes)
        ]
        return self.with_body([*self.body[:place], *added, *self.body[place:]])

    def without(self, names: frozenset[str]) -> StepModule:
        """Return a copy without these pieces."""
        gone = {id(self.pieces[name]) for name in names}
        return self.with_body([node for node in self.body if id(node) not in gone])


def constant_name(node: cst.CSTNode) -> str | None:
    """Return the name that a statement binds to a value, when it does nothing else."""
    if not isinstance(node, cst.SimpleStatementLine) or len(node.body) != 1:
        return None
    only = node.body[0]
    if isinstance(only, cst.Assign) and len(only.targets) == 1 and isinstance(only.targets[0].target, cst.Name):
        return only.targets[0].target.value
    if isinstance(only, cst.AnnAssign) and only.value is not None and isinstance(only.target, cst.Name):
        return only.target.value
    return None


def is_import(node: cst.CSTNode) -> bool:
    """Return whether a statement imports, and does nothing else."""
    return isinstance(node, cst.SimpleStatementLine) and all(
        isinstance(part, cst.Import | cst.ImportFrom) for part in node.body
    )


def leading(node: Statement) -> Sequence[cst.EmptyLine]:
    """Return the blank lines and comments before a statement."""
    return list(getattr(node, "leading_lines", ()))


def without_leading(node: Statement) -> Statement:
    """Return a statement without the blank lines and comments before it."""
    return node.with_changes(leading_lines=[])


def symbols_bound(code: str) -> frozenset[str]:
    """Return the names that the top level of some code binds."""
    import symtable

    table = symtable.symtable(code, "<module>", "exec")
    return frozenset(s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported())


def _two_blank(lines: Sequence[cst.EmptyLine]) -> list[cst.EmptyLine]:
    comments = [line for line in lines if line.comment is not None]
    return [_BLANK, _BLANK, *comments]
