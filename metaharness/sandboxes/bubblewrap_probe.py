"""What holds on this machine, found by really trying to break it in sandboxes: the report of `doctor`."""

from __future__ import annotations

import asyncio
import json
import platform
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metaharness.errors import SandboxUnavailable
from metaharness.job import EngineReport, Limits, SandboxExit, SandboxJob
from metaharness.sandboxes.ground import Ground
from metaharness.sandboxes.process import PipedProcess
from metaharness.sandboxes.uids import why_no_own_uid

if TYPE_CHECKING:
    from metaharness.sandboxes.bubblewrap import BubblewrapEngine

HELD = "held"
_MIB = 1 << 20
_LIMITS = Limits(memory_mb=256, cpus=1.0, timeout_s=20.0, processes=16, open_files=64, work_mb=4, output_kb=16)


async def probe(engine: BubblewrapEngine) -> EngineReport:
    """Start sandboxes that attack each limit; some are run at once, all together take about a second."""
    try:
        ground = await engine.ground()
        start_ms = await _start_ms(engine)
        general, memory, busy, linger = await asyncio.gather(
            _tried(engine, "general", _LIMITS),
            _tried(engine, "memory", Limits(memory_mb=48, timeout_s=20.0, work_mb=4)),
            _tried(engine, "busy", Limits(cpus=0.2, timeout_s=20.0, work_mb=4)),
            _tried(engine, "linger", Limits(timeout_s=1.0, work_mb=4)),
        )
        limits = {**_judge_general(general, ground), **_judge_resources(ground, memory, busy, linger)}
    except SandboxUnavailable as error:
        return EngineReport(engine=engine.name, available=False, reason=str(error))
    return EngineReport(
        engine=engine.name, available=True, limits=limits, start_ms=start_ms, details=await _details(ground)
    )


class Trial:
    """One attack: what it printed, how it ended, and whether something outlived it."""

    def __init__(self, printed: bytes, end: SandboxExit, *, outlived: bool) -> None:
        self.end = end
        self.outlived = outlived
        lines = printed.decode().splitlines()
        self.found: Mapping[str, Any] = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}


async def _tried(engine: BubblewrapEngine, trial: str, limits: Limits) -> Trial:
    code = Path(__file__).with_name("probe_inside.py").read_text()
    job = SandboxJob(argv=("python", "-I", "-S", "-c", code, trial), limits=limits, labels={"probe": trial})
    process = await engine.launch(job)
    printed = await _read_all(process)
    end = await process.wait()
    return Trial(printed, end, outlived=process.was_cut_off)


async def _read_all(process: PipedProcess) -> bytes:
    printed = b""
    while data := await process.read(65536):
        printed += data
    return printed


async def _start_ms(engine: BubblewrapEngine) -> float:
    began = time.perf_counter()
    process = await engine.launch(SandboxJob(argv=("python", "-I", "-S", "-c", "print()")))
    await process.read(1)
    took_ms = (time.perf_counter() - began) * 1000
    end = await process.wait()
    if end.code != 0:
        raise SandboxUnavailable(f"Python does not run in a sandbox: {end.stderr.strip()[-300:]}")
    return round(took_ms, 1)


def _judge_general(trial: Trial, ground: Ground) -> dict[str, str]:
    found = trial.found
    if not found:
        raise SandboxUnavailable(f"the probe failed in a sandbox: {trial.end.reason} {trial.end.stderr.strip()[-300:]}")

    def judge(good: bool, why: str) -> str:
        return HELD if good else f"not held: {why}"

    own_uid = why_no_own_uid() if ground.uids is None else ""
    no_filter = f"no system-call numbers for {platform.machine()}" if ground.seccomp is None else "the filter is not on"
    visible = {"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "tmp", "usr", "work"}
    python = ground.layout.python.target.split("/")[1:2]
    return {
        "network": judge(found["interfaces"] == ["lo"], f"interfaces {found['interfaces']}"),
        "files of the host": judge(set(found["root"]) <= visible | set(python), f"visible: {found['root']}"),
        "read-only system": judge(
            found["system_write"] == found["root_write"] == "EROFS",
            f"/usr {found['system_write']}, / {found['root_write']}",
        ),
        "processes of the host": judge(len(found["processes_visible"]) <= 3, "/proc shows others"),
        "own user": judge(not own_uid, own_uid),
        "privileges": judge(
            found["capabilities"] == 0 and found["no_new_privileges"] == "1",
            f"capabilities {found['capabilities']:x}, no_new_privs {found['no_new_privileges']}",
        ),
        "user namespaces": judge(found["user_namespace"] == "EPERM", f"unshare: {found['user_namespace']}"),
        "system-call filter": judge(found["seccomp"] == "2" and found["vsock"] == "EAFNOSUPPORT", no_filter),
        "processes": judge(
            found["threads"] < _LIMITS.processes,
            f"{ground.cgroups.missing.get('pids', '')}, and this kernel counts the processes of a user as a whole",
        ),
        "open files": judge(found["files"] <= _LIMITS.open_files, f"{found['files']} files"),
        "output": judge(
            len(trial.end.stderr) <= _LIMITS.output_kb * 1024 + 100 and "bytes dropped" in trial.end.stderr,
            f"{len(trial.end.stderr)} characters",
        ),
        "disk": judge(
            all(found[name] <= _LIMITS.work_mb * _MIB for name in ("work_bytes", "tmp_bytes", "shm_bytes")),
            f"{found['work_bytes']}, {found['tmp_bytes']}, {found['shm_bytes']} bytes",
        ),
    }


def _judge_resources(ground: Ground, memory: Trial, busy: Trial, linger: Trial) -> dict[str, str]:
    missing = ground.cgroups.missing
    limits: dict[str, str] = {}
    if "memory" in missing:
        ended = "ended a test" if memory.end.reason == "memory" else "did not end a test"
        limits["memory"] = (
            f"not held: {missing['memory']}; each process is limited by itself, and the whole tree is looked at ten "
            f"times a second, which {ended}; temporary files are not counted"
        )
    else:
        limits["memory"] = HELD if memory.end.reason == "memory" else f"not held: a test ended with {memory.end}"
    if "cpu" in missing:
        limits["processor time"] = f"not held: {missing['cpu']}"
    else:
        share = busy.found.get("share", 1.0)
        limits["processor time"] = HELD if share <= 0.4 else f"not held: a limit of 0.2 gave {share:.2f} processors"
    limits["wall clock"] = HELD if linger.end.reason == "timeout" else f"not held: a test ended with {linger.end}"
    limits["whole process tree"] = "not held: a daemon outlived its sandbox" if linger.outlived else HELD
    return limits


async def _details(ground: Ground) -> dict[str, Any]:
    return {
        "bwrap": f"{ground.bwrap} ({await asyncio.to_thread(_version, ground.bwrap)})",
        "python": f"{platform.python_version()} as {ground.layout.python.executable}",
        "cache": str(ground.copies.parent),
        "control groups": f"version {ground.cgroups.version}: {', '.join(sorted(ground.cgroups.parents)) or 'none'}",
        "missing": dict(ground.cgroups.missing),
    }


def _version(program: Path) -> str:
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=False, env={}).stdout.strip()
