from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator

import pytest

from metaharness.runtime import Example, Task
from metaharness.runtime.client import HostAsyncModel, HostModel, Message, OnReply
from metaharness.runtime.contract import ContractError, LoadedHarness, load_class

TASK = Task("id", "", "input")


class Nowhere:
    """A channel of which no test here asks anything."""

    def submit(self, kind: str, body: Message, on_reply: OnReply) -> None:
        raise AssertionError(kind)


@pytest.fixture
def module() -> Iterator[types.ModuleType]:
    made = types.ModuleType("tested_harness")
    sys.modules["tested_harness"] = made
    yield made
    del sys.modules["tested_harness"]


def load(module: types.ModuleType, source: str) -> type:
    exec(source, module.__dict__)
    return load_class("tested_harness:Harness")


Loaded = Callable[[str], LoadedHarness]


@pytest.fixture
def loaded(module: types.ModuleType) -> Iterator[Loaded]:
    made: list[LoadedHarness] = []

    def make(body: str) -> LoadedHarness:
        source = f"class Harness:\n  def __init__(self, model): self.model = model\n{body}"
        made.append(LoadedHarness(load(module, source), Nowhere()))
        return made[-1]

    yield make
    for harness in made:
        harness.close()


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("x = 1", "tested_harness has no class 'Harness'"),
        ("def Harness(model): ...", "tested_harness has no class 'Harness'"),
        ("class Harness: ...", r"Harness has no method solve\(self, task, shell\)"),
        ("class Harness:\n  def solve(self, task): ...", r"Harness.solve must take \(self, task, shell\)"),
        ("class Harness:\n  def solve(self, task, shell, more): ...", r"Harness.solve must take \(self, task, shell\)"),
        (
            "class Harness:\n  def solve(self, task, shell): ...\n  def learn(self, examples): ...",
            "Harness has learn, so it needs save and load too",
        ),
        (
            "class Harness:\n  def solve(self, *all): ...\n  def learn(self): ...\n  save = load = solve",
            r"Harness.learn must take \(self, examples\)",
        ),
    ],
)
def test_a_class_that_breaks_the_contract_is_refused(module: types.ModuleType, source: str, says: str) -> None:
    with pytest.raises(ContractError, match=says):
        load(module, source)


def test_a_missing_module_is_told_from_a_missing_import_of_it() -> None:
    with pytest.raises(ContractError, match="there is no module 'no_such_module'"):
        load_class("no_such_module:Harness")
    with pytest.raises(ModuleNotFoundError):
        load_class("tests.runtime.no_such:Harness")


def test_the_model_fits_solve(loaded: Loaded) -> None:
    plain = loaded("  def solve(self, task, shell): return type(self.model).__name__")
    assert plain.solve(TASK, None) == HostModel.__name__
    assert not plain.asynchronous
    asynchronous = loaded("  async def solve(self, task, shell): return type(self.model).__name__")
    assert asynchronous.solve(TASK, None) == HostAsyncModel.__name__
    assert asynchronous.asynchronous


def test_async_methods_share_one_event_loop(loaded: Loaded) -> None:
    harness = loaded(
        "  async def learn(self, examples):\n    import asyncio\n    self.loop = asyncio.get_running_loop()\n"
        "  async def save(self): return b'x'\n"
        "  def load(self, state): self.state = state\n"
        "  async def solve(self, task, shell):\n    import asyncio\n"
        "    return f'{self.loop is asyncio.get_running_loop()} {self.state}'\n",
    )
    harness.learn([Example("", "i", "a")])
    harness.load(harness.save())
    assert harness.solve(TASK, None) == "True b'x'"


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ("7", r"solve must return a text \(str\), not int"),
        ("None", r"solve must return a text \(str\), not None"),
        ("b'x'", r"solve must return a text \(str\), not bytes"),
        ("'x' * (1024 * 1024 + 1)", "the answer has 1048577 bytes, at most 1048576"),
        ("'é' * (512 * 1024 + 1)", "the answer has 1048578 bytes, at most 1048576"),
    ],
)
def test_an_answer_that_breaks_the_contract_is_refused(loaded: Loaded, returned: str, says: str) -> None:
    with pytest.raises(ContractError, match=says):
        loaded(f"  def solve(self, task, shell): return {returned}").solve(TASK, None)


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ("'x'", "save must return bytes, not str"),
        ("b'x' * (16 * 1024 * 1024 + 1)", "save returned 16777217 bytes, at most 16777216"),
    ],
)
def test_a_state_that_breaks_the_contract_is_refused(loaded: Loaded, returned: str, says: str) -> None:
    methods = f"  def save(self): return {returned}\n  def learn(self, e): ...\n  def load(self, s): ...\n"
    with pytest.raises(ContractError, match=says):
        loaded(f"{methods}  def solve(self, task, shell): ...").save()


def test_a_state_needs_a_load(loaded: Loaded) -> None:
    with pytest.raises(ContractError, match="the harness has no load"):
        loaded("  def solve(self, task, shell): ...").load(b"")
