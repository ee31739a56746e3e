"""The process that serves a local model: `python -m metaharness.models.local.server DIRECTORY`.

It is started by the first client, shared by all clients of this user on this machine, and ends by itself. `DIRECTORY`
(mode 0700) is all that they share:

- `setup.json`: what to serve, written by the client that starts the server;
- `start.lock`: held while a server is started, while a client comes, and while the server decides to end;
- `server.lock`: held by the server as long as it lives;
- `server.json`: process id and sockets, there once it is ready;
- `w0.sock`, `w1.sock`, …: one Unix socket a worker (mode 0600), speaking llama.cpp's HTTP interface;
- `leases/`: a file for each client, which holds a lock on it as long as it lives;
- `server.log`.

Each worker is a copy of the model with one thread. The model speaks to everyone who reaches a socket, so the directory
must never be mounted into a sandbox.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metaharness.models.local.locks import Lock, is_held

_LOCK_WAIT_S = 10.0
_POLL_S = 1.0
_LOG_ERRORS = 1
MOST_AT_ONCE = 32
"""Tokens of one prompt that are computed together; fewer than 64, see `_parameters`."""


def main(arguments: Sequence[str]) -> int:
    """Become a background process, serve until nobody needs it; the first process returns at once."""
    (directory,) = map(Path, arguments)
    os.umask(0o077)
    setup = json.loads((directory / "setup.json").read_text())
    # Taken before the fork, so that whoever started us finds it held as soon as we return; never released.
    Lock.waiting(directory / "server.lock", wait_s=_LOCK_WAIT_S)
    if os.fork():
        return 0
    os.setsid()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    status = 0
    try:
        workers = _start_workers(directory, setup)
        _announce(directory, len(workers))
        _stay(directory, idle_s=setup["idle_s"])
    except SystemExit:
        pass
    except BaseException:
        # The end of this process; the client that waits for it shows what the log says.
        traceback.print_exc()
        status = 1
    if _is_announced(directory):
        _clear(directory)
    sys.stdout.flush()
    sys.stderr.flush()
    # The threads of the workers are not waited for: there is nobody left to answer. The lock goes with the process.
    os._exit(status)


def _start_workers(directory: Path, setup: dict[str, Any]) -> list[Any]:
    import xllamacpp

    _clear(directory)
    workers = []
    for number in range(setup["workers"]):
        workers.append(xllamacpp.Server(_parameters(xllamacpp, _socket(directory, number), setup)))
        _socket(directory, number).chmod(0o600)
    return workers


def _parameters(xllamacpp: Any, socket: Path, setup: dict[str, Any]) -> Any:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = setup["model"]
    parameters.hostnames = [str(socket)]
    parameters.n_parallel = setup["slots"]
    parameters.n_ctx = setup["context_tokens"] * setup["slots"]
    parameters.cpuparams.n_threads = 1
    parameters.cpuparams_batch.n_threads = 1
    parameters.n_gpu_layers = 0
    parameters.fit_params = False
    parameters.kv_unified = False
    # A second cache, of prompts that were pushed out of their slot; clients that name a slot never come to it.
    parameters.cache_ram_mib = 0
    parameters.cache_idle_slots = False
    parameters.ctx_shift = False
    parameters.endpoint_slots = False
    parameters.ui = False
    parameters.verbosity = _LOG_ERRORS
    # One way of computing attention for one token and for many, so that a reply does not depend on what is cached or
    # computed at the same time: row by row. Without flash attention, single tokens take another way than several; with
    # it, 64 and more at once do.
    parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    parameters.cache_type_k = xllamacpp.ggml_type.GGML_TYPE_F16
    parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F16
    parameters.n_ubatch = MOST_AT_ONCE
    return parameters


def _announce(directory: Path, workers: int) -> None:
    state = {"pid": os.getpid(), "sockets": [str(_socket(directory, number)) for number in range(workers)]}
    partial = directory / "server.json.partial"
    partial.write_text(json.dumps(state))
    partial.replace(directory / "server.json")


def _is_announced(directory: Path) -> bool:
    """Return whether clients that look into the directory find this process."""
    try:
        found = json.loads((directory / "server.json").read_text())
    except FileNotFoundError:
        return False
    return bool(found["pid"] == os.getpid())


def _stay(directory: Path, *, idle_s: float) -> None:
    """Return when no client has been there for `idle_s` seconds, or the directory is no longer ours."""
    last_seen = time.monotonic()
    while True:
        time.sleep(min(_POLL_S, idle_s / 4))
        # When its directory was removed nobody can find it any more, whoever may have come there since.
        if not _is_announced(directory):
            return
        start = Lock.trying(directory / "start.lock")
        if start is None:
            last_seen = time.monotonic()
            continue
        with start:
            if _clients(directory):
                last_seen = time.monotonic()
            elif time.monotonic() - last_seen >= idle_s:
                # Still under the lock, so that no client comes between the decision and the end.
                _clear(directory)
                return


def _clients(directory: Path) -> int:
    """Return how many clients live; the leases of dead ones are removed."""
    alive = 0
    for lease in (directory / "leases").iterdir():
        if is_held(lease):
            alive += 1
        else:
            lease.unlink(missing_ok=True)
    return alive


def _clear(directory: Path) -> None:
    """Remove what tells clients of a server: its state, and sockets, also those that a killed one left."""
    for path in [directory / "server.json", *directory.glob("w*.sock")]:
        path.unlink(missing_ok=True)


def _socket(directory: Path, number: int) -> Path:
    return directory / f"w{number}.sock"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
