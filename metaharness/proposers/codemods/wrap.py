"""Shared by the operators that wrap a step: rename what is there, and put a new function in its place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import libcst as cst

from metaharness.proposers.codemods.imports import Binding, add_bindings, bindings
from metaharness.proposers.codemods.material import Material
from metaharness.proposers.codemods.module import StepModule
from metaharness.proposers.codemods.transplant import Site

ASK = "ask"
"""The step that is wrapped: it asks the model and returns a text."""

PARSE = "parse_answer"
"""The step that reads an answer out of a text."""


def parameters(module: StepModule, name: str) -> list[str]:
    """Return the names of a function's plain parameters; empty when it has others too."""
    node = module.functions[name].params
    others = [*node.posonly_params, *node.kwonly_params]
    if others or node.star_kwarg is not None or isinstance(node.star_arg, cst.Param | cst.ParamStar):
        return []
    return [param.name.value for param in node.params]


def ask_sites(material: Material) -> Iterable[tuple[str, Site, list[str]]]:
    """Yield path, site and parameters of every `ask(model, task, …)` beside a `parse_answer(text, task)`."""
    for path, site in material.sites.items():
        module = site.module
        if ASK not in module.functions or PARSE not in module.functions:
            continue
        given = parameters(module, ASK)
        plain = not module.functions[ASK].asynchronous and not module.functions[PARSE].asynchronous
        if plain and given[:2] == ["model", "task"] and len(parameters(module, PARSE)) == 2:
            yield path, site, given


def wrap_function(
    module: StepModule,
    name: str,
    *,
    renamed: str,
    new: str,
    helpers: Sequence[str] = (),
    constants: Sequence[str] = (),
    imports: Sequence[Binding] = (),
) -> StepModule | None:
    """Return a module in which a function is renamed and a new one stands behind it under its name.

    Args:
        module: The module.
        name: Function to wrap.
        renamed: Its new name.
        new: Code of the function that takes the old name.
        helpers: Code of functions and classes to put before it.
        constants: Code of constants to add.
        imports: Names to import.

    Returns:
        The changed module; None when a name is taken.
    """
    added = [statement(code) for code in (*helpers, *constants)]
    names = {renamed, *(_defined(node) for node in added)}
    here = bindings(module)
    if names & module.bound_names or any(here.get(item.bound, item) != item for item in imports):
        return None
    if any(item.bound in module.pieces for item in imports):
        return None
    old = module.functions[name]
    inner = old.with_changes(name=cst.Name(renamed))
    changed = module.replace(name, statement(new))
    changed = changed.insert_before(name, [inner, *(statement(code) for code in helpers)])
    lines = [cst.ensure_type(statement(code), cst.SimpleStatementLine) for code in constants]
    return add_bindings(changed.add_constants(lines), [item for item in imports if item.bound not in here])


def statement(code: str) -> cst.SimpleStatementLine | cst.BaseCompoundStatement:
    """Return one top-level statement from its code."""
    return cst.parse_module(code.strip() + "\n").body[0]


def _defined(node: cst.CSTNode) -> str:
    if isinstance(node, cst.FunctionDef | cst.ClassDef):
        return node.name.value
    line = cst.ensure_type(node, cst.SimpleStatementLine)
    return cst.ensure_type(cst.ensure_type(line.body[0], cst.Assign).targets[0].target, cst.Name).value
