"""What tests of sandbox engines share: run a program and collect everything; see that nothing of ours is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from metaharness.job import Limits, Mount, SandboxExit, SandboxJob
from metaharness.protocols import SandboxEngine, SandboxProcess
from metaharness.sandboxes.bubblewrap import BubblewrapEngine
from metaharness.sandboxes.cgroups import Cgroups
from metaharness.sandboxes.labels import Owner, label_of, labelled_processes, owner_of
from metaharness.sandboxes.unsafe_process import UnsafeProcessEngine
from tests.support import require

ENGINES = ("bubblewrap", "unsafe-process")
QUICK = Limits(memory_mb=256, timeout_s=60.0, work_mb=16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A finished sandbox."""

    out: bytes
    end: SandboxExit

    @property
    def text(self) -> str:
        return self.out.decode()


def python_job(
    code: str,
    *arguments: str,
    mounts: Sequence[Mount] = (),
    env: Mapping[str, str] | None = None,
    limits: Limits = QUICK,
    cwd: str = "/work",
) -> SandboxJob:
    return SandboxJob(
        argv=("python", "-I", "-S", "-c", code, *arguments), mounts=tuple(mounts), env=env or {}, limits=limits, cwd=cwd
    )


async def collect(process: SandboxProcess) -> Ran:
    out = bytearray()
    while data := await process.read(1 << 16):
        out += data
    return Ran(out=bytes(out), end=await process.wait())


async def run(engine: SandboxEngine, job: SandboxJob) -> Ran:
    return await collect(await engine.launch(job))


async def run_python(engine: SandboxEngine, code: str, *arguments: str, **job: object) -> Ran:
    return await run(engine, python_job(code, *arguments, **job))  # type: ignore[arg-type]


async def read_line(process: SandboxProcess) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        data = await process.read(1)
        if not data:
            break
        line += data
    return line


@contextlib.asynccontextmanager
async def opened(name: str, directory: Path) -> AsyncIterator[SandboxEngine]:
    """An engine that works here, and afterwards the proof that it left nothing behind."""
    if name == "bubblewrap":
        bubblewrap = await working_bubblewrap()
        try:
            yield bubblewrap
        finally:
            await bubblewrap.sweep()
            assert_nothing_left(bubblewrap)
    else:
        yield UnsafeProcessEngine(directory=directory)
        assert os.listdir(directory) == []  # noqa: PTH208


async def working_bubblewrap() -> BubblewrapEngine:
    engine = BubblewrapEngine()
    report = await engine.probe() if _Known.works is None else None
    if report is not None:
        _Known.works = report.reason if not report.available else ""
        _Known.limits = dict(report.limits)
    require(not _Known.works, f"a working bubblewrap ({_Known.works})")
    return engine


async def require_held(limit: str) -> None:
    """Skip (or fail where everything must be there) unless the engine's probe found a limit to hold here."""
    await working_bubblewrap()
    require(_Known.limits[limit] == "held", f"{limit} in a bubblewrap sandbox ({_Known.limits[limit]})")


class _Known:
    """What the first probe of a test run found."""

    works: str | None = None
    limits: Mapping[str, str] = {}


def assert_nothing_left(engine: BubblewrapEngine) -> None:
    """No process, control group or directory of this process is left; what others run meanwhile is theirs."""
    ground = engine._ground
    assert ground is not None
    assert own_processes() == []
    assert [path for path in ground.copies.iterdir() if _is_ours(path.name)] == []
    assert own_groups(ground.cgroups) == []
    assert not any("metaharness" in line for line in Path("/proc/self/mountinfo").read_text().splitlines())


def own_processes() -> list[int]:
    return [pid for pid in labelled_processes() if _is_ours(label_of(pid)) and not _is_zombie(pid)]


def command_line(pid: int) -> bytes:
    """What a process was started with; nothing when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def own_groups(cgroups: Cgroups) -> list[Path]:
    return [path for parent in set(cgroups.parents.values()) for path in parent.iterdir() if _is_ours(path.name)]


def _is_ours(label: str) -> bool:
    return owner_of(label) == Owner.current()


def _is_zombie(pid: int) -> bool:
    """Whether it has ended, buried or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


async def gone(pid: int, timeout_s: float = 5.0) -> bool:
    """Whether a process of the host ends soon."""
    for _ in range(int(timeout_s / 0.02)):
        if _is_zombie(pid):
            return True
        await asyncio.sleep(0.02)
    return False


@contextlib.contextmanager
def private_directory() -> Iterator[Path]:
    """A directory that no other user can enter, as root's home is."""
    with tempfile.TemporaryDirectory(prefix="tests-", dir=_reachable()) as made:
        Path(made).chmod(0o700)
        yield Path(made)


def _reachable() -> str:
    return "/var/tmp" if os.access("/var/tmp", os.W_OK) else tempfile.gettempdir()
