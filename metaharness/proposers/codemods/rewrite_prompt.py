"""`rewrite_prompt`: rewrite a prompt by a transformation of the library.

Prompts are text files below `prompts/`, and string constants whose name ends in `_PROMPT`.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable

import libcst as cst

from metaharness.patterns import matches
from metaharness.proposers.codemods.material import LINE_CHARS, Material, Move
from metaharness.proposers.codemods.module import StepModule
from metaharness.proposers.codemods.move_constant import with_value
from metaharness.proposers.codemods.phrases import LIBRARY, Phrase, fields_of
from metaharness.source import SourceTree

NAME = "rewrite_prompt"
SUFFIX = "_PROMPT"
FOLDER = "prompts/"
_DROPPABLE = frozenset({"instruction"})


def prompt_constants(module: StepModule) -> dict[str, str]:
    """Return the string constants of a module whose name ends in `_PROMPT`, by name."""
    found = {}
    for name, node in module.constants.items():
        only = node.body[0]
        if name.endswith(SUFFIX) and isinstance(only, cst.Assign | cst.AnnAssign) and only.value is not None:
            try:
                value = ast.literal_eval(module.code_of(only.value).strip())
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
            if isinstance(value, str):
                found[name] = value
    return found


def moves(material: Material) -> list[Move]:
    """Return a move for every prompt and transformation that fits it."""
    found: list[Move] = []
    for path, site in material.sites.items():
        for name, text in prompt_constants(site.module).items():
            offered = offered_fields(site.module, name)
            for phrase in LIBRARY:
                changed = phrase.apply(name, text)
                if changed is not None and keeps_fields(text, changed, offered):
                    found.append(_constant_move(material, path, name, changed, phrase))
    for path in material.base:
        if path.startswith(FOLDER) and matches(path, material.editable):
            try:
                text = material.base[path].decode("utf-8")
            except UnicodeDecodeError:
                continue
            for phrase in LIBRARY:
                changed = phrase.apply(path, text.rstrip("\n")) if text.strip() else None
                if changed is not None and keeps_fields(text, changed, frozenset()):
                    found.append(_file_move(material, path, text, changed, phrase))
    return found


def offered_fields(module: StepModule, name: str) -> frozenset[str]:
    """Return the fields that every call of `format` on a constant fills in."""
    offered: list[frozenset[str]] = []
    for node in ast.walk(ast.parse(module.code)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format"):
            continue
        if name in {part.id for part in ast.walk(node.func.value) if isinstance(part, ast.Name)}:
            offered.append(frozenset(keyword.arg for keyword in node.keywords if keyword.arg))
    return frozenset.intersection(*offered) if offered else frozenset()


def keeps_fields(old: str, new: str, offered: frozenset[str]) -> bool:
    """Return whether a new text keeps the fields of the old one and asks for none that nobody fills in.

    `{instruction}` may go: what a task is about may also be seen from its examples.
    """
    before, after = fields_of(old), fields_of(new)
    if before is None or after is None:
        # Not a format string; then braces must stay as they are.
        return sorted(c for c in old if c in "{}") == sorted(c for c in new if c in "{}")
    return before - after <= _DROPPABLE and after - before <= offered


def literal(text: str, room: int) -> str:
    """Return a string literal as a formatter writes it, in several lines when it is longer than `room` characters."""
    whole = json.dumps(text, ensure_ascii=False)
    if ast.literal_eval(whole) != text or ('"' in text and "'" not in text):
        return repr(text)
    if len(whole) <= room:
        return whole
    pieces, line = [], ""
    for word in text.split(" "):
        if line and len(json.dumps(line + word, ensure_ascii=False)) > LINE_CHARS - 8:
            pieces.append(line)
            line = ""
        line += f"{word} "
    pieces.append(line[:-1])
    rows = "".join(f"    {json.dumps(piece, ensure_ascii=False)}\n" for piece in pieces)
    return f"(\n{rows})" if "".join(pieces) == text else whole


def _constant_move(material: Material, path: str, name: str, changed: str, phrase: Phrase) -> Move:
    def apply() -> SourceTree | None:
        module = material.sites[path].module
        return material.changed(path, with_value(module, name, literal(changed, LINE_CHARS - len(name) - 3)), name)

    return _move(name, path, changed, phrase, apply)


def _file_move(material: Material, path: str, old: str, changed: str, phrase: Phrase) -> Move:
    ending = "\n" if old.endswith("\n") else ""

    def apply() -> SourceTree | None:
        return material.base.replace({path: (changed + ending).encode()})

    return _move(path.removeprefix(FOLDER), path, changed, phrase, apply)


def _move(name: str, path: str, changed: str, phrase: Phrase, apply: Callable[[], SourceTree | None]) -> Move:
    return Move(
        mechanism=f"{NAME} {name} {phrase.name}",
        hypothesis=f"{name} may work better as {changed[:200]!r}: {phrase.why}.",
        apply=apply,
        weight=phrase.weight,
        details={"target": name, "transformation": phrase.name, "path": path},
    )
