"""Find a class and its methods statically, over the modules of a tree: simple imports, aliases and bases."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef

_HARMLESS_BASES = frozenset({"object", "ABC", "Protocol", "Generic"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a name stands for.

    Attributes:
        kind: `class`, `function`, `other` (a constant, a module), `absent`, or `unknown` (only running it would tell).
        path: File of the definition.
        node: The definition, for classes and functions.
    """

    kind: str
    path: str = ""
    node: ast.AST | None = None


@dataclass(slots=True)
class Methods:
    """Methods of a class with those of its bases.

    Attributes:
        functions: Name to path and definition; None for what is assigned, so that its signature is unknown.
        complete: False when a base or decorator may bring more.
    """

    functions: dict[str, tuple[str, Function] | None] = field(default_factory=dict)
    complete: bool = True


class Program:
    """The modules of a tree.

    Args:
        modules: Syntax trees by path.
        unread: Paths of Python files that do not parse.
    """

    def __init__(self, modules: Mapping[str, ast.Module], unread: frozenset[str] = frozenset()) -> None:
        self._modules = modules
        self._unread = unread

    def module_path(self, dotted: str) -> str | None:
        """Return the file of a module, if the tree has it; a package hides a module of the same name."""
        stem = dotted.replace(".", "/")
        for path in (f"{stem}/__init__.py", f"{stem}.py"):
            if path in self._modules or path in self._unread:
                return path
        return None

    def find(self, path: str, name: str, seen: frozenset[tuple[str, str]] = frozenset()) -> Found:
        """Return what a name at the top of a file stands for."""
        if path in self._unread or (path, name) in seen:
            return Found(kind="unknown")
        seen |= {(path, name)}
        stars: list[ast.ImportFrom] = []
        for statement in reversed(list(_top_statements(self._modules[path].body))):
            if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*":
                stars.append(statement)
                continue
            found = self._binding(path, statement, name, seen)
            if found is not None:
                return found
        for star in stars:
            target = self._imported_module(path, star)
            found = Found(kind="unknown") if target is None else self.find(target, name, seen)
            if found.kind != "absent":
                return found
        return Found(kind="absent")

    def names(self, path: str) -> list[str]:
        """Return the classes that a file defines at its top."""
        return [node.name for node in _top_statements(self._modules[path].body) if isinstance(node, ast.ClassDef)]

    def methods(self, path: str, node: ast.ClassDef, seen: frozenset[int] = frozenset()) -> Methods:
        """Return the methods of a class, those of its bases included."""
        result = Methods()
        if id(node) in seen:
            return result
        result.complete = not node.decorator_list and all(_harmless(keyword.value) for keyword in node.keywords)
        for base in reversed(node.bases):
            inherited = self._inherited(path, base, seen | {id(node)})
            result.functions.update(inherited.functions)
            result.complete &= inherited.complete
        for statement in _top_statements(node.body):
            if isinstance(statement, Function):
                result.functions[statement.name] = (path, statement)
            else:
                result.functions.update(dict.fromkeys(_assigned(statement)))
        return result

    def _inherited(self, path: str, base: ast.expr, seen: frozenset[int]) -> Methods:
        expression = base.value if isinstance(base, ast.Subscript) else base
        if _harmless(expression):
            return Methods()
        if isinstance(expression, ast.Name):
            found = self.find(path, expression.id)
            if isinstance(found.node, ast.ClassDef):
                return self.methods(found.path, found.node, seen)
        if isinstance(expression, ast.Attribute) and isinstance(expression.value, ast.Name):
            module = self._module_named(path, expression.value.id)
            found = self.find(module, expression.attr) if module is not None else Found(kind="unknown")
            if isinstance(found.node, ast.ClassDef):
                return self.methods(found.path, found.node, seen)
        return Methods(complete=False)

    def _binding(self, path: str, statement: ast.stmt, name: str, seen: frozenset[tuple[str, str]]) -> Found | None:
        if isinstance(statement, ast.ClassDef) and statement.name == name:
            return Found(kind="class", path=path, node=statement)
        if isinstance(statement, Function) and statement.name == name:
            return Found(kind="function", path=path, node=statement)
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                if (alias.asname or alias.name) == name:
                    target = self._imported_module(path, statement)
                    return Found(kind="unknown") if target is None else self.find(target, alias.name, seen)
        if isinstance(statement, ast.Import) and name in {
            a.asname or a.name.partition(".")[0] for a in statement.names
        }:
            return Found(kind="other", path=path)
        if name in _assigned(statement):
            value = getattr(statement, "value", None)
            if isinstance(value, ast.Name):
                return self.find(path, value.id, seen)
            return Found(kind="other" if isinstance(value, ast.Constant) else "unknown", path=path)
        return None

    def _imported_module(self, path: str, statement: ast.ImportFrom) -> str | None:
        """Return the file that `from … import` reads from, or None when the tree does not have it."""
        dotted = statement.module or ""
        if statement.level:
            parents = path.split("/")[: -statement.level]
            if len(path.split("/")) < statement.level:
                return None
            dotted = ".".join([*parents, dotted] if dotted else parents)
        return self.module_path(dotted) if dotted else None

    def _module_named(self, path: str, name: str) -> str | None:
        """Return the file of a module that is known under a name in a file."""
        for statement in _top_statements(self._modules[path].body):
            if isinstance(statement, ast.Import):
                for alias in statement.names:
                    if (alias.asname or alias.name) == name:
                        return self.module_path(alias.name)
            if isinstance(statement, ast.ImportFrom):
                for alias in statement.names:
                    if (alias.asname or alias.name) == name:
                        package = self._package(path, statement)
                        return self.module_path(".".join([*package, alias.name]))
        return None

    @staticmethod
    def _package(path: str, statement: ast.ImportFrom) -> list[str]:
        parents = path.split("/")[: -statement.level] if statement.level else []
        return [*parents, *(statement.module.split(".") if statement.module else [])]


def _top_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, those inside if, try and with too, but not those inside functions and classes."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With):
            for name in ("body", "handlers", "orelse", "finalbody"):
                inner = getattr(statement, name, [])
                for part in inner:
                    yield from _top_statements(part.body if isinstance(part, ast.ExceptHandler) else [part])


def _assigned(statement: ast.stmt) -> set[str]:
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets = [statement.target]
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def _harmless(expression: ast.expr) -> bool:
    name = getattr(expression, "attr", None) or getattr(expression, "id", "")
    return name in _HARMLESS_BASES or name == "ABCMeta"
