"""What a harness sees: tasks, examples, the model and the shell.

This module runs inside the sandbox: standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Protocol, Sequence


class ModelError(Exception):
    """The host could not get a reply from the model. `kind` says why."""

    def __init__(self, message: str, kind: str = "error") -> None:
        super().__init__(message)
        self.kind = kind


class Unsupported(ModelError):
    """The model backend cannot do what was asked (a harness may catch this and take another way)."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "unsupported")


@dataclass(frozen=True)
class Task:
    """One task, as a harness may see it: no label, no split.

    Attributes:
        id: Opaque, fresh and random for every rollout.
        instruction: What is to be done; may be empty.
        input: The text to work on.
        choices: The allowed answers, where the environment declares them.
        deadline: Unix time in seconds at which the rollout is stopped, or None.
    """

    id: str
    instruction: str
    input: str
    choices: Optional[List[str]] = None
    deadline: Optional[float] = None


@dataclass(frozen=True)
class Example:
    """One labelled task, from the part of the train split that `learn` receives."""

    instruction: str
    input: str
    answer: str
    choices: Optional[List[str]] = None


@dataclass(frozen=True)
class ToolCall:
    """A tool call that the model asked for; `arguments` is a JSON object."""

    id: str
    name: str
    arguments: Dict[str, Any]


@dataclass(frozen=True)
class Usage:
    """Tokens of one model call. `input_tokens` includes `cached_tokens`."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True)
class Reply:
    """What the model answered. `stop_reason` is one of end, length, stop, tool_calls, refusal."""

    text: str
    tool_calls: List[ToolCall] = field(default_factory=list)
    stop_reason: str = "end"
    usage: Usage = Usage()


@dataclass(frozen=True)
class ShellResult:
    """Output of a shell command; `exit_code` is 124 when it ran out of time."""

    output: str
    exit_code: int


class Model(Protocol):
    """The model, for a harness with a plain `def solve`: blocking, safe to call from several threads."""

    def complete(
        self,
        messages: "Sequence[Mapping[str, Any]] | str",
        *,
        system: Optional[str] = None,
        max_tokens: int = 256,
        temperature: Optional[float] = None,
        stop: Sequence[str] = (),
        tools: Sequence[Mapping[str, Any]] = (),
        schema: Optional[Mapping[str, Any]] = None,
    ) -> Reply:
        """Ask the model once.

        Args:
            messages: Chat messages `{"role": "user"|"assistant"|"tool", "content": str, ...}`, or one user text.
            system: System prompt.
            max_tokens: Most tokens of the reply, at least 1.
            temperature: Sampling temperature in [0, 2]; None takes the campaign's.
            stop: Texts at which the reply ends (not included in it).
            tools: Tools as `{"name", "description", "parameters": JSON schema}`.
            schema: JSON schema which the reply must satisfy.

        Raises:
            Unsupported: The backend cannot do this (tools, schema).
            ModelError: The host could not get a reply.
        """
        ...

    def choose(self, prompt: str, choices: Sequence[str]) -> List[float]:
        """Return the natural-log probability of each whole continuation of `prompt`, in order, not length-normalised.

        Raises:
            Unsupported: The backend gives no log-probabilities.
            ModelError: The host could not get a reply.
        """
        ...


class AsyncModel(Protocol):
    """The model, for a harness with `async def solve`; the same methods as `Model`, to be awaited."""

    async def complete(
        self,
        messages: "Sequence[Mapping[str, Any]] | str",
        *,
        system: Optional[str] = None,
        max_tokens: int = 256,
        temperature: Optional[float] = None,
        stop: Sequence[str] = (),
        tools: Sequence[Mapping[str, Any]] = (),
        schema: Optional[Mapping[str, Any]] = None,
    ) -> Reply:
        """As `Model.complete`."""
        ...

    async def choose(self, prompt: str, choices: Sequence[str]) -> List[float]:
        """As `Model.choose`."""
        ...


class Shell(Protocol):
    """A shell in the task's container, where the environment has one."""

    def run(self, command: str, timeout_s: float = 60.0) -> ShellResult:
        """Run `command` with bash; output and errors come back as one text."""
        ...
