"""The harness contract: a class that takes a model, solves tasks, and may learn.

Used by the worker in a sandbox, and by harnesses that run by themselves. Standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any, Dict, List, Optional, Type

from .api import Example, Shell, Task
from .client import Channel, HostAsyncModel, HostModel

MAX_STATE_BYTES = 16 * 1024 * 1024
MAX_ANSWER_BYTES = 1024 * 1024
METHODS = ("learn", "save", "load", "solve")

_ARGUMENTS = {"learn": ("examples",), "save": (), "load": ("state",), "solve": ("task", "shell")}


class ContractError(Exception):
    """A harness breaks the contract; the message says how."""


def load_class(entry: str) -> Type[Any]:
    """Import the class that `entry` (`module:Class`) names, and check what can be checked without running it.

    Raises:
        ContractError: There is no such class, or its methods do not fit the contract.
        BaseException: Whatever the import raises.
    """
    module_name, _, class_name = entry.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.split(".")[0]:
            raise
        raise ContractError(f"entry {entry!r}: there is no module {module_name!r}") from error
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        raise ContractError(f"entry {entry!r}: {module_name} has no class {class_name!r}")
    methods = methods_of(found)
    if "solve" not in methods:
        raise ContractError(f"{class_name} has no method solve(self, task, shell)")
    missing = [name for name in ("save", "load") if name not in methods]
    if "learn" in methods and missing:
        raise ContractError(f"{class_name} has learn, so it needs {' and '.join(missing)} too")
    for name in methods:
        _check_arguments(found, name)
    return found


def methods_of(harness_class: Type[Any]) -> List[str]:
    """Return which methods of the contract a class has."""
    return [name for name in METHODS if callable(getattr(harness_class, name, None))]


class LoadedHarness:
    """A harness with its model; every call checks what the harness gave, and waits for what it made async.

    Args:
        harness_class: As `load_class` returns it.
        channel: Where the model and the shell are. An `async def solve` gets the async model.

    Raises:
        BaseException: Whatever the constructor raises.
    """

    def __init__(self, harness_class: Type[Any], channel: Channel) -> None:
        self.methods = methods_of(harness_class)
        self.asynchronous = inspect.iscoroutinefunction(harness_class.solve)
        self._loop: Any = None
        if self.asynchronous:
            self._event_loop()  # before the constructor, which may make locks that belong to the loop
        self._harness = harness_class(HostAsyncModel(channel) if self.asynchronous else HostModel(channel))

    def learn(self, examples: List[Example]) -> None:
        """Call `learn`."""
        self._finish(self._harness.learn(examples))

    def save(self) -> bytes:
        """Call `save`.

        Raises:
            ContractError: It gave no bytes, or too many.
        """
        state = self._finish(self._harness.save())
        if not isinstance(state, bytes):
            raise ContractError(f"save must return bytes, not {_kind(state)}")
        if len(state) > MAX_STATE_BYTES:
            raise ContractError(f"save returned {len(state)} bytes, at most {MAX_STATE_BYTES} are allowed")
        return state

    def load(self, state: bytes) -> None:
        """Call `load`.

        Raises:
            ContractError: The harness has no `load`.
        """
        if "load" not in self.methods:
            raise ContractError("there is a state to load, and the harness has no load")
        self._finish(self._harness.load(state))

    def solve(self, task: Task, shell: Optional[Shell]) -> str:
        """Call `solve`.

        Raises:
            ContractError: It gave no text, or too much.
        """
        answer = self._finish(self._harness.solve(task, shell))
        if not isinstance(answer, str):
            raise ContractError(f"solve must return a text (str), not {_kind(answer)}")
        size = len(answer.encode("utf-8", "replace"))
        if size > MAX_ANSWER_BYTES:
            raise ContractError(f"the answer has {size} bytes, at most {MAX_ANSWER_BYTES} are allowed")
        return str(answer)

    def close(self) -> None:
        """Give the event loop back, where there is one."""
        if self._loop is not None:
            self._loop.close()

    def _finish(self, value: Any) -> Any:
        return self._event_loop().run_until_complete(_await(value)) if inspect.isawaitable(value) else value

    def _event_loop(self) -> Any:
        """Return the one event loop of the harness, so that what belongs to a loop outlives a call."""
        if self._loop is None:
            import asyncio  # not at the top: most harnesses are not async, and start the quicker for it

            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        return self._loop


def task_of(data: Dict[str, Any]) -> Task:
    """Return the task of a JSON object."""
    return Task(**data)


def example_of(data: Dict[str, Any]) -> Example:
    """Return the example of a JSON object."""
    return Example(**data)


async def _await(value: Any) -> Any:
    return await value


def _check_arguments(harness_class: Type[Any], name: str) -> None:
    names = _ARGUMENTS[name]
    try:
        inspect.signature(getattr(harness_class, name)).bind(None, *names)
    except TypeError as error:
        wanted = ", ".join(("self", *names))
        raise ContractError(f"{harness_class.__name__}.{name} must take ({wanted}): {error}") from error


def _kind(value: Any) -> str:
    return "None" if value is None else type(value).__name__
