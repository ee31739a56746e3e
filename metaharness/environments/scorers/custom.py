"""`custom`: a function of the environment's own, run in one long-lived process beside the campaign.

It is trusted code, but it works on answers that are not: a hang, a crash or an endless pattern match in it must not
take the campaign along. So it has its own process, which is ended when its time is up and started again for the next
answer.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import Field, model_validator

from metaharness.environments.scorers.base import ScorerOptions
from metaharness.errors import EnvironmentFormatError, ScoringFailed, unknown_name
from metaharness.score import Score
from metaharness.task import Task

_GRACE_S = 5.0
"""The process ends itself at its time limit; this much later it is killed."""

_MAX_REPLY_BYTES = 4 * 1024 * 1024


class CustomOptions(ScorerOptions):
    """`custom`: `score(task, answer)` of env.py returns a number, or `{"reward", "components", "feedback"}`.

    Attributes:
        function: `env.py:score`, a file of the environment and a function in it.
        reward_range: What the function may return; rescaled to [0, 1]. Anything outside is a failure of the scorer.
        needs_label: Whether every task must have an answer.
        timeout_s: Seconds for one answer, loading of the file included.
    """

    kind: Literal["custom"] = "custom"
    function: str = Field(pattern=r"^[A-Za-z_]\w*\.py:[A-Za-z_]\w*$")
    reward_range: tuple[float, float] = (0.0, 1.0)
    needs_label: bool = True
    timeout_s: float = Field(default=60.0, gt=0, le=3600)

    @model_validator(mode="after")
    def _range(self) -> CustomOptions:
        if self.reward_range[0] >= self.reward_range[1]:
            raise ValueError("reward_range must be [low, high] with low < high")
        return self

    def build(self, directory: Path) -> CustomScorer:
        """Return the scorer; the file is read, and the process started, before any task."""
        return CustomScorer(self, directory)


class CustomScorer:
    """Runs the function of a `custom` scorer.

    Args:
        options: The `[scorer]` table.
        directory: The environment's directory.

    Raises:
        EnvironmentFormatError: The file or function is absent, or does not load.
    """

    blocking = True
    label_is_answer = True
    reads_metadata = True

    def __init__(self, options: CustomOptions, directory: Path) -> None:
        self._options = options
        self._directory = directory
        file, _, function = options.function.partition(":")
        _require_function(directory / file, function)
        self._code = code_digest(directory)
        self._worker = _Worker([str(directory / file), function, str(options.timeout_s)], options.timeout_s)
        try:
            self._worker.start()
        except ScoringFailed as error:
            raise EnvironmentFormatError(f"{directory / file}: cannot be loaded: {error}") from error

    @property
    def needs_label(self) -> bool:
        """As declared."""
        return self._options.needs_label

    @property
    def identity(self) -> str:
        """Options and the digest of all Python files of the environment."""
        return f"{self._options.model_dump_json(exclude={'timeout_s'})}:{self._code}"

    def label_problem(self, task: Task) -> str | None:  # noqa: ARG002 - only the function knows
        """Labels are the function's own affair."""
        return None

    def score(self, task: Task, answer: str) -> Score:
        """Judge an answer; blocks for up to `timeout_s`."""
        request = {
            "id": task.id,
            "environment": task.environment,
            "split": task.split.value,
            "input": task.input,
            "answer": task.answer,
            "instruction": task.instruction,
            "choices": task.choices,
            "metadata": dict(task.metadata),
        }
        reply = self._worker.ask({"task": request, "answer": answer})
        if "error" in reply:
            raise ScoringFailed(f"{self._options.function}: {reply['error']}")
        return self._rescaled(reply)

    def _rescaled(self, reply: Mapping[str, Any]) -> Score:
        low, high = self._options.reward_range
        reward = reply["reward"]
        # `not (low <= …)` also refuses NaN.
        if not low <= reward <= high:
            raise ScoringFailed(f"{self._options.function}: reward {reward} is not in its reward_range [{low}, {high}]")
        return Score(
            reward=min(1.0, max(0.0, (reward - low) / (high - low))),
            components={str(name): float(value) for name, value in reply["components"].items()},
            feedback=str(reply["feedback"]),
        )


