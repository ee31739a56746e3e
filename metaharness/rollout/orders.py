"""Orders to the worker in a sandbox as frames, and what its `done` frames must hold."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from metaharness.errors import ProtocolError
from metaharness.exchange import canonical_json
from metaharness.runtime.contract import MAX_ANSWER_BYTES, METHODS
from metaharness.runtime.worker import STATE_PART_BYTES
from metaharness.task import Example, Task

EXAMPLES_PART_CHARS = 512 * 1024


def solve_seed(task: Task, attempt: int, index: int) -> int:
    """Return the seed of a harness's `random`, in [0, 2**31): equal for every candidate.

    It is made of what the harness may see. `Task.digest` would not do: with it a harness could find out the label, by
    trying which label gives the seed.
    """
    body = [task.environment, task.public("", None), attempt, index]
    return int(hashlib.sha256(canonical_json(body).encode()).hexdigest()[:8], 16) & 0x7FFF_FFFF


def start_frame(mode: str, entry: str, *, seed: int, deadline: float) -> dict[str, Any]:
    """Return a `start` frame.

    Args:
        mode: `check`, `fit`, `learn` or `solve`.
        entry: Entry point of the harness.
        seed: Seeds its `random`.
        deadline: Unix time in seconds at which the sandbox is ended.
    """
    return {"type": "start", "mode": mode, "entry": entry, "seed": seed, "deadline": deadline, "state_bytes": None}


def state_parts(state: bytes) -> Iterator[dict[str, Any]]:
    """Yield the frames that bring a state for `load`."""
    for start in range(0, len(state), STATE_PART_BYTES):
        yield {"type": "state", "data": base64.b64encode(state[start : start + STATE_PART_BYTES]).decode()}


def example_parts(examples: Sequence[Example]) -> Iterator[dict[str, Any]]:
    """Yield the frames that bring examples for `learn`."""
    items: list[dict[str, Any]] = []
    chars = 0
    for example in examples:
        size = len(example.instruction) + len(example.input) + len(example.answer)
        if items and chars + size > EXAMPLES_PART_CHARS:
            yield {"type": "examples", "items": items}
            items, chars = [], 0
        items.append(example.to_json())
        chars += size
    yield {"type": "examples", "items": items}


def answer_of(done: Mapping[str, Any]) -> str:
    """Return the answer of a `done` frame of `solve`.

    Raises:
        ProtocolError: There is none, or it is too large.
    """
    answer = done.get("answer")
    if not isinstance(answer, str) or len(answer.encode()) > MAX_ANSWER_BYTES:
        raise ProtocolError(f"a done frame without an answer of at most {MAX_ANSWER_BYTES} bytes")
    return answer


def state_of(done: Mapping[str, Any], state: bytes) -> bytes | None:
    """Return the state of a `fit`, given its `done` frame and what came before; None for a harness without `learn`.

    Raises:
        ProtocolError: The two do not fit together.
    """
    size_bytes = done.get("state_bytes")
    if size_bytes is None and not state:
        return None
    if size_bytes != len(state):
        raise ProtocolError("a done frame whose state_bytes is not the size of the state")
    return state


def methods_of(done: Mapping[str, Any]) -> tuple[tuple[str, ...], bool]:
    """Return which methods a harness has, and whether it is asynchronous, from the `done` frame of a `check`.

    Raises:
        ProtocolError: It does not say.
    """
    methods = done.get("methods")
    if not isinstance(methods, list) or not all(method in METHODS for method in methods):
        raise ProtocolError("a done frame without methods")
    return tuple(methods), done.get("asynchronous") is True
