"""How a model is served, and the private directory in which its server is found."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metaharness.errors import UserError
from metaharness.exchange import canonical_json

SERVER_VERSION = 1
"""Raised when server and clients of different releases could not work together."""

_MOST_WORKERS = 4
# A Unix socket's path has at most 107 bytes.
_LONGEST_DIRECTORY = 90


def default_workers() -> int:
    """Return one worker for each core that this process may use, at most 4 (each takes about 0.4 GB)."""
    return max(1, min(_MOST_WORKERS, len(os.sched_getaffinity(0))))


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """How a model is served.

    Several workers of one thread do more than one worker of several threads, and on busy cores very much more: threads
    that wait for each other at every layer stand still whenever one of them is not scheduled.

    Attributes:
        workers: Copies of the model that compute at the same time, one thread each.
        slots: Prompts that each worker keeps in its cache, and calls that it takes at the same time.
        context_tokens: Most tokens of prompt and reply together. Each slot takes 23 kB a token (smollm2-135m).
        idle_s: Seconds without a client after which the server ends.
        start_s: Seconds that the server may take to start.
    """

    workers: int = field(default_factory=default_workers)
    slots: int = 4
    context_tokens: int = 4096
    idle_s: float = 300.0
    start_s: float = 120.0

    def __post_init__(self) -> None:
        for name in ("workers", "slots", "context_tokens"):
            if getattr(self, name) < 1:
                raise UserError(f"local model settings: {name} must be at least 1 (got {getattr(self, name)})")

    def layout(self) -> dict[str, int]:
        """Return how the work is spread."""
        return {"workers": self.workers, "slots": self.slots}

    def identity(self) -> dict[str, Any]:
        """Return what may change a reply; the layout does not."""
        return {"threads": 1, "mode": "deterministic", "context_tokens": self.context_tokens}


def server_directory(identity: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> Path:
    """Return the private directory of the server with this identity; made if absent, mode 0700.

    All processes of this user on this machine come to the same directory, and so to the same server.

    Args:
        identity: Weights, runtime and settings.
        environ: Environment variables; None takes those of this process.

    Raises:
        UserError: No directory that is ours alone can be made.
    """
    environ = os.environ if environ is None else environ
    key = hashlib.sha256(canonical_json([SERVER_VERSION, dict(identity)]).encode()).hexdigest()[:16]
    refused = []
    for base in _bases(environ):
        if len(os.fsencode(base / key)) > _LONGEST_DIRECTORY:
            refused.append(f"{base}: too long for a socket")
            continue
        try:
            for directory in (base, base / key):
                _make_private(directory)
        except OSError as error:
            refused.append(f"{base}: {error.strerror or error}")
            continue
        return base / key
    raise UserError(f"no private directory for the local model's server ({'; '.join(refused)}): set XDG_RUNTIME_DIR")


def _bases(environ: Mapping[str, str]) -> list[Path]:
    bases = []
    given = environ.get("XDG_RUNTIME_DIR", "")
    if given.startswith("/") and Path(given).is_dir() and Path(given).stat().st_uid == os.getuid():
        bases.append(Path(given) / "metaharness")
    bases.append(Path(environ.get("TMPDIR") or tempfile.gettempdir()) / f"metaharness-{os.getuid()}")
    return bases


def _make_private(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        found = directory.lstat()
        # Someone else may have put a directory or a link there first: /tmp is open to all.
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise OSError("belongs to another user, or is no directory") from None
        if stat.S_IMODE(found.st_mode) != 0o700:
            directory.chmod(0o700)
