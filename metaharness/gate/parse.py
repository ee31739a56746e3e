"""Every Python file parses: with Python's own parser, and with libcst, which the codemods need."""

from __future__ import annotations

import ast
import io
import threading
import tokenize
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from metaharness.candidate import Finding
from metaharness.source import SourceTree

MAX_PYTHON_BYTES = 256 * 1024
"""libcst reads about 50 KiB a second; a larger module is no source that a proposer should work on."""

MAX_DEPTH = 150
"""Levels of the syntax tree: libcst takes quadratic time in them, and Python's recursion ends at some hundreds."""

# `warnings.catch_warnings` changes the whole process; two threads in it at once would leave filters behind.
_WARNINGS_LOCK = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedTree:
    """Syntax trees of the Python files that parse, by path, and findings for those that do not."""

    modules: Mapping[str, ast.Module]
    findings: tuple[Finding, ...]


def parse_tree(tree: SourceTree, changed: Collection[str] | None = None) -> ParsedTree:
    """Parse all Python files.

    Args:
        tree: The files.
        changed: Paths that libcst must read too; None for all. (Others have passed already.)
    """
    modules: dict[str, ast.Module] = {}
    findings: list[Finding] = []
    for path, data in tree.items():
        if not path.endswith(".py"):
            continue
        try:
            text = _source(data)
            module = parse_module(text)
            if changed is None or path in changed:
                _parse_concrete(text)
        except _Unparsable as error:
            findings.append(Finding(check="parse", path=path, line=error.line, message=str(error)))
        else:
            modules[path] = module
    return ParsedTree(modules=modules, findings=tuple(findings))


def parse_module(text: str) -> ast.Module:
    """Parse Python source without a warning to anybody.

    Raises:
        SyntaxError: It does not parse, or is nested too deeply.
    """
    try:
        with _WARNINGS_LOCK, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes and the like: the harness's own affair
            module = ast.parse(text)
    except SyntaxError as error:
        raise _Unparsable(f"syntax error: {error.msg}", error.lineno) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise _Unparsable(f"cannot be parsed: {error or 'nested too deeply'}", None) from error
    _check_depth(module)
    return module


class _Unparsable(SyntaxError):
    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.line = line


def _source(data: bytes) -> str:
    if len(data) > MAX_PYTHON_BYTES:
        raise _Unparsable(f"{len(data)} bytes; a Python file has at most {MAX_PYTHON_BYTES}", None)
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        # Another declared encoding could make Python run something else than what is read here.
        if encoding not in ("utf-8", "utf-8-sig"):
            raise _Unparsable(f"declares the encoding {encoding}; use UTF-8", 1)
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise _Unparsable("not UTF-8", data[: error.start].count(b"\n") + 1) from error
    except SyntaxError as error:
        if isinstance(error, _Unparsable):
            raise
        raise _Unparsable(f"declares no known encoding: {error.msg}; use UTF-8", 1) from error


def _check_depth(module: ast.Module) -> None:
    level: list[ast.AST] = [module]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    line = next((node.lineno for node in level if isinstance(node, ast.expr | ast.stmt)), None)
    raise _Unparsable(f"nested over {MAX_DEPTH} levels deep", line)


def _parse_concrete(text: str) -> None:
    import libcst

    try:
        libcst.parse_module(text)
    except libcst.ParserSyntaxError as error:
        raise _Unparsable(f"libcst cannot read it: {error.message}", error.raw_line) from error
