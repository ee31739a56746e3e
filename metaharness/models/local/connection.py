"""How a client comes to the server: find it or start it, and hold a lease on it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metaharness.errors import ModelUnavailable
from metaharness.models.local.locks import Lock, is_held
from metaharness.models.local.settings import LocalSettings

_POLL_S = 0.02
_KILL_WAIT_S = 20.0
_HEALTH_TIMEOUT_S = 20.0
_LOG_LINES = 4
# The server needs no key and no setting of ours: it outlives the process that starts it.
_PASSED_ON = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "TMPDIR")


@dataclass(slots=True, kw_only=True)
class Connection:
    """A running server, and the lease that keeps it running.

    Attributes:
        sockets: One Unix socket for each worker.
        pid: Process id of the server.
        lease: Released by `close`, or by the kernel when this process ends.
        lease_path: Its file.
    """

    sockets: tuple[Path, ...]
    pid: int
    lease: Lock
    lease_path: Path

    def close(self) -> None:
        """Give the lease back. Harmless when that was done before."""
        self.lease_path.unlink(missing_ok=True)
        self.lease.release()


def connect(directory: Path, settings: LocalSettings, weights: Callable[[], Path]) -> Connection:
    """Return a connection to the server of `directory`; it is started when there is none that answers. Blocking.

    Args:
        directory: The server's private directory.
        settings: How to serve.
        weights: Returns the file to serve, checked; called only where a server must be started.

    Raises:
        ModelUnavailable: The server could not be started; the message ends with the last lines of its log.
        UserError: The weights are absent or damaged.
    """
    try:
        (directory / "leases").mkdir(mode=0o700, exist_ok=True)
        with Lock.waiting(directory / "start.lock", wait_s=settings.start_s):
            found = _running(directory, settings)
            if found is None:
                _start(directory, settings, weights())
                found = _await_ready(directory, settings)
            if found is None:
                raise _start_error(directory, "it ended")
            path = directory / "leases" / f"{os.getpid()}-{secrets.token_hex(4)}"
            lease = Lock.waiting(path, wait_s=settings.start_s)
            sockets = tuple(Path(name) for name in found["sockets"])
            return Connection(sockets=sockets, pid=found["pid"], lease=lease, lease_path=path)
    except OSError as error:
        raise ModelUnavailable(f"the local model's server in {directory} cannot be reached: {error}") from error


def healthy(path: Path, *, timeout_s: float = _HEALTH_TIMEOUT_S) -> bool:
    """Return whether a worker answers on its socket. Blocking."""
    client = http.client.HTTPConnection("localhost", timeout=timeout_s)
    try:
        client.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.sock.settimeout(timeout_s)
        client.sock.connect(str(path))
        client.request("GET", "/health")
        return client.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        client.close()


def _running(directory: Path, settings: LocalSettings) -> dict[str, Any] | None:
    """Return the state of the running server; one that does not answer is ended first."""
    if not is_held(directory / "server.lock"):
        return None
    # Whoever started it may have been killed before it was ready; or it is about to end.
    state = _await_ready(directory, settings)
    if state is None or all(healthy(Path(name)) for name in state["sockets"]):
        return state
    with contextlib.suppress(ProcessLookupError):
        # It holds the lock, so it lives, and the process id is its own.
        os.kill(state["pid"], signal.SIGKILL)
    Lock.waiting(directory / "server.lock", wait_s=_KILL_WAIT_S).release()
    return None


def _start(directory: Path, settings: LocalSettings, model: Path) -> None:
    setup = {
        "model": str(model),
        "workers": settings.workers,
        "slots": settings.slots,
        "context_tokens": settings.context_tokens,
        "idle_s": settings.idle_s,
    }
    (directory / "server.json").unlink(missing_ok=True)
    (directory / "setup.json").write_text(json.dumps(setup))
    environ = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    # The package may be importable only from here, for example in a checkout.
    environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[3]), *filter(None, sys.path)])
    with (directory / "server.log").open("wb") as log:
        started = subprocess.run(
            [sys.executable, "-m", "metaharness.models.local.server", str(directory)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=directory,
            env=environ,
            timeout=settings.start_s,
            check=False,
        )
    if started.returncode != 0:
        raise _start_error(directory, f"exit code {started.returncode}")


def _await_ready(directory: Path, settings: LocalSettings) -> dict[str, Any] | None:
    """Return the state of the server as soon as it is ready, or None when it has ended."""
    give_up = time.monotonic() + settings.start_s
    while True:
        alive = is_held(directory / "server.lock")
        try:
            state: dict[str, Any] = json.loads((directory / "server.json").read_text())
        except FileNotFoundError:
            if not alive:
                return None
            if time.monotonic() >= give_up:
                raise _start_error(directory, f"not ready after {settings.start_s:.0f} s") from None
            time.sleep(_POLL_S)
        else:
            return state


def _start_error(directory: Path, reason: str) -> ModelUnavailable:
    log = directory / "server.log"
    text = log.read_text("utf-8", "replace")
    # Without the frames of a traceback, which are indented.
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith((" ", "Traceback"))]
    tail = " | ".join(lines[-_LOG_LINES:]) or "its log is empty"
    return ModelUnavailable(f"the local model's server did not start ({reason}): {tail} (log: {log})")
