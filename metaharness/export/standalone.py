"""What an exported directory runs: the harness in this process, its model asked directly."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import threading
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from metaharness.errors import InfraError, MetaharnessError, ModelRefused, UnsupportedRequest, UserError, unknown_name
from metaharness.exchange import ChooseRequest, CompleteRequest, ModelReply, reply_key, seed_of
from metaharness.models import create_backend
from metaharness.protocols import ModelBackend
from metaharness.runtime import Task
from metaharness.runtime.contract import LoadedHarness, load_class
from metaharness.source import SourceTree
from metaharness.spec import ModelSpec

OnReply = Callable[[dict[str, Any]], None]


class DirectChannel:
    """A runtime `Channel` that asks a backend, in an event loop of its own thread.

    Requests that repeat within one task get different seeds, as in a rollout, so that a vote is a vote.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self._default_temperature = spec.temperature
        self._backend: ModelBackend = create_backend(spec)
        self._occurrences: dict[str, int] = {}
        self._scope = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="model", daemon=True)
        self._thread.start()

    def begin(self, scope: str) -> None:
        """Begin a task; equal scopes give equal seeds."""
        self._scope = scope
        self._occurrences = {}

    def submit(self, kind: str, body: dict[str, Any], on_reply: OnReply) -> None:
        """As `runtime.client.Channel.submit`; there is no shell here."""
        asyncio.run_coroutine_threadsafe(self._answer(kind, body, on_reply), self._loop)

    async def _answer(self, kind: str, body: dict[str, Any], on_reply: OnReply) -> None:
        try:
            on_reply(await self._ask(kind, body))
        except UnsupportedRequest as error:
            on_reply({"type": "error", "kind": "unsupported", "message": str(error)})
        except ModelRefused as error:
            on_reply({"type": "error", "kind": "refused", "message": str(error)})
        except (InfraError, UserError) as error:
            on_reply({"type": "error", "kind": "unavailable", "message": str(error)})
        except Exception as error:  # the harness waits for a reply: it must get one whatever a backend raises
            on_reply({"type": "error", "kind": "error", "message": f"{type(error).__name__}: {error}"})

    async def _ask(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        if kind == "choose":
            chosen = await self._backend.choose(ChooseRequest(prompt=body["prompt"], choices=tuple(body["choices"])))
            values = chosen.logprobs or ()
            return {"type": "reply", "logprobs": [v if math.isfinite(v) else None for v in values]}
        if kind != "model":
            raise UnsupportedRequest("an exported harness has no shell")
        request = CompleteRequest(
            messages=tuple(body["messages"]),
            system=body["system"],
            max_tokens=body["max_tokens"],
            temperature=self._default_temperature if body["temperature"] is None else body["temperature"],
            stop=tuple(body["stop"]),
            tools=tuple(body["tools"]),
            schema=body["schema"],
        )
        return _reply(await self._backend.complete(request, seed=self._seed(request)))

    def _seed(self, request: CompleteRequest) -> int:
        first = reply_key(self._backend.info, request, scope=self._scope, attempt=0, occurrence=0)
        occurrence = self._occurrences.get(first, 0)
        self._occurrences[first] = occurrence + 1
        key = reply_key(self._backend.info, request, scope=self._scope, attempt=0, occurrence=occurrence)
        return seed_of(key)

    def close(self) -> None:
        """Give the backend back and end the thread."""
        asyncio.run_coroutine_threadsafe(self._backend.aclose(), self._loop).result(timeout=30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=30)
        self._loop.close()


def _reply(reply: ModelReply) -> dict[str, Any]:
    return {
        "type": "reply",
        "text": reply.text,
        "tool_calls": [dict(call) for call in reply.tool_calls],
        "stop_reason": reply.stop_reason,
        "usage": {
            "input_tokens": reply.usage.input_tokens,
            "output_tokens": reply.usage.output_tokens,
            "cached_tokens": reply.usage.cached_tokens,
        },
    }


def answer_all(
    directory: Path, questions: Sequence[str], environment: str | None, instruction: str | None
) -> list[str]:
    """Answer questions with an exported harness, in order.

    Args:
        directory: The exported directory.
        questions: Inputs of the tasks.
        environment: Whose instruction, choices and learned state are used; default: the first.
        instruction: In place of the environment's.

    Raises:
        UserError: The directory or the environment's name is wrong, or the harness is one that is started by a command.
    """
    try:
        model = ModelSpec.model_validate_json((directory / "model.json").read_bytes())
        environments = json.loads((directory / "environments.json").read_text("utf-8"))
    except OSError as error:
        raise UserError(f"{directory}: not an exported directory: {error}") from error
    known = {item["name"]: item for item in environments}
    name = environment if environment is not None else environments[0]["name"]
    if name not in known:
        raise UserError(unknown_name("environment", name, known))
    config = SourceTree.from_directory(directory / "harness").config
    if config.entry is None:
        raise UserError(f"{directory}: a harness that is started by a command cannot be run here")
    sys.path.insert(0, str(directory / "harness"))
    channel = DirectChannel(model)
    try:
        harness = LoadedHarness(load_class(config.entry), channel)
        state = directory / "state" / f"{name}.bin"
        if state.is_file():
            harness.load(state.read_bytes())
        answers = []
        for question in questions:
            channel.begin(question)
            task = Task(
                id=uuid.uuid4().hex,
                instruction=instruction if instruction is not None else known[name]["instruction"],
                input=question,
                choices=known[name]["choices"],
            )
            answers.append(harness.solve(task, None))
        return answers
    finally:
        channel.close()


def main(directory: Path, arguments: Sequence[str]) -> int:
    """Run the command line of an exported directory; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {directory.name}", description="Answer questions with an exported harness."
    )
    parser.add_argument(
        "question", nargs="*", help="one or more questions; without any, one a line from standard input"
    )
    parser.add_argument("--environment", help="whose instruction, choices and learned state are used")
    parser.add_argument("--instruction", help="instruction in place of the environment's")
    parser.add_argument("--json", action="store_true", help="print one JSON object a question")
    given = parser.parse_args(list(arguments))
    questions = given.question or [line.rstrip("\n") for line in sys.stdin if line.strip()]
    try:
        answers = answer_all(directory, questions, given.environment, given.instruction)
    except UserError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except MetaharnessError as error:
        sys.stderr.write(f"failed: {error}\n")
        return 1
    for question, answer in zip(questions, answers, strict=True):
        line = json.dumps({"question": question, "answer": answer}, ensure_ascii=False) if given.json else answer
        sys.stdout.write(line + "\n")
    return 0
