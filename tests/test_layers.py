"""A file imports only from lower layers: the order of the table is the order of the data."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "metaharness"

LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"errors", "runtime", "_bundled"}),
    frozenset({"budget", "source", "task", "trajectory", "score", "registry", "validation", "exchange", "job", "unit"})
    | {"bundled", "locking", "patterns"},
    frozenset({"spec", "candidate", "protocols"}),
    frozenset({"models", "sandboxes", "strategies", "archive", "ledger"}),
    frozenset({"environments", "history", "report", "harnesses"}),
    frozenset({"rollout", "proposers", "frozen"}),
    frozenset({"evaluator", "gate", "reserve"}),
    frozenset({"assembly"}),
    frozenset({"campaign", "export"}),
    frozenset({"inspector"}),
    frozenset({"api", "cli", "testing", "__init__", "__main__"}),
)
# Within one layer a few modules build on each other; each such pair is listed, so that a new one is a decision.
WITHIN = {
    ("source", "validation"),
    ("trajectory", "validation"),
    ("exchange", "budget"),
    ("unit", "budget"),
    ("unit", "score"),
    ("unit", "task"),
    ("unit", "trajectory"),
    ("protocols", "candidate"),
    ("models", "ledger"),
    ("api", "cli"),
    ("cli", "api"),
    ("__main__", "cli"),
    ("__init__", "api"),
}


def module_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def layer_of(module: str) -> int:
    for number, names in enumerate(LAYERS):
        if module in names:
            return number
    raise AssertionError(f"metaharness/{module} is in no layer: add it to LAYERS")


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "metaharness" and len(parts) > 1:
                found.add(parts[1] if parts[1] != "__version__" else "__init__")
    return found


SOURCES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_downwards(path: Path) -> None:
    own = module_of(path)
    for other in imports_of(path) - {own, "__init__"}:
        if (own, other) in WITHIN:
            continue
        assert layer_of(other) < layer_of(own), (
            f"{own} (layer {layer_of(own)}) imports {other} (layer {layer_of(other)})"
        )


def test_the_runtime_imports_the_standard_library_only() -> None:
    import sys

    for path in sorted((PACKAGE / "runtime").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(), feature_version=(3, 9))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            for name in names:
                assert name.split(".")[0] in sys.stdlib_module_names, f"{path.name} imports {name}"
