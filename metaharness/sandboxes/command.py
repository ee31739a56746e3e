"""The command line of bwrap for a job: what is visible where, which limits the kernel keeps for each process."""

from __future__ import annotations

import re
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from metaharness.job import Limits, SandboxJob
from metaharness.sandboxes.staging import SANDBOX_UID, StagedPython

_SHARED_MEMORY_MB = 16
STAGED = "/.staged"  # inside: what writable mounts are filled from
_RESERVED = ("/proc", "/dev", "/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", STAGED)
_SYSTEM_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# The first process inside. It waits for one line on standard input, and ends if there will be none: its owner is dead.
# It fills writable mounts (pairs of source and target, ended by "--"), runs the program, waits for it, and buries what
# the program orphans. It says nothing on standard error about how the program ended.
_INIT = """read -r metaharness_go || exit 125
unset metaharness_go PWD OLDPWD SHLVL; exec 3>&2 2>/dev/null
while [ "$1" != -- ]; do /bin/cp -a "$1/." "$2" 2>&3 || exit 125; shift 2; done
shift; (exec "$@" 2>&3 3>&-); exit $?"""
_UNSET = ("PWD", "OLDPWD", "SHLVL")  # bwrap or shells set them


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What is the same for all sandboxes of an engine.

    Attributes:
        python: The interpreter.
        support: Directory with `etc` and `empty`.
        hidden: Directories below /usr to show empty.
    """

    python: StagedPython
    support: Path
    hidden: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptors:
    """Inherited descriptors: the filter (or None), and where bwrap reports."""

    seccomp: int | None
    status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLimits:
    """Limits that the kernel keeps for each process, in the units of setrlimit; None leaves one as it is."""

    open_files: int
    file_bytes: int
    processes: int | None
    data_bytes: int | None


def check_job(job: SandboxJob) -> None:
    """Refuse what no sandbox can be made of.

    Raises:
        ValueError: A mistake of the caller: the message says which.
    """
    if not job.argv:
        raise ValueError("a sandbox needs a program: argv is empty")
    if any("\0" in text for text in (*job.argv, *job.env, *job.env.values(), job.cwd)):
        raise ValueError("argv, env and cwd cannot contain NUL")
    for name in job.env:
        if not _NAME.match(name):
            raise ValueError(f"{name!r} is no name of an environment variable: letters, digits and _ only")
    for mount in job.mounts:
        target = PurePosixPath(mount.target)
        plain = mount.target.startswith("/") and not mount.target.startswith("//") and ".." not in target.parts
        plain = plain and str(target) == mount.target
        reserved = any(mount.target == place or mount.target.startswith(f"{place}/") for place in _RESERVED)
        if not plain or reserved or mount.target in ("/", "/work", "/tmp"):  # noqa: S108 - a path inside
            raise ValueError(f"mount target {mount.target!r} is not a free absolute path")


def process_limits(limits: Limits, *, helpers: int | None, memory_held: bool) -> ProcessLimits:
    """Return the limits of one process.

    Args:
        limits: The job's.
        helpers: How many processes of ours the kernel counts together with the sandbox's; None where it counts those of
            other sandboxes as well, so that no such limit can be set.
        memory_held: Whether a control group limits memory; otherwise every process is limited by itself.
    """
    return ProcessLimits(
        open_files=_within_hard(limits.open_files, resource.RLIMIT_NOFILE),
        # Above the size of every file system inside, so that a full one says so; it bounds what lies in none.
        file_bytes=_within_hard((limits.work_mb + 1) << 20, resource.RLIMIT_FSIZE),
        processes=None if helpers is None else _within_hard(limits.processes + helpers, resource.RLIMIT_NPROC),
        data_bytes=None if memory_held else _within_hard(limits.memory_mb << 20, resource.RLIMIT_DATA),
    )


def _within_hard(wanted: int, kind: int) -> int:
    hard = resource.getrlimit(kind)[1]
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def bwrap_options(job: SandboxJob, layout: Layout, descriptors: Descriptors, sources: Sequence[Path]) -> list[str]:
    """Return the options of bwrap, to be handed over by `--args`: a command line is readable by every local user.

    Args:
        job: The job, checked.
        layout: What is the same for all.
        descriptors: What bwrap inherits.
        sources: For each mount of the job, the directory of the host that the sandbox's user can read.
    """
    options = [
        *("--unshare-all", "--unshare-user", "--disable-userns"),
        *("--uid", str(SANDBOX_UID), "--gid", str(SANDBOX_UID), "--hostname", "sandbox"),
        # bwrap's own init process would run without the filter, within reach of all others through /proc/1/mem; and the
        # bwrap outside does not wait for its end.
        *("--die-with-parent", "--new-session", "--as-pid-1"),
        *_system(layout),
        *("--proc", "/proc"),
        *("--dev", "/dev", *_tmpfs("/dev/shm", min(_SHARED_MEMORY_MB, job.limits.work_mb)), "--remount-ro", "/dev"),  # noqa: S108
        *_tmpfs("/tmp", job.limits.work_mb),  # noqa: S108 - a path inside
        *_tmpfs("/work", job.limits.work_mb),
    ]
    for number, (mount, source) in enumerate(zip(job.mounts, sources, strict=True)):
        if mount.writable:
            options += _tmpfs(mount.target, job.limits.work_mb)
            options += ["--ro-bind", str(source), f"{STAGED}/{number}"]
        else:
            options += ["--ro-bind", str(source), mount.target]
    options += ["--remount-ro", "/", "--chdir", job.cwd]
    options += ["--json-status-fd", str(descriptors.status)]
    if descriptors.seccomp is not None:
        options += ["--seccomp", str(descriptors.seccomp)]
    for name, value in job.env.items():
        options += ["--setenv", name, value]
    return options


def inner_command(job: SandboxJob, layout: Layout) -> list[str]:
    """Return what follows the name of the init process: what it fills, and the program in its exact environment."""
    fill = [(f"{STAGED}/{number}", mount.target) for number, mount in enumerate(job.mounts) if mount.writable]
    program = [layout.python.executable if job.argv[0] == "python" else job.argv[0], *job.argv[1:]]
    restored = [f"{name}={job.env[name]}" for name in _UNSET if name in job.env]
    if restored:
        program = ["/usr/bin/env", *restored, *program]
    return [*(part for pair in fill for part in pair), "--", *program]


def init_command(label: str, inner: Sequence[str]) -> list[str]:
    """Return what bwrap runs: the init process, which has the sandbox's label as its name."""
    return ["/bin/sh", "-c", _INIT, label, *inner]


