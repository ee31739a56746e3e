"""What a sandbox is asked to run and what it reports, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one sandbox; all are enforced or reported as not held by the engine's probe.

    Attributes:
        memory_mb: Memory and swap together, MiB; temporary files count as memory.
        cpus: CPU share, for example 1.0.
        timeout_s: Wall-clock seconds from start to kill.
        processes: Most processes and threads.
        open_files: Most open files a process.
        work_mb: Size of the work directory and of /tmp, MiB each.
        output_kb: What is kept of prints and errors, KiB; the rest is dropped and counted.
    """

    memory_mb: int = 512
    cpus: float = 1.0
    timeout_s: float = 120.0
    processes: int = 64
    open_files: int = 256
    work_mb: int = 64
    output_kb: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A host directory shown inside a sandbox, read-only unless `writable`."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxJob:
    """One process to run in a fresh sandbox.

    Attributes:
        argv: Program and arguments. A first element `python` means the engine's Python interpreter.
        mounts: Host directories to show; nothing else of the host's files but the system's programs is visible.
        env: The whole environment of the process.
        limits: See `Limits`.
        labels: For sweeping: campaign, rollout and owner.
        cwd: Working directory inside; `/work` is the writable, size-limited one.
    """

    argv: tuple[str, ...]
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    labels: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/work"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxExit:
    """How a sandbox ended.

    Attributes:
        code: Exit code, negative for a signal; None when it was killed by the engine.
        reason: `exited`, `timeout`, `killed` (by the caller) or `memory`.
        stderr: What was written to standard error, capped, undecodable bytes replaced.
        peak_memory_mb: Most memory used, where the engine knows it.
    """

    code: int | None
    reason: str
    stderr: str = ""
    peak_memory_mb: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReport:
    """What an engine can do on this machine, found by trying it.

    Attributes:
        engine: Name of the engine.
        available: Whether a sandbox could be started.
        reason: Why not, and what to do, when it is not available.
        limits: Limit name to `held` or to a sentence which says why it is not held.
        start_ms: Milliseconds from launch to the first output of a trivial process.
        details: Versions, paths.
    """

    engine: str
    available: bool
    reason: str = ""
    limits: Mapping[str, str] = field(default_factory=dict)
    start_ms: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
