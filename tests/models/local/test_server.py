"""The life of the server: shared, private, surviving its clients, replaced when lost, gone when idle."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from metaharness.errors import ModelUnavailable
from metaharness.exchange import ChooseRequest, CompleteRequest
from metaharness.models.local import LocalBackend, LocalSettings
from metaharness.models.local.connection import connect, healthy
from metaharness.models.local.locks import is_held
from metaharness.models.local.settings import server_directory
from metaharness.models.local.worker import ServerLost, Worker
from tests.models.local.conftest import MODEL, server_pid, wait_until_gone

ONE = LocalSettings(workers=1, slots=1, context_tokens=256, idle_s=60.0)
HELLO = CompleteRequest(messages=({"role": "user", "content": "Hello"},), max_tokens=2)
LONG = CompleteRequest(messages=({"role": "user", "content": "Tell a long story."},), max_tokens=200)

pytestmark = pytest.mark.usefixtures("installed", "private_runtime")

CLIENT = """
import asyncio, sys
from metaharness.exchange import CompleteRequest
from metaharness.models.local import CATALOG, LocalBackend, LocalSettings

async def main():
    settings = LocalSettings(workers=1, slots=1, context_tokens=256, idle_s=float(sys.argv[1]))
    backend = LocalBackend(CATALOG["smollm2-135m"], settings=settings)
    request = CompleteRequest(messages=({"role": "user", "content": "Hello"},), max_tokens=2)
    await backend.complete(request, seed=0)
    print(backend.directory, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def start_client(idle_s: float = 60.0) -> tuple[subprocess.Popen[str], Path]:
    client = subprocess.Popen([sys.executable, "-c", CLIENT, str(idle_s)], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    directory = Path(client.stdout.readline().strip())
    return client, directory


def kill(client: subprocess.Popen[str]) -> None:
    with client:
        client.kill()


def open_ports(pid: int) -> list[str]:
    """Return the lines of the process's own TCP sockets in the kernel's table."""
    links = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]
    inodes = {link.removeprefix("socket:[").rstrip("]") for link in links if link.startswith("socket:")}
    lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    return [line for line in lines if line.split()[9] in inodes]


def test_it_is_private() -> None:
    client, directory = start_client()
    pid = server_pid(directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "w0.sock").stat().st_mode) == 0o600
    assert open_ports(pid) == []
    environ = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    names = {entry.partition("=")[0] for entry in environ if entry}
    assert names <= {"HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "TMPDIR", "LC_CTYPE"}
    kill(client)


async def test_processes_share_it_and_it_survives_a_killed_client() -> None:
    client, directory = start_client()
    pid = server_pid(directory)
    backend = LocalBackend(MODEL, settings=ONE)
    assert backend.directory == directory
    await backend.complete(HELLO, seed=0)
    assert server_pid(directory) == pid
    kill(client)
    await backend.complete(HELLO, seed=0)
    assert server_pid(directory) == pid
    await backend.aclose()


async def test_clients_that_come_at_the_same_time_start_one_server() -> None:
    started = [start_client() for _ in range(1)]
    backends = [LocalBackend(MODEL, settings=ONE) for _ in range(3)]
    replies = await asyncio.gather(*(backend.complete(HELLO, seed=0) for backend in backends for _ in range(2)))
    assert len({reply.text for reply in replies}) == 1
    assert len(list((backends[0].directory / "leases").iterdir())) == 4
    for backend in backends:
        await backend.aclose()
    assert len(list((backends[0].directory / "leases").iterdir())) == 1
    for client, _ in started:
        kill(client)


async def test_a_killed_server_is_an_infrastructure_error_and_the_next_call_starts_another() -> None:
    backend = LocalBackend(MODEL, settings=ONE)
    await backend.complete(HELLO, seed=0)
    pid = server_pid(backend.directory)
    calls = [asyncio.create_task(backend.complete(LONG, seed=0)) for _ in range(2)]
    await asyncio.sleep(0.3)
    os.kill(pid, signal.SIGKILL)
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        # The one that had waited for the slot may have asked the new server already.
        assert isinstance(outcome, ModelUnavailable)
    await backend.complete(HELLO, seed=0)
    assert server_pid(backend.directory) != pid
    reply = await backend.choose(ChooseRequest(prompt="One two", choices=(" three", " zebra")))
    assert reply.logprobs is not None
    assert reply.logprobs[0] > reply.logprobs[1]
    await backend.aclose()
    assert not list((backend.directory / "leases").iterdir())


async def test_a_server_that_hangs_is_noticed() -> None:
    backend = LocalBackend(MODEL, settings=ONE)
    await backend.complete(HELLO, seed=0)
    socket = backend.directory / "w0.sock"
    assert healthy(socket)
    worker = Worker(socket, life_sign_s=0.2)
    pid = server_pid(backend.directory)
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(ServerLost, match="does not answer"):
            await worker.complete({"prompt": "x", "n_predict": 1})
        assert not healthy(socket, timeout_s=0.2)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert (await worker.complete({"prompt": "x", "n_predict": 1}))["tokens_predicted"] == 1
    await worker.aclose()
    await backend.aclose()


@pytest.mark.slow
async def test_a_server_that_hangs_is_replaced() -> None:
    backend = LocalBackend(MODEL, settings=ONE)
    await backend.complete(HELLO, seed=0)
    await backend.aclose()
    pid = server_pid(backend.directory)
    os.kill(pid, signal.SIGSTOP)
    await backend.complete(HELLO, seed=0)
    assert server_pid(backend.directory) != pid
    await backend.aclose()


async def test_it_ends_when_idle_and_not_before() -> None:
    settings = replace(ONE, idle_s=1.0)
    backend = LocalBackend(MODEL, settings=settings)
    await backend.complete(HELLO, seed=0)
    time.sleep(3)  # noqa: ASYNC251 - nobody calls, but a client is there
    assert is_held(backend.directory / "server.lock")
    await backend.aclose()
    wait_until_gone(backend.directory)
    assert not list(backend.directory.glob("*.sock"))
    assert not (backend.directory / "server.json").exists()
    # And another comes when it is needed.
    await backend.complete(HELLO, seed=0)
    await backend.aclose()
    wait_until_gone(backend.directory)


def test_it_ends_when_its_last_client_was_killed() -> None:
    client, directory = start_client(idle_s=1.0)
    assert is_held(directory / "server.lock")
    kill(client)
    wait_until_gone(directory)
    assert not list((directory / "leases").iterdir())


async def test_it_ends_when_its_directory_was_taken_away(private_runtime: Path) -> None:
    backend = LocalBackend(MODEL, settings=ONE)
    await backend.complete(HELLO, seed=0)
    backend.directory.rename(private_runtime / "moved")
    await backend.aclose()
    await asyncio.to_thread(wait_until_gone, private_runtime / "moved")
    assert (private_runtime / "moved" / "w0.sock").exists()


async def test_sigterm_ends_it_cleanly() -> None:
    backend = LocalBackend(MODEL, settings=ONE)
    await backend.complete(HELLO, seed=0)
    os.kill(server_pid(backend.directory), signal.SIGTERM)
    wait_until_gone(backend.directory)
    assert not list(backend.directory.glob("*.sock"))
    with pytest.raises(ModelUnavailable):
        await backend.complete(HELLO, seed=0)
    await backend.complete(HELLO, seed=0)
    await backend.aclose()


def test_a_server_that_cannot_start_says_why(private_runtime: Path) -> None:
    directory = server_directory({"test": "bad weights"})
    bad = private_runtime / "bad.gguf"
    bad.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelUnavailable, match=r"did not start \(it ended\).*bad\.gguf.*server\.log"):
        connect(directory, ONE, lambda: bad)
    assert not is_held(directory / "server.lock")
    assert not list((directory / "leases").iterdir())


def test_what_a_killed_server_left_is_cleared_away(private_runtime: Path) -> None:
    client, directory = start_client()
    os.kill(server_pid(directory), signal.SIGKILL)
    kill(client)
    wait_until_gone(directory)
    stale = json.loads((directory / "server.json").read_text())
    assert (directory / "w0.sock").is_socket()
    client, again = start_client()
    assert again == directory
    assert server_pid(directory) != stale["pid"]
    kill(client)
