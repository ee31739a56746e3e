from __future__ import annotations

from pathlib import Path

import pytest

from metaharness.bundled import bundled_dir
from metaharness.gate import check_harness
from metaharness.source import SourceTree
from tests.gate.support import HARNESS, TOML, tree


def findings(checked: SourceTree) -> list[str]:
    return [str(finding) for finding in check_harness(checked)]


def test_a_good_harness() -> None:
    assert findings(tree()) == []


BUNDLED = sorted(path.parent for path in bundled_dir("seed_harnesses").glob("*/harness.toml"))


@pytest.mark.parametrize("directory", BUNDLED, ids=lambda path: path.name)
def test_bundled_harnesses_keep_the_contract(directory: Path) -> None:
    assert findings(SourceTree.from_directory(directory)) == []


CLASS = "class Harness:\n    def __init__(self, model): ...\n    def solve(self, task, shell): ...\n"
BASE = CLASS.replace("Harness", "Base")

INIT = "    def __init__(self, model): ...\n"
SOLVE = "    def solve(self, task, shell): ...\n"
SAVED = "    def save(self): ...\n    def load(self, state): ...\n"
STARRED = "from lib.inner import *\n"
TRIED = "try:\n    from fast import Harness\nexcept ImportError:\n    from slow import Harness\n"
INNER_YIELD = "task, shell):\n        def g(): yield 1\n        return next(g())"
GENERIC = "from typing import Generic\n" + CLASS.replace("Harness:", "Harness(Generic[T]):")

