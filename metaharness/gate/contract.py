"""The harness contract, as far as it can be seen without running anything."""

from __future__ import annotations

import ast
import sys

from metaharness.candidate import Finding
from metaharness.errors import HarnessError, unknown_name
from metaharness.gate.classes import Function, Methods, Program
from metaharness.gate.parse import ParsedTree, parse_tree
from metaharness.patterns import matches
from metaharness.source import HARNESS_FILE, SourceTree

# Method to the arguments that it is called with.
_CALLS = {
    "__init__": ("model",),
    "solve": ("task", "shell"),
    "learn": ("examples",),
    "save": (),
    "load": ("state",),
}
_REQUIRED = ("__init__", "solve")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def check_harness(tree: SourceTree) -> list[Finding]:
    """Return what is wrong with a harness, without running it: harness.toml, syntax, entry point and signatures.

    Args:
        tree: Its files.
    """
    try:
        editable = tree.config.editable
    except HarnessError as error:
        return [Finding(check="contract", path=HARNESS_FILE, message=str(error).removeprefix(f"{HARNESS_FILE}: "))]
    parsed = parse_tree(tree)
    findings = [*parsed.findings, *check_contract(tree, parsed)]
    if not any(matches(path, editable) for path in tree if path != HARNESS_FILE):
        findings.append(
            Finding(
                check="contract",
                path=HARNESS_FILE,
                message=f"editable ({', '.join(editable)}) matches no file: a proposer can only add some",
                fatal=False,
            )
        )
    return findings


def check_contract(tree: SourceTree, parsed: ParsedTree) -> list[Finding]:
    """Return findings on the entry point or command of a tree with a valid harness.toml.

    Args:
        tree: The files.
        parsed: Their syntax trees.
    """
    findings = [
        Finding(check="contract", path=path, message="hides the package `metaharness`; rename it")
        for path in tree
        if path == "metaharness.py" or path.startswith("metaharness/")
    ]
    config = tree.config
    unread = frozenset(finding.path for finding in parsed.findings)
    program = Program(parsed.modules, unread)
    if config.entry is not None:
        findings.extend(_check_entry(program, config.entry, unread))
    if config.command is not None:
        findings.extend(_check_command(tree, program, config.command, config.requirements))
    return findings


def _check_entry(program: Program, entry: str, unread: frozenset[str]) -> list[Finding]:
    module, _, name = entry.partition(":")
    path = program.module_path(module)
    if path is None:
        stem = module.replace(".", "/")
        return [_wrong(HARNESS_FILE, None, f"entry {entry!r}: neither {stem}.py nor {stem}/__init__.py is there")]
    if path in unread:
        return []  # its syntax error is the finding
    found = program.find(path, name)
    if found.kind == "unknown":
        return []  # only running it tells: the smoke rollout does
    if found.kind == "absent":
        return [_wrong(path, None, f"entry {entry!r}: {unknown_name('class', name, program.names(path))}")]
    if not isinstance(found.node, ast.ClassDef):
        line = getattr(found.node, "lineno", None)
        return [_wrong(found.path or path, line, f"entry {entry!r}: {name} is not a class")]
    methods = program.methods(found.path, found.node)
    return [*_missing(methods, found.path, found.node), *_signatures(methods)]


def _missing(methods: Methods, path: str, node: ast.ClassDef) -> list[Finding]:
    if not methods.complete:
        return []
    findings = [
        _wrong(path, node.lineno, f"class {node.name} has no {_spelled(name)}")
        for name in _REQUIRED
        if name not in methods.functions
    ]
    if "learn" in methods.functions:
        findings.extend(
            _wrong(path, node.lineno, f"class {node.name} has learn, and so needs {_spelled(name)}")
            for name in ("save", "load")
            if name not in methods.functions
        )
    return findings


def _signatures(methods: Methods) -> list[Finding]:
    findings = []
    for name, called_with in _CALLS.items():
        place = methods.functions.get(name)
        if place is None:
            continue
        path, function = place
        if problem := _signature_problem(function, called_with):
            findings.append(_wrong(path, function.lineno, f"{name} {problem}; it must be {_spelled(name)}"))
    return findings


def _signature_problem(function: Function, called_with: tuple[str, ...]) -> str | None:
    decorators = {decorator.id if isinstance(decorator, ast.Name) else "" for decorator in function.decorator_list}
    if decorators - {"staticmethod", "classmethod"}:
        return "is a property" if "property" in decorators else None
    arguments = function.args
    positional = len(arguments.posonlyargs) + len(arguments.args)
    given = len(called_with) + (0 if "staticmethod" in decorators else 1)
    required = positional - len(arguments.defaults)
    if given > positional and arguments.vararg is None:
        return f"takes {positional} arguments, but is called with {given} (self included)"
    if given < required:
        return f"needs {required} arguments, but is called with {given} (self included)"
    if any(default is None for default in arguments.kw_defaults):
        return "needs a keyword argument that nobody gives"
    if function.name == "__init__" and isinstance(function, ast.AsyncFunctionDef):
        return "is async"
    if _yields(function):
        return "is a generator"
    return None


def _yields(function: Function) -> bool:
    stack: list[ast.AST] = list(function.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, _SCOPES):
            stack.extend(ast.iter_child_nodes(node))
    return False


def _check_command(
    tree: SourceTree, program: Program, command: tuple[str, ...], requirements: tuple[str, ...]
) -> list[Finding]:
    program_name, *arguments = command
    if "/" in program_name:
        named = program_name.removeprefix("./")
        if not program_name.startswith("/") and named not in tree:
            return [_wrong(HARNESS_FILE, None, f"command: no file {named!r} in the harness")]
        return []
    if not program_name.rpartition("/")[2].startswith("python") or not arguments:
        return []
    if arguments[0] == "-m" and len(arguments) > 1:
        module = arguments[1]
        top = module.partition(".")[0]
        is_ours = any(path == f"{top}.py" or path.startswith(f"{top}/") for path in tree)
        runs = any(program.module_path(name) for name in (module, f"{module}.__main__"))
        if (is_ours and not runs) or (not is_ours and not requirements and top not in sys.stdlib_module_names):
            return [_wrong(HARNESS_FILE, None, f"command: no module {module!r} in the harness")]
        return []
    script = arguments[0].removeprefix("./")
    if script.endswith(".py") and not script.startswith("/") and script not in tree:
        return [_wrong(HARNESS_FILE, None, f"command: no file {script!r} in the harness")]
    return []


def _spelled(name: str) -> str:
    return f"{name}({', '.join(('self', *_CALLS[name]))})"


def _wrong(path: str, line: int | None, message: str) -> Finding:
    return Finding(check="contract", path=path, line=line, message=message)
