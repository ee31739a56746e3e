"""Engine `unsafe-process`: a plain child process. It contains nothing, and is for development where nothing else works.

There is no mount namespace, so paths of the sandbox are mapped: each sandbox has a temporary directory with `work` and
a copy of each read-only mount (what code writes there is lost); a writable mount is the host's directory itself.
Every occurrence of `/work` or of a mount's target at the beginning of an argument, of `cwd`, or of an element of a
variable's value (separated by `:`) is replaced by the real path. Paths inside files are not.

What holds: wall clock, output, per-process limits. Not held: everything else. The code runs as this user, with the
network, and can read and write what this user can. Children that leave the process group survive.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from metaharness.errors import SandboxUnavailable
from metaharness.job import EngineReport, Limits, SandboxExit, SandboxJob
from metaharness.sandboxes.cache import remove_tree
from metaharness.sandboxes.command import ProcessLimits, check_job, process_limits
from metaharness.sandboxes.labels import Owner, is_leftover
from metaharness.sandboxes.process import Ending, PipedProcess, in_thread
from metaharness.sandboxes.staging import base_python

_logger = logging.getLogger("metaharness.sandboxes")
_WARNING = (
    "sandbox engine unsafe-process: harness code runs as your user, with your network and files; "
    "use it only with code that you trust"
)
_GROUP_FILE = "group"
# Takes on limits, then becomes the program: a function run between fork and exec is not safe in a host with threads.
_LIMIT = """
import os, resource, sys
for pair in sys.argv[1].split(","):
    kind, value = map(int, pair.split(":"))
    resource.setrlimit(kind, (value, value))
environment = dict(os.environ)
if sys.argv[2] != "LC_CTYPE":  # this interpreter sets it by itself
    environment.pop("LC_CTYPE", None)