GOOD: dict[str, tuple[str, dict[str, str]]] = {
    "async": (CLASS.replace("    def solve", "    async def solve"), {}),
    "defaults": (
        "class Harness:\n def __init__(self, model, n=3, *, k=1): ...\n def solve(self, t, s=None): ...\n",
        {},
    ),
    "varargs": ("class Harness:\n def __init__(self, *args): ...\n def solve(self, *args, **options): ...\n", {}),
    "static": (f"class Harness:\n{INIT}    @staticmethod\n    def solve(task, shell): ...\n", {}),
    "learns": (f"{CLASS}    def learn(self, examples): ...\n{SAVED}", {}),
    "inherits": (f"{BASE}class Harness(Base): ...\n", {}),
    "inherits_over_files": ("from lib.base import Base\nclass Harness(Base): ...\n", {"lib/base.py": BASE}),
    "inherits_by_module": ("import base\nclass Harness(base.Base): ...\n", {"base.py": BASE}),
    "inherits_by_submodule": ("from lib import base\nclass Harness(base.Base): ...\n", {"lib/base.py": BASE}),
    "generic": (GENERIC, {}),
    "imported": ("from lib.inner import Harness\n", {"lib/inner.py": CLASS}),
    "renamed": ("from lib.inner import Base as Harness\n", {"lib/inner.py": BASE}),
    "relative": (
        "from lib import Harness\n",
        {"lib/__init__.py": "from .inner import Harness\n", "lib/inner.py": CLASS},
    ),
    "starred": (STARRED, {"lib/inner.py": CLASS}),
    "alias": (f"{BASE}Harness = Base\n", {}),
    "tried": (TRIED, {"slow.py": CLASS}),
    "guarded": ("if True:\n" + "".join(f"    {line}\n" for line in CLASS.splitlines()), {}),
    "external_base": ("from elsewhere import Agent\nclass Harness(Agent): ...\n", {}),
    "external": ("from elsewhere import Harness\n", {}),
    "external_star": ("from elsewhere import *\n", {}),
    "made": ("Harness = make()\n", {}),
    "dataclass": (f"@dataclass\nclass Harness:\n    model: object\n{SOLVE}", {}),
    "metaclass": ("class Harness(metaclass=Maker): ...\n", {}),
    "assigned_method": (f"class Harness:\n{INIT}    solve = run\n", {}),
    "inner_yield": (CLASS.replace("task, shell): ...", INNER_YIELD), {}),
    "cyclic_import": ("from lib import Harness\n", {"lib.py": "from harness import Harness\n"}),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_keeps_the_contract_or_cannot_be_judged(name: str) -> None:
    source, others = GOOD[name]
    assert findings(tree(source, files=others)) == []


STATIC = "    @staticmethod\n    def solve"
PROPERTY = "    @property\n    def solve"
LEARN = "    def learn(self, examples): ...\n"

BAD = {
    "no_class": (
        "class Harnes:\n    ...\n",
        "harness.py: entry 'harness:Harness': unknown class 'Harness'; did you mean 'Harnes'? (known: Harnes)",
    ),
    "nothing": ("", "harness.py: entry 'harness:Harness': unknown class 'Harness' (known: none)"),
    "function": ("x = 1\ndef Harness(model): ...\n", "harness.py:2: entry 'harness:Harness': Harness is not a class"),
    "constant": ("Harness = 1\n", "harness.py: entry 'harness:Harness': Harness is not a class"),
    "no_solve": (f"class Harness:\n{INIT}", "harness.py:1: class Harness has no solve(self, task, shell)"),
    "no_init": (f"class Harness:\n{SOLVE}", "harness.py:1: class Harness has no __init__(self, model)"),
    "solve_short": (
        CLASS.replace(", shell", ""),
        "harness.py:3: solve takes 2 arguments, but is called with 3 (self included); it must be solve(self, t",
    ),
    "solve_long": (
        CLASS.replace("shell", "shell, more"),
        "harness.py:3: solve needs 4 arguments, but is called with 3",
    ),
    "solve_keyword": (CLASS.replace("shell", "shell, *, more"), "harness.py:3: solve needs a keyword argument"),
    "solve_property": (CLASS.replace("    def solve", PROPERTY), "harness.py:4: solve is a property"),
    "solve_generator": (CLASS.replace("shell): ...", "shell):\n        yield 1"), "harness.py:3: solve is a generator"),
    "init_short": (CLASS.replace(", model", ""), "harness.py:2: __init__ takes 1 arguments, but is called with 2"),
    "init_async": (CLASS.replace("def __init__", "async def __init__"), "harness.py:2: __init__ is async"),
    "static_with_self": (
        CLASS.replace("    def solve", STATIC),
        "harness.py:4: solve needs 3 arguments, but is called",
    ),
    "learn_alone": (f"{CLASS}{LEARN}", "harness.py:1: class Harness has learn, and so needs save(self)"),
    "load_short": (
        f"{CLASS}{LEARN}{SAVED.replace(', state', '')}",
        "harness.py:6: load takes 1 arguments, but is called",
    ),
    "learn_short": (f"{CLASS}{LEARN.replace(', examples', '')}{SAVED}", "harness.py:4: learn takes 1 arguments"),
    "syntax": ("def f(:\n", "parse: harness.py:1: syntax error"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_breaks_the_contract(name: str) -> None:
    source, message = BAD[name]
    found = findings(tree(source))
    assert found
    assert message in found[0]
    assert all(finding.fatal for finding in check_harness(tree(source)))


def test_the_place_of_an_inherited_fault_is_named() -> None:
    source = "from lib.base import Base\nclass Harness(Base): ...\n"
    (found,) = findings(tree(source, files={"lib/base.py": BASE.replace(", shell", "")}))
    assert found.startswith("contract: lib/base.py:3: solve takes 2 arguments")


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ('schema_version = 1\nname = "x"\n', "contract: harness.toml: give exactly one of entry and command"),
        ("[", "contract: harness.toml: not valid TOML"),
        (
            TOML.replace("harness:", "agent.main:"),
            "entry 'agent.main:Harness': neither agent/main.py nor agent/main/__init__.py",
        ),
    ],
)
def test_harness_toml(toml: str, message: str) -> None:
    (found,) = findings(tree(toml=toml))
    assert message in found


def test_no_harness_toml() -> None:
    (found,) = findings(SourceTree({"harness.py": HARNESS.encode()}))
    assert "no harness.toml" in found


def test_a_package_hides_a_module_of_the_same_name() -> None:
    (found,) = findings(tree(files={"harness/__init__.py": ""}))
    assert found.startswith("contract: harness/__init__.py: entry 'harness:Harness': unknown class")


@pytest.mark.parametrize("path", ["metaharness.py", "metaharness/runtime/__init__.py"])
def test_the_runtime_must_not_be_hidden(path: str) -> None:
    (found,) = findings(tree(files={path: ""}))
    assert "hides the package `metaharness`" in found


def test_editable_that_matches_nothing_is_a_note() -> None:
    (finding,) = check_harness(tree(toml=TOML + 'editable = ["src/**"]\n'))
    assert not finding.fatal
    assert "editable (src/**) matches no file" in finding.message


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (["./run.sh"], ""),
        (["bin/absent"], "no file 'bin/absent' in the harness"),
        (["/usr/bin/env", "x"], ""),
        (["agent"], ""),
        (["python", "harness.py"], ""),
        (["python3", "absent.py", "--fast"], "no file 'absent.py' in the harness"),
        (["python", "-m", "harness"], ""),
        (["python", "-m", "pkg"], ""),
        (["python", "-m", "pkg.absent"], "no module 'pkg.absent' in the harness"),
        (["python", "-m", "absent"], "no module 'absent' in the harness"),
        (["python", "-m", "json.tool"], ""),
        (["python", "-c", "print(1)"], ""),
    ],
)
def test_commands(command: list[str], problem: str) -> None:
    toml = f'schema_version = 1\nname = "x"\ncommand = {command}\n'
    found = findings(tree("", toml, files={"run.sh": "", "pkg/__main__.py": ""}))
    assert [line for line in found if problem not in line] == []
    assert bool(found) == bool(problem)


def test_a_command_may_come_with_a_requirement() -> None:
    toml = 'schema_version = 1\nname = "x"\ncommand = ["python", "-m", "agent"]\nrequirements = ["agent"]\n'
    assert findings(tree("", toml)) == []
