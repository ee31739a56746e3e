from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaharness.proposers.codemods.imports import Binding, add_bindings, bindings, drop_bindings
from metaharness.proposers.codemods.module import StepModule
from tests.proposers.checks import lint

POOL = [
    Binding(module="ast", bound="ast"),
    Binding(module="json", bound="json"),
    Binding(module="os.path", bound="os"),
    Binding(module="math", bound="m"),
    Binding(module="collections", name="Counter", bound="Counter"),
    Binding(module="collections", name="defaultdict", bound="defaultdict"),
    Binding(module="itertools", name="zip_longest", bound="zl"),
    Binding(module="typing", name="Any", bound="Any"),
    Binding(module="metaharness.runtime", name="Example", bound="Example"),
    Binding(module="metaharness.runtime", name="Unsupported", bound="Unsupported"),
]
START = [
    '"""Doc."""\n\nfrom __future__ import annotations\n\nimport re\n\nX = 1\n',
    '"""Doc."""\n\nfrom __future__ import annotations\n\nfrom metaharness.runtime import Task\n\nX = Task\n',
    '"""Doc."""\n\nX = 1\n',
    "from __future__ import annotations\n\n\ndef f() -> int:\n    return 1\n",
    "import re\nimport sys\nfrom collections import deque\n\nfrom metaharness.runtime import Task\n\nX = 1\n",
]


def parse(text: str) -> StepModule:
    module = StepModule.parse(text)
    assert module is not None
    return module


@settings(max_examples=8, deadline=None)
@given(order=st.permutations(POOL))
def test_added_names_stand_where_a_sorter_puts_them(
    order: list[Binding], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder: Path = tmp_path_factory.mktemp("sorted")
    codes = {}
    for number, start in enumerate(START):
        module = parse(start)
        for index, binding in enumerate(order):
            module = add_bindings(module, [binding])
            used = "".join(f"    {item.bound},\n" for item in bindings(module).values() if item.bound != "annotations")
            codes[f"case_{number}_{index}"] = f"{module.code.rstrip()}\n\n\nUSED = [\n{used}]\n"
        assert set(POOL) <= set(bindings(module).values())
    lint(codes, folder)


@pytest.mark.parametrize("start", START)
def test_adding_and_dropping_gives_back_what_was_there(start: str) -> None:
    module = parse(start)
    grown = add_bindings(module, POOL)
    again = drop_bindings(grown, frozenset(item.bound for item in POOL))
    assert bindings(again) == bindings(module)
    assert "".join(again.code.split()) == "".join(start.split())


def test_one_of_several_names_is_dropped() -> None:
    module = parse("import ast, json\nfrom typing import (\n    Any,\n    Literal,\n)\n")
    assert drop_bindings(module, frozenset({"json", "Any"})).code == "import ast\nfrom typing import Literal\n"
