"""Runs inside a sandbox, alone: tries to break each limit, and prints as JSON how far it got.

Imports nothing of ours, and little of the standard library.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

_CLONE_NEWUSER = 0x10000000
_AF_VSOCK = 40


def outcome(action: Callable[[], object]) -> str:
    """Return the name of the error that an action ends with, or `done`."""
    try:
        action()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "done"


def new_user_namespace() -> None:
    """Try to get one: in it all capabilities come back."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def threads_until_refused(most: int) -> int:
    """Return how many threads can run besides this one, at most `most`."""
    stop = threading.Event()
    started: list[threading.Thread] = []
    try:
        while len(started) < most:
            thread = threading.Thread(target=stop.wait)
            thread.start()
            started.append(thread)
    except RuntimeError:  # "can't start new thread"
        pass
    finally:
        stop.set()
        for thread in started:
            thread.join()
    return len(started)


def files_until_refused(most: int) -> int:
    """Return how many files can be open at once, at most `most`."""
    opened: list[int] = []
    try:
        while len(opened) < most:
            opened.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return len(opened) + 3


def bytes_until_full(directory: str, most: int) -> int:
    """Return how many bytes a directory takes, at most `most`."""
    block = b"x" * 65536
    written = 0
    path = Path(directory, "probe")
    try:
        with path.open("wb", buffering=0) as file:
            while written < most:
                written += file.write(block)
    except OSError:
        pass
    path.unlink()
    return written


def status_lines() -> dict[str, str]:
    """Return /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines)


def general() -> dict[str, object]:
    """Try everything that one process can try in a moment."""
    status = status_lines()
    sys.stderr.write("x" * (64 << 10))
    return {
        "interfaces": [name for _, name in socket.if_nameindex()],
        "processes_visible": [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()],
        "root": sorted(entry.name for entry in Path("/").iterdir()),
        "system_write": outcome(Path("/usr/probe").touch),
        "root_write": outcome(Path("/probe").mkdir),
        "user_namespace": outcome(new_user_namespace),
        "vsock": outcome(lambda: socket.socket(_AF_VSOCK, socket.SOCK_STREAM)),
        "capabilities": int(status["CapEff"], 16) | int(status["CapBnd"], 16),
        "no_new_privileges": status["NoNewPrivs"],
        "seccomp": status["Seccomp"],
        "threads": threads_until_refused(200),
        "files": files_until_refused(2000),
        "work_bytes": bytes_until_full("/work", 64 << 20),
        "tmp_bytes": bytes_until_full("/tmp", 64 << 20),  # noqa: S108 - the sandbox's own
        "shm_bytes": bytes_until_full("/dev/shm", 64 << 20),  # noqa: S108 - the sandbox's own
    }


def memory(total_mb: int) -> dict[str, object]:
    """Use more memory than allowed, spread over processes so that a limit on each alone does not help."""
    share_mb = total_mb // 4
    for _ in range(4):
        if os.fork() == 0:
            held = bytearray(share_mb << 20)
            for position in range(0, len(held), 4096):
                held[position] = 1
            time.sleep(5)
            os._exit(0)
    time.sleep(5)
    return {"survived": True}


def busy(seconds: float) -> dict[str, object]:
    """Compute for a while, and report how much processor time that got."""
    until = time.monotonic() + seconds
    began = time.process_time()
    while time.monotonic() < until:
        pass
    return {"share": (time.process_time() - began) / seconds}


def linger() -> dict[str, object]:
    """Leave a daemon behind (it holds standard output open), and sleep."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(60)
        os._exit(0)
    time.sleep(60)
    return {}


if __name__ == "__main__":
    trials: dict[str, Callable[[], dict[str, object]]] = {
        "general": general,
        "memory": lambda: memory(96),
        "busy": lambda: busy(0.5),
        "linger": linger,
    }
    sys.stdout.write(json.dumps(trials[sys.argv[1]]()))
