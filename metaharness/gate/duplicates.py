"""Trees that are the same: to the byte, or up to comments, white space, docstrings and local names."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping

from metaharness.gate.parse import ParsedTree, parse_tree
from metaharness.source import SourceTree

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def normalised_digest(tree: SourceTree, parsed: ParsedTree | None = None) -> str:
    """Return a SHA-256 (hex) that ignores comments, white space, docstrings and names of local variables.

    Python files that do not parse count as they are. Other texts count without trailing white space and blank lines.
    Equal digests say `similar`, not `same`: it is compared within one process, and may differ between Python versions.

    Args:
        tree: The files.
        parsed: Their syntax trees, if they are at hand.
    """
    modules = (parsed or parse_tree(tree, changed=())).modules
    digest = hashlib.sha256()
    for path, data in tree.items():
        if path in modules:
            body = _normal_form(modules[path]).encode("utf-8", "surrogatepass")
        elif b"\0" in data:
            body = data
        else:
            body = b"\n".join(line.rstrip() for line in data.splitlines() if line.strip())
        digest.update(f"{len(path)}:{path}:{len(body)}:".encode())
        digest.update(body)
    return digest.hexdigest()


class KnownTrees:
    """The trees that are candidates already.

    Args:
        exact: Tree digest to candidate id.
        normalised: Normalised digest to candidate id.
    """

    def __init__(self, exact: Mapping[str, str] | None = None, normalised: Mapping[str, str] | None = None) -> None:
        self._exact = dict(exact or {})
        self._normalised = dict(normalised or {})

    def add(self, candidate: str, tree: SourceTree) -> None:
        """Remember a candidate; the first of several equal ones stays."""
        self._exact.setdefault(tree.digest, candidate)
        self._normalised.setdefault(normalised_digest(tree), candidate)

    def same(self, tree: SourceTree) -> str | None:
        """Return the candidate with exactly these files."""
        return self._exact.get(tree.digest)

    def similar(self, tree: SourceTree, parsed: ParsedTree) -> str | None:
        """Return the candidate with the same normal form."""
        return self._normalised.get(normalised_digest(tree, parsed))


def _normal_form(module: ast.Module) -> str:
    """Return the syntax tree as text, without docstrings, local names replaced by their order of appearance.

    All names that are bound anywhere inside an outermost function are taken as local to it. That is coarser than
    Python's scopes (a nested function may shadow a global of the same name), which is good enough for a hint.
    """
    chunks = []
    for statement in _without_docstring(module):
        scopes = {id(function): _local_names(function) for function in _outermost_functions(statement)}
        chunks.append(_dump(statement, scopes, {}))
    return "\n".join(chunks)


def _dump(node: object, scopes: Mapping[int, frozenset[str]], names: dict[str, str]) -> str:
    if isinstance(node, list):
        return f"[{','.join(_dump(item, scopes, names) for item in node)}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    own = scopes.get(id(node))
    if own is not None:
        # The function's own name is no local: callers use it. Its locals get their numbers as they appear.
        names = dict.fromkeys(own, "")
    fields = []
    for name, value in ast.iter_fields(node):
        if name in ("ctx", "type_comment", "kind"):
            continue
        if name == "body" and isinstance(node, _DOCUMENTED):
            value = _without_docstring(node)
        is_name = (name, type(node)) in _NAME_FIELDS and not (own is not None and name == "name")
        if is_name and isinstance(value, list):
            value = [_renamed(item, names) for item in value]
        elif is_name and isinstance(value, str):
            value = _renamed(value, names)
        fields.append(f"{name}={_dump(value, scopes, names)}")
    return f"{type(node).__name__}({','.join(fields)})"


_NAME_FIELDS: frozenset[tuple[str, type]] = frozenset(
    {
        ("id", ast.Name),
        ("arg", ast.arg),
        ("name", ast.FunctionDef),
        ("name", ast.AsyncFunctionDef),
        ("name", ast.ClassDef),
        ("name", ast.ExceptHandler),
        ("name", ast.MatchAs),
        ("name", ast.MatchStar),
        ("rest", ast.MatchMapping),
        ("names", ast.Nonlocal),
        ("asname", ast.alias),
    }
)


def _renamed(name: str, names: dict[str, str]) -> str:
    if name not in names:
        return name
    if not names[name]:
        names[name] = f"<local {sum(map(bool, names.values()))}>"
    return names[name]


def _without_docstring(node: ast.AST) -> list[ast.stmt]:
    body: list[ast.stmt] = getattr(node, "body", [])
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return body[1:]
    return body


def _outermost_functions(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        yield node
        return
    for child in ast.iter_child_nodes(node):
        yield from _outermost_functions(child)


def _local_names(function: ast.AST) -> frozenset[str]:
    bound: set[str] = set()
    outer: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Global):
            outer.update(node.names)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node is not function:
            bound.add(node.name)
        elif isinstance(node, ast.alias):
            bound.update([node.asname] if node.asname else [])
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            bound.update([node.name] if node.name else [])
        elif isinstance(node, ast.MatchMapping):
            bound.update([node.rest] if node.rest else [])
    return frozenset(bound - outer)
