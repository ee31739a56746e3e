"""The process of a `custom` scorer: reads requests on standard input, writes scores on standard output, a line each.

Started as `python -m metaharness.environments.scorers.custom_worker FILE FUNCTION TIMEOUT_S`.
"""

from __future__ import annotations

import faulthandler
import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from metaharness.environments.scorers.custom import finite_number
from metaharness.score import Score
from metaharness.task import Split, Task

Function = Callable[[Task, str], Any]


def load(path: Path, name: str) -> Function:
    """Return a function of an environment's file; the file may import its neighbours relatively."""
    module_name = f"metaharness_environment_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(module_name, path, submodule_search_locations=[str(path.parent)])
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    function: Function = getattr(module, name)
    return function


def as_reply(result: Any) -> dict[str, Any]:
    """Return what a scoring function returned as the reply's JSON object.

    Raises:
        TypeError: It is neither a number, a mapping with `reward`, nor a `Score`.
        ValueError: The reward is not finite.
    """
    if isinstance(result, Score):
        result = result.to_json()
    if not isinstance(result, Mapping):
        return {"reward": finite_number(result), "components": {}, "feedback": ""}
    unknown = result.keys() - {"reward", "components", "feedback"}
    if unknown or "reward" not in result:
        raise TypeError(f"a score has `reward`, `components` and `feedback`, not {', '.join(map(str, result))}")
    components = {str(key): finite_number(value) for key, value in dict(result.get("components") or {}).items()}
    return {
        "reward": finite_number(result["reward"]),
        "components": components,
        "feedback": str(result.get("feedback") or ""),
    }


def serve(function: Function, requests: IO[bytes], replies: IO[bytes], timeout_s: float) -> None:
    """Answer requests until there are no more."""
    for line in requests:
        request = json.loads(line)
        data = request["task"]
        choices = data.pop("choices")
        task = Task(**{**data, "split": Split(data["split"])}, choices=tuple(choices) if choices is not None else None)
        _limit(timeout_s)
        try:
            reply = as_reply(function(task, request["answer"]))
        except (Exception, SystemExit) as error:
            reply = {"error": describe(error)}
        faulthandler.cancel_dump_traceback_later()
        send(replies, reply)


def describe(error: BaseException) -> str:
    """Return an exception as one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:1000]


def send(replies: IO[bytes], reply: Mapping[str, Any]) -> None:
    """Write one line of JSON."""
    replies.write(json.dumps(reply).encode() + b"\n")
    replies.flush()


def _limit(timeout_s: float) -> None:
    # A watchdog thread in C: it ends the process even while a pattern match holds the interpreter's lock.
    faulthandler.dump_traceback_later(timeout_s, exit=True)


def main() -> None:
    """Load the function, say so, and serve."""
    path, name, timeout = sys.argv[1:4]
    # Prints of the function go to standard error: standard output carries replies alone.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = os.fdopen(os.dup(0), "rb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    _limit(float(timeout))
    try:
        function = load(Path(path), name)
    except (Exception, SystemExit) as error:
        send(replies, {"error": describe(error)})
        return
    faulthandler.cancel_dump_traceback_later()
    send(replies, {"ready": True})
    serve(function, requests, replies, float(timeout))


if __name__ == "__main__":
    main()