def limit_command(limits: ProcessLimits) -> list[str]:
    """Return the command that takes on limits and becomes what follows.

    Where a sandbox has its own user it comes before bwrap. Otherwise it comes inside: the kernel counts the processes
    of a user in each user namespace by itself, and outside the user's other processes would count.
    """
    wanted = {
        "core": 0,
        "nofile": limits.open_files,
        "fsize": limits.file_bytes,
        "nproc": limits.processes,
        "data": limits.data_bytes,
    }
    options = [f"--{name}={value}:{value}" for name, value in wanted.items() if value is not None]
    return ["/usr/bin/prlimit", *options, "--"]


def _tmpfs(target: str, size_mb: int) -> list[str]:
    return ["--size", str(size_mb << 20), "--perms", "1777", "--tmpfs", target]


def _system(layout: Layout) -> list[str]:
    """Return what is visible of the host: /usr, the links and directories beside it, and the loader's cache."""
    arguments = ["--ro-bind", "/usr", "/usr"]
    holds_python = [place for place in layout.hidden if layout.python.target.startswith(f"{place}/")]
    for directory in layout.hidden:
        if directory in holds_python:  # the mount point of the interpreter must be made in it
            arguments += ["--tmpfs", directory]
        else:
            arguments += ["--ro-bind", str(layout.support / "empty"), directory]
    for name in _SYSTEM_LINKS:
        path = Path("/") / name
        if path.is_symlink():
            arguments += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    arguments += ["--ro-bind", str(layout.support / "etc"), "/etc"]
    for file in ("/etc/ld.so.cache", "/etc/alternatives"):
        if Path(file).exists():
            arguments += ["--ro-bind", file, file]
    if layout.python.source is not None:
        arguments += ["--ro-bind", str(layout.python.source), layout.python.target]
    for directory in holds_python:
        arguments += ["--remount-ro", directory]
    return arguments
