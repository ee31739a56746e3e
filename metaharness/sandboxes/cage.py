"""One bubblewrap sandbox from start to end: everything it holds on the host, and giving all of it back.

The order of the steps is `launching.launch`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from metaharness.errors import SandboxUnavailable
from metaharness.job import Limits, SandboxJob
from metaharness.sandboxes.cache import remove_tree
from metaharness.sandboxes.cgroups import Cgroup
from metaharness.sandboxes.command import (
    STAGED,
    Descriptors,
    bwrap_options,
    init_command,
    limit_command,
    process_limits,
)
from metaharness.sandboxes.files import readable_by_others, return_tree, share_tree
from metaharness.sandboxes.ground import Ground, as_user
from metaharness.sandboxes.labels import end_labelled
from metaharness.sandboxes.process import Ending
from metaharness.sandboxes.uids import UidLease

_LAST_SIGNAL = 64
_PIPE_BYTES = 65536


@dataclass(slots=True)
class Cage:
    """The `Containment` of one sandbox.

    Attributes:
        ground: What all share.
        limits: Of the job that it is for.
        inner: What it will run, see `command.inner_command`.
        label: Its name everywhere.
        lease: Its user, if it has one of its own.
        group: Its control group, if there can be one.
        child: bwrap.
        init_pid: bwrap's init process, first process of the pid namespace, as the host numbers it.
    """

    ground: Ground
    limits: Limits
    inner: tuple[str, ...]
    label: str = ""
    lease: UidLease | None = None
    group: Cgroup | None = None
    child: subprocess.Popen[bytes] | None = None
    init_pid: int = 0
    _descriptors: Descriptors | None = None
    _init: int = -1
    _options: int = -1
    _status: int = -1
    _report: bytes = b""
    _closed: bool = False
    _writable: list[tuple[int, Path]] = field(default_factory=list)

    def acquire(self) -> None:
        """Lease a user and make a control group.

        Raises:
            SandboxUnavailable: No user is free, or no group can be made.
        """
        self.label = next(self.ground.labels)
        if self.ground.uids is not None:
            self.lease = self.ground.uids.lease()
        if self.ground.cgroups.parents:
            self.group = self.ground.cgroups.create(self.label, self.limits)

    def spawn(self) -> None:
        """Start bwrap as the sandbox's user; it waits for its options.

        Must run in the thread of the event loop: `--die-with-parent` means the thread that started it.

        Raises:
            SandboxUnavailable: It cannot be executed.
        """
        options, self._options = os.pipe2(os.O_CLOEXEC)
        self._status, status = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        seccomp = None
        if self.ground.seccomp is not None:
            seccomp = os.memfd_create("seccomp")
            os.write(seccomp, self.ground.seccomp)
            os.lseek(seccomp, 0, os.SEEK_SET)
        self._descriptors = Descriptors(seccomp=seccomp, status=status)
        inherited = [descriptor for descriptor in (options, status, seccomp) if descriptor is not None]
        limits = process_limits(
            self.limits,
            # The init process; with a user of its own also bwrap outside.
            helpers=(2 if self.lease is not None else 1) if self.ground.counts_per_sandbox else None,
            memory_held="memory" in self.ground.cgroups.parents,
        )
        # The label is the name of a variable to unset: an argument that does nothing but can be found.
        bwrap = [str(self.ground.bwrap), "--unsetenv", self.label, "--args", str(options), "--"]
        limited = limit_command(limits)
        init = init_command(self.label, self.inner)
        if self.lease is not None:
            command = [*as_user(self.lease.uid), *limited, *bwrap, *init]
        else:
            command = [*bwrap, *limited, *init]
        try:
            self.child = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=inherited,
                env={},  # its init process is part of the sandbox: it must not know anything
                cwd="/",
                umask=0o022,
                start_new_session=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise SandboxUnavailable(f"{command[0]} cannot be started: {error}") from error
        finally:
            for descriptor in inherited:
                os.close(descriptor)

    def enclose_child(self) -> None:
        """Put bwrap into the control group; takes milliseconds, see `Cgroup.add`."""
        if self.group is not None and self.child is not None:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and has said why
                self.group.add(self.child.pid)

    def share_mounts(self, job: SandboxJob) -> list[Path]:
        """Make all mounts readable for the sandbox's user; returns their sources in the job's order.

        Raises:
            SandboxUnavailable: A source is not there or cannot be copied.
        """
        sources = []
        for number, mount in enumerate(job.mounts):
            try:
                source = mount.source.resolve(strict=True)
                if not source.is_dir():
                    raise SandboxUnavailable(f"{mount.source} is no directory: only directories can be mounted")
                if self.lease is not None and not readable_by_others(source):
                    copy = self.ground.copies / self.label / str(number)
                    copy.parent.mkdir(mode=0o755, exist_ok=True)
                    copy.parent.chmod(0o755)
                    share_tree(source, copy)
                    source = copy
            except OSError as error:
                raise SandboxUnavailable(f"{mount.source} cannot be mounted: {error}") from error
            sources.append(source)
        return sources

    def send_options(self, job: SandboxJob, sources: Sequence[Path]) -> None:
        """Tell bwrap what to set up; it does so, and its init process waits for a line on standard input.

        Raises:
            OSError: The options are too long.
        """
        assert self._descriptors is not None
        options = bwrap_options(job, self.ground.layout, self._descriptors, sources)
        content = b"".join(os.fsencode(option) + b"\0" for option in options)
        if len(content) > _PIPE_BYTES:
            fcntl.fcntl(self._options, fcntl.F_SETPIPE_SZ, len(content))
        with contextlib.suppress(BrokenPipeError):  # it has ended, and has said why: `find_init` and `finish` tell
            os.write(self._options, content)
        os.close(self._options)
        self._options = -1

    async def find_init(self) -> None:
        """Wait for bwrap's report of its init process.

        Raises:
            ProcessLookupError: It ended before.
        """
        self._check_open()
        loop = asyncio.get_running_loop()
        news = asyncio.Event()
        status = os.dup(self._status)  # of our own, because `close` may come while we wait
        loop.add_reader(status, news.set)
        try:
            while b"\n" not in self._report:
                await news.wait()
                news.clear()
                if not self._read_report(status):
                    raise ProcessLookupError("bwrap ended before it had made a sandbox")
        finally:
            loop.remove_reader(status)
            os.close(status)
        self.init_pid = json.loads(self._report.split(b"\n", 1)[0])["child-pid"]

    def hold_init(self) -> None:
        """Take hold of the init process.

        Raises:
            ProcessLookupError: It has ended.
        """
        assert self.child is not None
        self._check_open()
        self._init = os.pidfd_open(self.init_pid)
        if _parent_of(self.init_pid) != self.child.pid:
            os.close(self._init)  # its number was reused: the descriptor is of a stranger
            self._init = -1
            raise ProcessLookupError("the init process has ended")

    def enclose_init(self) -> None:
        """Put the init process into the control group, which it is not in if it is older than bwrap's move there.

        Raises:
            ProcessLookupError: It has ended.
        """
        if self.group is not None:
            try:
                self.group.add(self.init_pid)
            except FileNotFoundError as error:
                raise ProcessLookupError("the sandbox has ended, and its control group is gone") from error

    async def open_writable(self, job: SandboxJob) -> None:
        """Open the writable mounts of the sandbox from outside, once they are all there, before the program starts.

        Raises:
            ProcessLookupError: It has ended.
        """
        root = Path(f"/proc/{self.init_pid}/root")
        for mount in job.mounts:
            if not mount.writable:
                continue
            while not _is_set_up(root):  # noqa: ASYNC110 - another process makes it true
                await asyncio.sleep(0.001)
            self._check_open()
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            self._writable.append((os.open(f"{root}{mount.target}", flags), mount.source))

    def kill(self) -> None:
        """See `Containment`."""
        try:
            if self._init >= 0:
                signal.pidfd_send_signal(self._init, signal.SIGKILL)
            elif self.child is not None:
                self.child.kill()
        except ProcessLookupError:  # it ended meanwhile
            return

    def finish(self, returncode: int, *, killed: bool) -> Ending:
        """See `Containment`."""
        self._read_report(self._status)
        codes = [json.loads(line).get("exit-code") for line in self._report.splitlines()]
        code = codes[-1] if codes else None
        memory = self.group is not None and self.group.out_of_memory_kills() > 0
        peak = self.group.peak_memory_mb() if self.group is not None else None
        notes = []
        try:
            for directory, source in tuple(self._writable):
                notes.append(return_tree(directory, source, max_bytes=self.limits.work_mb << 20))
        finally:
            self._remove()
        return Ending(
            # bwrap reports the end by signal N as 128 + N, as shells do
            code=returncode if code is None else 128 - code if 128 < code <= 128 + _LAST_SIGNAL else code,
            lost=code is None and not killed and not memory,
            memory=memory,
            peak_memory_mb=peak,
            note="\n".join(filter(None, notes)),
        )

    def close(self) -> None:
        """See `Containment`. The user is free for others from here on."""
        for descriptor in (self._init, self._options, self._status, *(opened for opened, _ in self._writable)):
            if descriptor >= 0:
                os.close(descriptor)
        self._init = self._options = self._status = -1
        self._writable.clear()
        self._closed = True
        if self.lease is not None:
            self.lease.release()

    def abandon(self) -> None:
        """End a sandbox that nobody has taken over yet, and give back what it holds."""
        if self.child is not None:
            self.child.kill()
            self.child.wait()
            for stream in (self.child.stdin, self.child.stdout, self.child.stderr):
                if stream is not None:
                    stream.close()
        try:
            self._remove()
        finally:
            self.close()

    def _remove(self) -> None:
        """Remove what it has on the host. If bwrap ended before its init process was held, that may be left."""
        if self.child is not None and self._options < 0 and self._init < 0:  # it had its options: so it may have one
            end_labelled(lambda label: label == self.label)
        if self.label:
            remove_tree(self.ground.copies / self.label)
        if self.group is not None:
            self.group.remove()

    def _check_open(self) -> None:
        if self._closed:
            raise ProcessLookupError("the sandbox has ended")

    def _read_report(self, status: int) -> bool:
        """Read what bwrap has reported so far; False when it will report no more."""
        while True:
            try:
                data = os.read(status, 65536)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._report += data


def _is_set_up(root: Path) -> bool:
    """Return whether the root of bwrap's init process is the finished one; first it is the host's, then a scaffold."""
    try:
        return root.stat().st_dev != Path("/").stat().st_dev and Path(f"{root}{STAGED}").is_dir()
    except PermissionError:  # while it changes its user namespace
        return False
    except FileNotFoundError as error:
        raise ProcessLookupError("the init process has ended") from error


def _parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except FileNotFoundError as error:
        raise ProcessLookupError(pid) from error
