"""Take a function of one module over into another, with what it needs."""

from __future__ import annotations

import re
import symtable
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import libcst as cst

from metaharness.proposers.codemods.imports import Binding, add_bindings, bindings, drop_bindings
from metaharness.proposers.codemods.module import Statement, StepModule, without_leading
from metaharness.proposers.codemods.names import fresh_name

EXAMPLES = "examples"
"""A function that reads a parameter of this name needs a harness that learns."""

LEARNING = ("learn", "save", "load")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A module that is to be changed.

    Attributes:
        module: The module.
        entry: Name of the harness class, where it stands in this module.
        outside: Names that other files mention: they must not vanish.
    """

    module: StepModule
    entry: str | None
    outside: frozenset[str] = frozenset()

    def roots(self) -> frozenset[str]:
        """Return the pieces that must stay: the harness, what others may use, and what nothing used before."""
        module = self.module
        if self.entry is None:
            return frozenset(module.functions) | frozenset(module.classes)
        named = {self.entry} | module.loose_names | self.outside
        known = [name for name in module.pieces if name in named]
        return frozenset(known) | (frozenset(module.pieces) - frozenset(module.closure(known)))


@dataclass(slots=True)
class _Plan:
    """What has to come along."""

    brought: list[str] = field(default_factory=list)
    replaced: set[str] = field(default_factory=set)
    renamed: dict[str, str] = field(default_factory=dict)
    imports: list[Binding] = field(default_factory=list)


def take_function(site: Site, target: str, donor: StepModule, source: str, donor_name: str) -> StepModule | None:
    """Return the site's module with the donor's function `source` in the place of its function `target`.

    Helpers of the same name and signature that the site has are used as they are: they are steps too. Constants,
    classes, other helpers and imports come along; where a name is taken by something else they are renamed.

    Args:
        site: Where it goes.
        target: Function that is replaced.
        donor: Where it comes from.
        source: Function that is taken.
        donor_name: For names that have to be changed.

    Returns:
        The changed module, without what nothing uses any more; None when it does not fit.
    """
    plan = _plan(site, target, donor, source, donor_name)
    if plan is None:
        return None
    renamed = {**plan.renamed, **({source: target} if source != target else {})}
    module = site.module.replace(target, _renamed(donor.functions[source], renamed))
    functions: list[Statement] = []
    constants: list[cst.SimpleStatementLine] = []
    for name in plan.brought:
        node = _renamed(without_leading(donor.pieces[name]), renamed)
        if name in plan.replaced:
            module = module.replace(name, node)
        elif isinstance(node, cst.SimpleStatementLine):
            constants.append(node)
        else:
            functions.append(node)
    if functions:
        module = module.insert_before(target, functions)
    module = add_bindings(module.add_constants(constants), plan.imports)
    cycle = target in module.closure(module.uses[target] - {target})
    if cycle and source not in donor.closure(donor.uses[source] - {source}):
        return None
    return prune(site, module)


def prune(site: Site, module: StepModule) -> StepModule:
    """Return a changed module without the pieces and imports that the change has left without use.

    Args:
        site: The module as it was.
        module: The module as it is now.
    """
    roots = [name for name in site.roots() | module.loose_names if name in module.pieces]
    if site.entry is not None:
        module = module.without(frozenset(module.pieces) - frozenset(module.closure(roots)))
    used = module.loose_names.union(*module.uses.values()) | site.outside
    before = site.module.loose_names.union(*site.module.uses.values())
    old = bindings(site.module)
    unused = {name for name in bindings(module) if name not in used and (name in before or name not in old)}
    return drop_bindings(module, frozenset(unused - {"annotations"}))


def reads_examples(module: StepModule, names: Iterable[str]) -> bool:
    """Return whether one of these functions reads its parameter `examples`."""
    for name in names:
        if name not in module.functions:
            continue
        table = symtable.symtable(module.plain[name], "<step>", "exec").get_children()[-1]
        if any(s.get_name() == EXAMPLES and s.is_parameter() and s.is_referenced() for s in table.get_symbols()):
            return True
    return False


def take_learning(site: Site, donor: StepModule, donor_entry: str) -> StepModule | None:
    """Return the site's module with `learn`, `save` and `load` of the donor's harness class.

    Returns:
        The changed module; None when the class learns already, the donor's does not, or they do not fit.
    """
    if site.entry is None or site.entry not in site.module.classes or donor_entry not in donor.classes:
        return None
    ours, theirs = _methods(site.module.classes[site.entry]), _methods(donor.classes[donor_entry])
    if "learn" in ours or any(name not in theirs for name in LEARNING):
        return None
    attributes = {name for method in LEARNING for name in _own_attributes(donor.code_of(theirs[method]))}
    if not attributes <= _own_attributes(site.module.code_of(site.module.classes[site.entry])):
        return None
    known = bindings(donor)
    needed: set[str] = set()
    for method in LEARNING:
        holder = cst.ClassDef(name=cst.Name("Holder"), body=cst.IndentedBlock(body=[theirs[method]]))
        needed |= StepModule(cst.Module(body=[holder])).uses["Holder"]
    if any(name not in known for name in needed):
        return None
    here = bindings(site.module)
    if any(name in here and here[name] != known[name] for name in needed) or needed & site.module.pieces.keys():
        return None
    changed = site.module.replace(
        site.entry, _with_methods(site.module.classes[site.entry], donor.classes[donor_entry], theirs)
    )
    return add_bindings(changed, [known[name] for name in needed if name not in here])


def _plan(site: Site, target: str, donor: StepModule, source: str, donor_name: str) -> _Plan | None:
    module = site.module
    # What the module still needs once the old function is gone.
    remaining = frozenset(module.closure(site.roots(), stop=frozenset({target})))
    taken = set(module.bound_names) | set(donor.bound_names)
    ours, theirs = bindings(module), bindings(donor)
    plan = _Plan()
    found: set[str] = set()
    pending = sorted(donor.uses[source] - {source})
    while pending:
        name = pending.pop(0)
        if name in found or name == source:
            continue
        found.add(name)
        if name in theirs and name not in donor.pieces:
            if ours.get(name, theirs[name]) != theirs[name] or name in module.pieces or not _absolute(theirs[name]):
                return None
            plan.imports.extend([theirs[name]] if name not in ours else [])
            continue
        if name not in donor.pieces:
            return None
        if name == target or name in ours:
            plan.renamed[name] = fresh_name(_prefixed(name, donor_name), taken)
        elif name in module.pieces:
            if _same_step(module, donor, name) or module.plain[name] == donor.plain[name]:
                continue
            if name in remaining or type(module.pieces[name]) is not type(donor.pieces[name]):
                plan.renamed[name] = fresh_name(_prefixed(name, donor_name), taken)
            else:
                plan.replaced.add(name)
        taken.add(plan.renamed.get(name, name))
        plan.brought.append(name)
        pending.extend(sorted(donor.uses[name]))
    order = {name: number for number, name in enumerate(donor.pieces_in_order)}
    plan.brought.sort(key=lambda name: order[name])
    return plan


def _same_step(module: StepModule, donor: StepModule, name: str) -> bool:
    both = name in module.functions and name in donor.functions
    return both and module.signatures[name] == donor.signatures[name]


def _absolute(binding: Binding) -> bool:
    # Relative imports, and those of a harness's own files, mean something else elsewhere; only what every
    # harness can import may come along.
    return binding.section in (1, 3)


def _prefixed(name: str, donor_name: str) -> str:
    words = re.sub(r"\W+", "_", donor_name).strip("_") or "donor"
    if name.isupper():
        return f"{words.upper()}_{name}"
    return f"{name}_of_{words}" if name.islower() else f"{name}{words.title().replace('_', '')}"


def _renamed(node: Statement, names: Mapping[str, str]) -> Statement:
    if not names:
        return node
    changed = node.visit(_Rename(names))
    if not isinstance(changed, cst.SimpleStatementLine | cst.BaseCompoundStatement):
        raise TypeError(f"renaming made {type(changed).__name__} of a statement")
    return changed


class _Rename(cst.CSTTransformer):
    """Renames names of the module; attributes and keywords of calls keep theirs."""

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__()
        self._names = names

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:  # noqa: N802
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:  # noqa: N802
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:  # noqa: N802
        return updated_node.with_changes(value=self._names.get(original_node.value, original_node.value))


def _methods(node: cst.ClassDef) -> dict[str, cst.FunctionDef]:
    return {item.name.value: item for item in node.body.body if isinstance(item, cst.FunctionDef)}


def _own_attributes(code: str) -> set[str]:
    return set(re.findall(r"\bself\.(\w+)", code)) - set(LEARNING)


def _with_methods(ours: cst.ClassDef, theirs: cst.ClassDef, methods: Mapping[str, cst.FunctionDef]) -> cst.ClassDef:
    body = list(ours.body.body)
    place = next(
        (
            number + 1
            for number, item in enumerate(body)
            if isinstance(item, cst.FunctionDef) and item.name.value == "__init__"
        ),
        len(body),
    )
    blank = [cst.EmptyLine(indent=False)]
    added = [methods[name].with_changes(leading_lines=blank) for name in LEARNING]
    body[place:place] = added
    first = theirs.body.body[0]
    if ours.get_docstring() is not None and theirs.get_docstring() is not None:
        body[0] = first
    return ours.with_changes(body=ours.body.with_changes(body=body))