os.execvpe(sys.argv[3], sys.argv[3:], environment)
"""


@dataclass(slots=True)
class _Group:
    """The `Containment`: a process group and a directory."""

    child: subprocess.Popen[bytes]
    directory: Path

    def kill(self) -> None:
        """See `Containment`."""
        if self.child.returncode is None:  # not reaped, so that its number cannot be another's
            try:
                os.killpg(self.child.pid, signal.SIGKILL)
            except ProcessLookupError:
                return

    def finish(self, returncode: int, *, killed: bool) -> Ending:  # noqa: ARG002 - the protocol's signature
        """See `Containment`."""
        _end_group(self.child.pid)
        shutil.rmtree(self.directory)
        return Ending(code=returncode)

    def close(self) -> None:
        """See `Containment`; it has no descriptors."""


class UnsafeProcessEngine:
    """See the module.

    Args:
        directory: Where temporary directories are made; the system's by default.
    """

    def __init__(self, *, directory: Path | None = None) -> None:
        self._directory = directory
        self._labels: Iterator[str] = Owner.current().labels()
        self._warned = False
        self._alive: set[asyncio.Task[SandboxExit]] = set()

    @property
    def name(self) -> str:
        """`unsafe-process`."""
        return "unsafe-process"

    async def launch(self, job: SandboxJob) -> PipedProcess:
        """See `SandboxEngine`. The first one logs a warning.

        Raises:
            SandboxUnavailable: It could not be started.
            ValueError: The job is no job.
        """
        check_job(job)
        if not self._warned:
            self._warned = True
            _logger.warning(_WARNING)
        root = self._root() / next(self._labels)
        try:
            places = await in_thread(None, lambda: _lay_out(root, job))
            child = _start(job, places, root)
        except (OSError, shutil.Error) as error:
            remove_tree(root)
            raise SandboxUnavailable(f"a process could not be started: {error}") from error
        except BaseException:
            remove_tree(root)
            raise
        process = PipedProcess(child, _Group(child, root), job.limits)
        self._alive.add(process.ended)
        process.ended.add_done_callback(self._alive.discard)
        return process

    async def probe(self) -> EngineReport:
        """See `SandboxEngine`. It works wherever Python does; what it does not hold is fixed, and is said."""
        began = time.perf_counter()
        try:
            job = SandboxJob(argv=("python", "-I", "-S", "-c", "print()"), limits=Limits(timeout_s=20.0))
            warned, self._warned = self._warned, True  # a probe runs no harness
            process = await self.launch(job)
            self._warned = warned
            await process.read(1)
        except SandboxUnavailable as error:
            return EngineReport(engine=self.name, available=False, reason=str(error))
        start_ms = round((time.perf_counter() - began) * 1000, 1)
        await process.wait()
        each = "not held: only each process by itself is limited"
        none = "not held: this engine contains nothing"
        return EngineReport(
            engine=self.name,
            available=True,
            limits={
                "network": none,
                "files of the host": none,
                "read-only system": none,
                "processes of the host": none,
                "own user": none,
                "privileges": none,
                "user namespaces": none,
                "system-call filter": none,
                "processes": none,
                "open files": "held",
                "output": "held",
                "disk": each,
                "memory": each,
                "processor time": none,
                "wall clock": "held",
                "whole process tree": "not held: a process that leaves its process group survives",
            },
            start_ms=start_ms,
            details={"python": str(base_python())},
        )

    async def sweep(self) -> Sequence[str]:
        """See `SandboxEngine`."""
        return await asyncio.to_thread(_sweep, self._root())

    def _root(self) -> Path:
        return self._directory or Path(tempfile.gettempdir())


def _lay_out(root: Path, job: SandboxJob) -> dict[str, str]:
    """Make the directory of a sandbox; returns path inside to real path."""
    (root / "work").mkdir(parents=True, mode=0o700)
    root.chmod(0o700)
    places = {"/work": str(root / "work")}
    for number, mount in enumerate(job.mounts):
        if mount.writable:
            places[mount.target] = str(mount.source.resolve(strict=True))
        else:
            copy = root / f"mount{number}"
            shutil.copytree(mount.source, copy, symlinks=True)
            places[mount.target] = str(copy)
    return places


def _start(job: SandboxJob, places: Mapping[str, str], root: Path) -> subprocess.Popen[bytes]:
    program = [str(base_python()) if job.argv[0] == "python" else _mapped(job.argv[0], places)]
    program += [_mapped(argument, places) for argument in job.argv[1:]]
    limits = process_limits(job.limits, helpers=None, memory_held=False)
    child = subprocess.Popen(
        [
            base_python(),
            "-I",
            "-S",
            "-c",
            _LIMIT,
            _as_text(limits),
            "LC_CTYPE" if "LC_CTYPE" in job.env else "",
            *program,
        ],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={name: ":".join(_mapped(part, places) for part in value.split(":")) for name, value in job.env.items()},
        cwd=_mapped(job.cwd, places),
        start_new_session=True,
    )
    (root / _GROUP_FILE).write_text(str(child.pid))
    return child


def _mapped(text: str, places: Mapping[str, str]) -> str:
    for target in sorted(places, key=len, reverse=True):
        if text == target or text.startswith(f"{target}/"):
            return places[target] + text[len(target) :]
    return text


def _as_text(limits: ProcessLimits) -> str:
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_DATA: limits.data_bytes,
    }
    return ",".join(f"{kind}:{value}" for kind, value in wanted.items() if value is not None)


def _end_group(group: int) -> None:
    """End what is left of a process group and wait a moment; orphans that nobody buries stay in it as zombies."""
    for _ in range(40):
        try:
            os.killpg(group, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # all gone; macOS says the latter of zombies
            return
        time.sleep(0.005)


def _sweep(root: Path) -> list[str]:
    removed = []
    for directory in root.glob("metaharness-*"):
        if not is_leftover(directory.name) or directory.is_symlink() or directory.stat().st_uid != os.geteuid():
            continue
        group = _group_of(directory)
        if group is not None:
            _end_group(group)
            removed.append(f"process group {group}")
        shutil.rmtree(directory)
        removed.append(f"directory {directory}")
    return removed


def _group_of(directory: Path) -> int | None:
    """Return the process group of a leftover directory if its leader still works there."""
    try:
        group = int((directory / _GROUP_FILE).read_text())
        works_there = Path(f"/proc/{group}/cwd").readlink().is_relative_to(directory)
    except (OSError, ValueError):
        return None
    return group if works_there else None
