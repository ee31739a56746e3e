"""The process in the sandbox: takes orders from the host over the stream, and runs the harness.

`python -m metaharness.runtime.worker HARNESS_DIRECTORY`; standard library only, Python 3.9 syntax.

In each frame `type` says what it is. From the host: `examples{items}` and `state{data}` (in parts, as many as needed),
then `start{mode, …}`; `reply` and `error` to requests. To the host: `ready`, requests, `state{data}` parts, and for
each `start` one `done` or `failed`.
"""

from __future__ import annotations

import binascii
import faulthandler
import fcntl
import os
import random
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

from .channel import StreamChannel
from .client import HostShell, Message
from .contract import ContractError, LoadedHarness, example_of, load_class, task_of
from .frames import PROTOCOL_VERSION

STATE_PART_BYTES = 4 * 1024 * 1024
MAX_MESSAGE_CHARS = 2_000
MAX_TRACEBACK_CHARS = 20_000

_STREAM_FD = 60
"""The stream is moved to this descriptor or the next free ones: above what a harness opens, below small limits."""

_STACK_DUMP_S = 0.5
"""So long before the deadline the stacks of all threads are written to standard error: where the time went."""


class Worker:
    """Obeys the host's orders, one at a time."""

    def __init__(self, channel: StreamChannel, directory: str) -> None:
        self._channel = channel
        self._directory = directory
        self._outputs = (sys.stdout, sys.stderr)
        self._harness: Optional[LoadedHarness] = None
        self._examples: List[Dict[str, Any]] = []
        self._state: List[bytes] = []

    def run(self) -> None:
        """Obey until the process is killed, or ends itself when the host has closed the stream."""
        while True:
            order = self._channel.orders.get()
            if order["type"] == "examples":
                self._examples.extend(order["items"])
            elif order["type"] == "state":
                self._state.append(binascii.a2b_base64(order["data"]))
            else:
                self._start(order)

    def _start(self, order: Message) -> None:
        try:
            if order["deadline"] is not None:
                faulthandler.dump_traceback_later(max(order["deadline"] - time.time() - _STACK_DUMP_S, 0.1))
            random.seed(order["seed"])
            modes = {"check": self._check, "fit": self._fit, "learn": self._learn, "solve": self._solve}
            result = modes[order["mode"]](order)
            for stream in self._outputs:
                if not stream.closed:
                    stream.flush()
            faulthandler.cancel_dump_traceback_later()
            self._channel.send({"type": "done", **result})
        except ContractError as error:
            self._fail("contract", str(error), error)
        except SystemExit as error:
            self._fail("exception", f"the harness called sys.exit({error.code!r})", error)
        except BaseException as error:  # whatever a harness raises is its result, and ends this order only
            self._fail("exception", "", error)

    def _loaded(self, order: Message) -> LoadedHarness:
        if self._harness is None:
            self._harness = LoadedHarness(load_class(order["entry"]), self._channel)
            if order["state_bytes"] is not None:
                self._harness.load(b"".join(self._state))
                self._state = []
        return self._harness

    def _check(self, order: Message) -> Message:
        harness = self._loaded(order)
        return {"methods": harness.methods, "asynchronous": harness.asynchronous}

    def _fit(self, order: Message) -> Message:
        harness = self._loaded(order)
        if "learn" not in harness.methods:
            return {"state_bytes": None}
        harness.learn(self._taken_examples())
        state = harness.save()
        for start in range(0, len(state), STATE_PART_BYTES):
            data = binascii.b2a_base64(state[start : start + STATE_PART_BYTES], newline=False).decode()
            self._channel.send({"type": "state", "data": data})
        return {"state_bytes": len(state)}

    def _learn(self, order: Message) -> Message:
        harness = self._loaded(order)
        examples = self._taken_examples()
        if "learn" in harness.methods:
            harness.learn(examples)
        return {}

    def _solve(self, order: Message) -> Message:
        shell = HostShell(self._channel) if order["shell"] else None
        return {"answer": self._loaded(order).solve(task_of(order["task"]), shell)}

    def _taken_examples(self) -> List[Any]:
        examples, self._examples = self._examples, []
        return [example_of(item) for item in examples]

    def _fail(self, kind: str, message: str, error: BaseException) -> None:
        import traceback  # not at the top: it takes milliseconds, and most harnesses do not fail

        faulthandler.cancel_dump_traceback_later()
        place, trace, own = "", error.__traceback__, None
        while trace is not None:
            code = trace.tb_frame.f_code
            if self._is_own(code.co_filename):
                own = own or trace
                place = f" ({self._name(code.co_filename)}, line {trace.tb_lineno}, in {code.co_name})"
            trace = trace.tb_next
        if isinstance(error, SyntaxError):
            message = f"{type(error).__name__}: {error.msg}"
            place = f" ({self._name(str(error.filename))}, line {error.lineno})"
        elif not message:
            message = traceback.format_exception_only(type(error), error)[0].strip()
        # From the first line of the harness on: how the worker came to call it tells its author nothing.
        text = "" if kind == "contract" else "".join(traceback.format_exception(type(error), error, own))
        self._channel.send(
            {
                "type": "failed",
                "kind": kind,
                "message": message[:MAX_MESSAGE_CHARS] + place,
                "traceback": text[-MAX_TRACEBACK_CHARS:],
            }
        )

    def _is_own(self, filename: str) -> bool:
        return filename.startswith(self._directory + os.sep)

    def _name(self, filename: str) -> str:
        return os.path.relpath(filename, self._directory) if self._is_own(filename) else filename


def take_stream() -> Tuple[int, int]:
    """Move the stream off descriptors 0 and 1, so that no print can break it; return where it is now.

    Afterwards standard input is empty, and standard output goes where standard error goes.
    """
    read_fd = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, _STREAM_FD)
    write_fd = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, _STREAM_FD)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return read_fd, write_fd


def main() -> None:
    """Serve one host until it closes the stream."""
    read_fd, write_fd = take_stream()
    directory = os.path.abspath(sys.argv[1])
    sys.argv = [directory]
    sys.path.insert(0, directory)
    for stream in (sys.stdout, sys.stderr):
        # Lines leave at once, so that prints survive a crash; no character can make a print fail.
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    faulthandler.enable()
    channel = StreamChannel(read_fd, write_fd, on_end=lambda: os._exit(1))
    channel.start()
    channel.send({"type": "ready", "version": PROTOCOL_VERSION, "directory": directory})
    Worker(channel, directory).run()


if __name__ == "__main__":
    main()
