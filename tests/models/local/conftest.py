"""The real model, served in a directory of its own; one server for all tests with the same settings."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from importlib import util
from pathlib import Path

import pytest

from metaharness.models.local import CATALOG, LocalBackend, LocalSettings
from metaharness.models.local.fetch import is_present
from metaharness.models.local.locks import is_held
from tests.support import require

MODEL = CATALOG["smollm2-135m"]
SMALL = LocalSettings(workers=2, slots=2, context_tokens=512, idle_s=120.0)


def server_pid(directory: Path) -> int:
    return int(json.loads((directory / "server.json").read_text())["pid"])


def wait_until_gone(directory: Path, timeout_s: float = 30.0) -> None:
    give_up = time.monotonic() + timeout_s
    while is_held(directory / "server.lock"):
        assert time.monotonic() < give_up, f"the server in {directory} is still there"
        time.sleep(0.05)


def end_server(directory: Path) -> None:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        os.kill(server_pid(directory), signal.SIGKILL)
    if directory.exists():
        wait_until_gone(directory)


@pytest.fixture(scope="session")
def installed() -> None:
    require(util.find_spec("xllamacpp") is not None, "the package xllamacpp")
    require(is_present(MODEL.name), f"the package {MODEL.package}")


@pytest.fixture(scope="session")
def shared_runtime() -> Iterator[Path]:
    """A place for servers, with a path short enough for sockets; the servers are ended with the tests."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="mh-") as path:
        yield Path(path)
        for directory in Path(path).glob("metaharness/*"):
            end_server(directory)


@pytest.fixture
def private_runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """As `shared_runtime`, for one test that does things to its server."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="mh-") as path:
        monkeypatch.setenv("XDG_RUNTIME_DIR", path)
        yield Path(path)
        for directory in Path(path).glob("metaharness/*"):
            end_server(directory)


@pytest.fixture
async def backend(
    installed: None, shared_runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[LocalBackend]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(shared_runtime))
    backend = LocalBackend(MODEL, settings=SMALL)
    yield backend
    await backend.aclose()
