"""What operators work on, and what they give: moves."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import libcst as cst

from metaharness.errors import HarnessError
from metaharness.patterns import matches
from metaharness.proposers.codemods.evidence import Evidence
from metaharness.proposers.codemods.module import StepModule
from metaharness.proposers.codemods.transplant import Site
from metaharness.source import HARNESS_FILE, SourceTree

NOTES = "Since then: "
MOST_NOTES = 8
LINE_CHARS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One change that an operator could make.

    Attributes:
        mechanism: Operator and target, for example `graft ask from label_scoring`: what is remembered of its success.
        hypothesis: Why it should help, in plain words.
        apply: Makes the changed tree; None when it turns out not to fit.
        weight: How promising it is by itself, 1 is usual.
        donor: Candidate that it borrows from, if it is one.
        details: For the manifest.
    """

    mechanism: str
    hypothesis: str
    apply: Callable[[], SourceTree | None]
    weight: float = 1.0
    donor: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def operator(self) -> str:
        """The operator's name."""
        return self.mechanism.partition(" ")[0]


@dataclass(frozen=True, kw_only=True)
class Source:
    """A harness to borrow from.

    Attributes:
        name: How it is called.
        tree: Its files.
        candidate: Its id, where it is a candidate of this search.
    """

    name: str
    tree: SourceTree
    candidate: str | None = None

    @cached_property
    def modules(self) -> Mapping[str, StepModule]:
        """Its Python files that can be taken apart, by path."""
        return parsed(self.tree)

    @cached_property
    def entry(self) -> tuple[str, str] | None:
        """Path and class of its entry, where that is in a file of its own."""
        return entry_of(self.tree)


@dataclass(frozen=True, kw_only=True)
class Material:
    """What one proposal starts from.

    Attributes:
        base: The harness to change.
        editable: Path patterns that may be changed.
        donors: Harnesses to borrow from.
        partner: The second parent, if there is one.
        evidence: What is known of earlier attempts and of the base's failures.
    """

    base: SourceTree
    editable: tuple[str, ...]
    donors: tuple[Source, ...] = ()
    partner: Source | None = None
    evidence: Evidence = field(default_factory=Evidence)

    @cached_property
    def sites(self) -> Mapping[str, Site]:
        """The Python files that may be changed, by path."""
        entry = entry_of(self.base)
        found = {}
        for path, module in parsed(self.base).items():
            if matches(path, self.editable):
                others = (self.base.text(other) for other in self.base if other != path and other.endswith(".py"))
                words = frozenset(re.findall(r"\w+", " ".join(others)))
                name = entry[1] if entry and entry[0] == path and entry[1] in module.classes else None
                found[path] = Site(module=module, entry=name, outside=words | _exported(module))
        return found

    def changed(self, path: str, module: StepModule | None, about: str, note: str = "") -> SourceTree | None:
        """Return the base with one module changed; None when there is none or it does not compile.

        Args:
            path: Path of the module.
            module: The changed module.
            about: What was changed, as a key of the note.
            note: What the module's docstring should say of the change; nothing when it is empty.
        """
        if module is None:
            return None
        if note:
            module = with_note(module, about, note)
        try:
            compile(module.code, path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return None
        return self.base.replace({path: module.code.encode()})


def parsed(tree: SourceTree) -> dict[str, StepModule]:
    """Return the Python files of a tree that can be taken apart, by path."""
    found = {}
    for path, data in tree.items():
        if not path.endswith(".py"):
            continue
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            continue
        module = StepModule.parse(text)
        if module is not None:
            found[path] = module
    return found


def entry_of(tree: SourceTree) -> tuple[str, str] | None:
    """Return path and class of a tree's entry; None for a command harness or an entry outside its files."""
    if HARNESS_FILE not in tree:
        return None
    try:
        entry = tree.config.entry
    except HarnessError:
        return None
    if entry is None:
        return None
    module, _, name = entry.partition(":")
    stem = module.replace(".", "/")
    path = next((path for path in (f"{stem}.py", f"{stem}/__init__.py") if path in tree), None)
    return (path, name) if path is not None else None


def with_note(module: StepModule, about: str, note: str) -> StepModule:
    """Return a module whose docstring says what was changed; a newer note on the same thing replaces the older one."""
    if not module.body or not isinstance(module.body[0], cst.SimpleStatementLine):
        return module
    first = module.body[0]
    expression = first.body[0]
    text = module.tree.get_docstring()
    if text is None or not isinstance(expression, cst.Expr) or "\\" in text or '"""' in text:
        return module
    head, _, tail = text.partition(f"\n\n{NOTES}")
    notes = [item.strip() for item in " ".join(tail.strip().rstrip(".").split()).split(";") if item.strip()]
    notes = [item for item in notes if not item.startswith(f"{about} ")]
    notes = [*notes, f"{about} {note}"][-MOST_NOTES:]
    written = textwrap.fill(f"{NOTES}{'; '.join(notes)}.", LINE_CHARS, break_long_words=False, break_on_hyphens=False)
    docstring = cst.SimpleString(f'"""{head.rstrip()}\n\n{written}\n"""')
    changed = first.with_changes(body=[expression.with_changes(value=docstring)])
    return module.with_body([changed, *module.body[1:]])


def same_code_key(tree: SourceTree) -> str:
    """Return a text that is equal for trees which differ only in form: comments, docstrings, order of definitions."""
    parts = []
    for path, data in tree.items():
        if path.endswith(".py"):
            try:
                parts.append(f"{path}:{sorted(ast.dump(node) for node in _bare(ast.parse(data)).body)}")
            except (SyntaxError, ValueError, RecursionError):
                parts.append(f"{path}:{data!r}")
        elif not path.endswith((".md", ".toml")):
            parts.append(f"{path}:{data!r}")
    return "\n".join(parts)


def _bare(module: ast.Module) -> ast.Module:
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(node.body) > 1:
                node.body = node.body[1:]
    return module


def _exported(module: StepModule) -> frozenset[str]:
    if "__all__" not in module.constants:
        return frozenset()
    return frozenset(re.findall(r"\w+", module.plain["__all__"]))