class _Worker:
    """One process that scores; restarted after a failure. Safe to use from several threads."""

    def __init__(self, arguments: list[str], timeout_s: float) -> None:
        self._arguments = arguments
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._stop: weakref.finalize[..., Any] | None = None

    def start(self) -> None:
        """Start the process and wait until it has loaded the function."""
        with self._lock:
            self._started()

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return its reply.

        Raises:
            ScoringFailed: The process ended, timed out, or answered nonsense.
        """
        with self._lock:
            process = self._started()
            assert process.stdin is not None
            try:
                process.stdin.write(json.dumps(request).encode() + b"\n")
                process.stdin.flush()
            except OSError as error:
                raise self._failed(f"the scorer's process ended ({error.strerror})") from error
            return self._reply(process)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        package_root = Path(__file__).resolve().parents[3]
        path = os.pathsep.join(filter(None, [str(package_root), os.environ.get("PYTHONPATH", "")]))
        log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by _close
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "metaharness.environments.scorers.custom_worker", *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        self._process, self._log = process, log
        self._stop = weakref.finalize(self, _close, process, log)
        ready = self._reply(process)
        if "error" in ready:
            raise self._failed(str(ready["error"]))
        return process

    def _reply(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        deadline = time.monotonic() + self._timeout_s + _GRACE_S
        line = b""
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                raise self._failed(f"no score after {self._timeout_s:g} s")
            piece = os.read(descriptor, 65536)
            if not piece:
                raise self._failed("the scorer's process ended")
            line += piece
            if len(line) > _MAX_REPLY_BYTES:
                raise self._failed(f"a score of over {_MAX_REPLY_BYTES} bytes")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _failed(self, what: str) -> ScoringFailed:
        """End the process, and return the error with the last thing that it said."""
        log = self._log
        said = ""
        if self._process is not None and log is not None:
            self._process.kill()
            self._process.wait()
            log.seek(max(0, log.seek(0, os.SEEK_END) - 4000))
            lines = [line for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
            said = f": {_telling(lines)[:300]}" if lines else ""
        self._end()
        return ScoringFailed(what + said)

    def _end(self) -> None:
        if self._stop is not None:
            self._stop()
        self._process = self._log = self._stop = None


def _telling(lines: list[str]) -> str:
    """Return the line of a log that says most: a time-out's headline, else the last one."""
    return next((line for line in lines if line.startswith("Timeout (")), lines[-1]).strip()


def _close(process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout, log):
        if pipe is not None:
            try:
                pipe.close()
            except BrokenPipeError:
                continue  # what it no longer reads is of no use
    process.wait()


def code_digest(directory: Path) -> str:
    """Return a SHA-256 (hex) over all Python files of an environment."""
    digest = hashlib.sha256()
    for path in sorted(directory.rglob("*.py")):
        if path.is_file():
            data = path.read_bytes()
            digest.update(f"{path.relative_to(directory).as_posix()}:{len(data)}:".encode())
            digest.update(data)
    return digest.hexdigest()


def _require_function(path: Path, function: str) -> None:
    try:
        module = ast.parse(path.read_bytes(), str(path))
    except FileNotFoundError as error:
        raise EnvironmentFormatError(f"{path}: no such file, and scorer.function names it") from error
    except SyntaxError as error:
        raise EnvironmentFormatError(f"{path}:{error.lineno}: {error.msg}") from error
    except (OSError, ValueError) as error:
        raise EnvironmentFormatError(f"{path}: cannot be read: {error}") from error
    names = [node.name for node in module.body if isinstance(node, ast.FunctionDef)]
    imported = [
        alias.asname or alias.name for node in module.body if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    if function not in [*names, *imported]:
        raise EnvironmentFormatError(f"{path}: {unknown_name('function', function, names)}")


def finite_number(value: Any) -> float:
    """Return a reward as a float.

    Raises:
        TypeError: It is no number.
        ValueError: It is not finite.
    """
    if not isinstance(value, int | float):
        raise TypeError(f"a reward must be a number, not {type(value).__name__}")
    if not math.isfinite(value):
        raise ValueError(f"reward {value} is not a finite number")
    return float(value)
