"""What every sandbox engine does, whatever it contains."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from pathlib import Path

import pytest

from metaharness.errors import SandboxUnavailable
from metaharness.job import Limits, Mount, SandboxJob
from metaharness.protocols import SandboxEngine
from tests.sandboxes.helpers import QUICK, collect, private_directory, python_job, read_line, run, run_python

ECHO = """
import sys
for line in sys.stdin.buffer:
    sys.stdout.buffer.write(b"echo " + line)
    sys.stdout.buffer.flush()
    if line == b"end\\n":
        break
"""


async def test_lines_go_both_ways(engine: SandboxEngine) -> None:
    process = await engine.launch(python_job(ECHO))
    for line in (b"one\n", "zwei ä\n".encode(), b"\x00\xff\n"):
        await process.write(line)
        assert await read_line(process) == b"echo " + line
    await process.write(b"end\n")
    assert (await collect(process)).end.reason == "exited"


async def test_big_binary_payloads_go_both_ways_at_once(engine: SandboxEngine) -> None:
    code = """
import sys
left = int(sys.argv[1])
while left:
    data = sys.stdin.buffer.read1(min(left, 1 << 16))
    sys.stdout.buffer.write(data[::-1])
    sys.stdout.buffer.flush()
    left -= len(data)
"""
    payload = os.urandom(1 << 20) * 6
    process = await engine.launch(python_job(code, str(len(payload))))
    writing = asyncio.create_task(process.write(payload))
    ran = await collect(process)
    await writing
    assert ran.end.code == 0
    assert len(ran.out) == len(payload)
    assert sorted(ran.out[:100_000]) != sorted(b"\x00" * 100_000)
    assert sum(ran.out) == sum(payload)


async def test_read_returns_at_most_what_is_asked_for_and_nothing_at_the_end(engine: SandboxEngine) -> None:
    process = await engine.launch(python_job("print('x' * 10, end='')"))
    pieces = []
    while piece := await process.read(3):
        pieces.append(piece)
    assert b"".join(pieces) == b"x" * 10
    assert all(1 <= len(piece) <= 3 for piece in pieces)
    assert await process.read(3) == b""
    await process.wait()


async def test_output_can_be_read_after_the_end(engine: SandboxEngine) -> None:
    process = await engine.launch(python_job("print('x' * 50_000, end='')"))
    assert (await process.wait()).code == 0
    assert (await collect(process)).out == b"x" * 50_000


async def test_output_that_nobody_reads_is_bounded_and_can_be_killed(engine: SandboxEngine) -> None:
    process = await engine.launch(python_job("import os\nwhile True: os.write(1, b'x' * 65536)"))
    await asyncio.sleep(0.5)
    await process.kill()
    ran = await collect(process)
    assert ran.end.reason == "killed"
    assert 0 < len(ran.out) < 3 << 20


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("", 0),
        ("raise SystemExit(3)", 3),
        ("import os; os._exit(100)", 100),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -15),
        ("import ctypes; ctypes.string_at(0)", -11),
    ],
)
async def test_exit_codes_and_signals(engine: SandboxEngine, code: str, expected: int) -> None:
    ran = await run_python(engine, code)
    assert (ran.end.code, ran.end.reason) == (expected, "exited")


async def test_standard_error_is_kept_apart_and_decoded(engine: SandboxEngine) -> None:
    ran = await run_python(engine, "import os; os.write(2, b'bad \\xff \\xc3\\xa4'); os.write(1, b'out')")
    assert ran.end.stderr == "bad � ä"
    assert ran.out == b"out"


async def test_standard_error_is_empty_for_a_quiet_program(engine: SandboxEngine) -> None:
    assert (await run_python(engine, "import os; os.kill(os.getpid(), 9)")).end.stderr == ""


async def test_standard_error_is_capped_while_the_writer_goes_on(engine: SandboxEngine) -> None:
    code = "import os\nfor _ in range(512): os.write(2, b'y' * 16384)\nprint('done')"
    ran = await run_python(engine, code, limits=Limits(output_kb=8, timeout_s=60.0, work_mb=16))
    assert ran.text == "done\n"
    kept, _, last = ran.end.stderr.rpartition("\n")
    assert kept == "y" * 8192
    assert last == f"… {512 * 16384 - 8192} bytes dropped"


async def test_the_time_limit_ends_it(engine: SandboxEngine) -> None:
    began = time.monotonic()
    ran = await run_python(
        engine,
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)",
        limits=Limits(timeout_s=0.7, work_mb=16),
    )
    assert (ran.end.reason, ran.end.code) == ("timeout", None)
    assert 0.6 < time.monotonic() - began < 20


async def test_kill_ends_it_and_is_harmless_again(engine: SandboxEngine) -> None:
    process = await engine.launch(python_job("print('up', flush=True)\nwhile True: pass"))
    assert await read_line(process) == b"up\n"
    await process.kill()
    await process.kill()
    end = await process.wait()
    assert (end.reason, end.code) == ("killed", None)


async def test_kill_after_the_end_changes_nothing(engine: SandboxEngine) -> None:
    process = await engine.launch(python_job("raise SystemExit(4)"))
    first = await process.wait()
    await process.kill()
    assert await process.wait() == first
    assert (first.reason, first.code) == ("exited", 4)


async def test_several_can_wait(engine: SandboxEngine) -> None:
    process = await engine.launch(python_job("print(1)"))
    ends = await asyncio.gather(*(process.wait() for _ in range(3)))
    assert ends[0] == ends[1] == ends[2]


async def test_a_cancelled_wait_does_not_end_it(engine: SandboxEngine) -> None:
    process = await engine.launch(python_job("input(); print('still here')"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(process.wait(), 0.1)
    await process.write(b"\n")
    assert (await collect(process)).text == "still here\n"


async def test_children_die_with_it(engine: SandboxEngine) -> None:
    code = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("ready", flush=True)
if sys.argv[1] == "stay":
    child.wait()
"""
    for mode in ("leave", "stay"):
        process = await engine.launch(python_job(code, mode, env={"LD_LIBRARY_PATH": ""}))
        assert await read_line(process) == b"ready\n"
        if mode == "stay":
            await process.kill()
        began = time.monotonic()
        await process.wait()
        assert await process.read(1) == b""  # a living child would hold it open
        assert time.monotonic() - began < 20


async def test_the_working_directory_is_work_and_starts_empty(engine: SandboxEngine) -> None:
    code = "import os; print(len(os.listdir('.'))); open('mine', 'w').write('x' * 1000); print(os.getcwd())"
    for _ in range(2):
        ran = await run_python(engine, code)
        assert ran.end.code == 0, ran.end.stderr
        assert ran.text.splitlines()[0] == "0"
        assert ran.text.rstrip().endswith("/work")


async def test_another_working_directory(engine: SandboxEngine, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file").write_text("found")
    mounts = (Mount(source=tmp_path, target="/data"),)
    ran = await run_python(engine, "print(open('file').read())", mounts=mounts, cwd="/data/sub")
    assert ran.text == "found\n"


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"A": "1", "EMPTY": "", "LONG": "x" * 20_000, "UMLAUT": "ä b=c\nd"},
        {"PWD": "/elsewhere", "SHLVL": "7", "HOME": "/work"},
    ],
)
async def test_the_environment_is_exactly_as_given(engine: SandboxEngine, env: dict[str, str]) -> None:
    ran = await run(engine, SandboxJob(argv=("/usr/bin/env", "-0"), env=env, limits=QUICK))
    found = dict(entry.split("=", 1) for entry in ran.text.split("\0") if entry)
    if engine.name == "unsafe-process" and "HOME" in env:
        env = {**env, "HOME": found["HOME"]}  # a path inside is a path of the host there
    assert found == env


async def test_a_mount_can_be_read_but_its_source_cannot_be_changed(engine: SandboxEngine, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("value = 42")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "data").write_bytes(b"\x00\x01")
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import module
print(module.value, list(open(sys.argv[1] + "/sub/data", "rb").read()))
for name in ("/module.py", "/new"):
    try:
        open(sys.argv[1] + name, "w").write("changed")
    except OSError:
        pass
"""
    ran = await run_python(engine, code, "/harness", mounts=(Mount(source=tmp_path, target="/harness"),))
    assert ran.text == "42 [0, 1]\n", ran.end.stderr
    assert (tmp_path / "module.py").read_text() == "value = 42"
    assert sorted(os.listdir(tmp_path)) == ["module.py", "sub"]  # noqa: PTH208


async def test_a_private_source_can_be_mounted(engine: SandboxEngine) -> None:
    with private_directory() as source:
        (source / "secret.txt").write_text("for the sandbox only")
        (source / "secret.txt").chmod(0o600)
        mounts = (Mount(source=source, target="/data"),)
        ran = await run_python(engine, "import sys; print(open(sys.argv[1]).read())", "/data/secret.txt", mounts=mounts)
    assert ran.text == "for the sandbox only\n", ran.end.stderr


async def test_what_is_written_to_a_writable_mount_comes_back(engine: SandboxEngine) -> None:
    code = """
import os, sys
os.chdir(sys.argv[1])
print(sorted(os.listdir(".")), open("kept").read())
os.remove("gone")
os.makedirs("made/deep")
open("made/deep/file", "w").write("new")
open("kept", "a").write(" and more")
"""
    with private_directory() as source:
        (source / "kept").write_text("old")
        (source / "gone").write_text("")
        mounts = (Mount(source=source, target="/data", writable=True),)
        ran = await run_python(engine, code, "/data", mounts=mounts)
        assert ran.text == "['gone', 'kept'] old\n", ran.end.stderr
        assert (source / "kept").read_text() == "old and more"
        assert (source / "made" / "deep" / "file").read_text() == "new"
        assert sorted(os.listdir(source)) == ["kept", "made"]  # noqa: PTH208


async def test_several_mounts_at_once(engine: SandboxEngine, tmp_path: Path) -> None:
    names = ("a", "b", "a/c")
    for name in ("a", "b", "c"):
        (tmp_path / name / "c").mkdir(parents=True)
        (tmp_path / name / "name").write_text(name)
    if engine.name == "unsafe-process":
        names = ("a", "b", "c")  # mounts lie beside each other there
    mounts = tuple(
        Mount(source=tmp_path / source, target=f"/m/{target}")
        for source, target in zip(("a", "b", "c"), names, strict=True)
    )
    code = "import sys; print([open(path + '/name').read() for path in sys.argv[1:]])"
    ran = await run_python(engine, code, *(f"/m/{name}" for name in names), mounts=mounts)
    assert ran.text == "['a', 'b', 'c']\n", ran.end.stderr


async def test_python_is_the_running_one_without_site_packages(engine: SandboxEngine) -> None:
    code = """
import importlib.util, platform, sys
import asyncio, ctypes, decimal, email, hashlib, json, sqlite3, ssl, unittest.mock, zoneinfo
print(platform.python_version())
print([name for name in ("pytest", "pip", "metaharness", "pydantic") if importlib.util.find_spec(name)])
"""
    ran = await run_python(engine, code)
    assert ran.text == f"{platform.python_version()}\n[]\n", ran.end.stderr


async def test_python_can_start_itself(engine: SandboxEngine) -> None:
    code = "import subprocess, sys; print(subprocess.check_output([sys.executable, '-c', 'print(1 + 1)']))"
    ran = await run_python(engine, code)
    assert ran.text == "b'2\\n'\n", ran.end.stderr


async def test_other_programs_and_odd_arguments(engine: SandboxEngine) -> None:
    arguments = ("", "a b", "'\"$x`", "-n", "--", "line\nbreak", "ä", "\udcff")
    ran = await run(engine, SandboxJob(argv=("/usr/bin/printf", "<%s>", *arguments), limits=QUICK))
    assert ran.out == "".join(f"<{argument}>" for argument in arguments).encode("utf-8", "surrogateescape")


async def test_a_program_that_does_not_exist(engine: SandboxEngine) -> None:
    ran = await run(engine, SandboxJob(argv=("/no/such/program",), limits=QUICK))
    assert ran.end.reason == "exited"
    assert ran.end.code not in (0, None)
    assert "/no/such/program" in ran.end.stderr


@pytest.mark.parametrize(
    ("job", "what"),
    [
        (SandboxJob(argv=()), "argv is empty"),
        (SandboxJob(argv=("a\0b",)), "NUL"),
        (SandboxJob(argv=("python",), env={"A=B": "c"}), "A=B"),
        (SandboxJob(argv=("python",), env={"": "c"}), "''"),
        *(
            (SandboxJob(argv=("python",), mounts=(Mount(source=Path("/usr"), target=target),)), repr(target))
            for target in ("/", "relative", "/a/../b", "/usr/x", "/proc", "/etc/passwd", "/work", "/a/", "//a")
        ),
    ],
)
async def test_a_job_that_is_none_is_refused(engine: SandboxEngine, job: SandboxJob, what: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        await engine.launch(job)
    assert what in str(caught.value)


async def test_a_missing_source_is_named(engine: SandboxEngine, tmp_path: Path) -> None:
    mounts = (Mount(source=tmp_path / "absent", target="/data"),)
    with pytest.raises(SandboxUnavailable, match="absent"):
        await engine.launch(python_job("print(1)", mounts=mounts))


async def test_writing_after_the_end_is_a_connection_error(engine: SandboxEngine) -> None:
    process = await engine.launch(python_job("print(1)"))
    await process.wait()
    with pytest.raises(ConnectionError):
        await process.write(b"x")


async def test_a_blocked_write_ends_with_the_sandbox(engine: SandboxEngine) -> None:
    process = await engine.launch(python_job("import time; time.sleep(1)"))
    with pytest.raises(ConnectionError):
        await process.write(b"x" * (4 << 20))
    assert (await process.wait()).reason == "exited"


async def test_open_files_are_limited(engine: SandboxEngine) -> None:
    code = """
import os
count = 0
try:
    while True:
        os.open("/dev/null", os.O_RDONLY)
        count += 1
except OSError as error:
    print(count, error.strerror)
"""
    ran = await run_python(engine, code, limits=Limits(open_files=40, work_mb=16, timeout_s=60.0))
    count, _, reason = ran.text.strip().partition(" ")
    assert 30 <= int(count) <= 37
    assert reason == "Too many open files"


async def test_no_core_dumps(engine: SandboxEngine) -> None:
    ran = await run_python(engine, "import resource; print(resource.getrlimit(resource.RLIMIT_CORE))")
    assert ran.text == "(0, 0)\n"


async def test_only_three_descriptors_are_inherited(engine: SandboxEngine) -> None:
    code = "import os; print([fd for fd in range(3, 256) if os.path.exists(f'/proc/self/fd/{fd}')])"
    ran = await run_python(engine, code)
    assert ran.text == "[]\n"


async def test_many_at_once(engine: SandboxEngine) -> None:
    async def one(number: int) -> str:
        process = await engine.launch(python_job("print(input())"))
        await process.write(b"%d\n" % number)
        return (await collect(process)).text

    assert await asyncio.gather(*map(one, range(12))) == [f"{number}\n" for number in range(12)]


async def test_a_cancelled_launch_leaves_nothing(engine: SandboxEngine, tmp_path: Path) -> None:
    for delay_ms in (0, 1, 3, 6, 10, 20):
        launching = asyncio.create_task(
            engine.launch(python_job("input()", mounts=(Mount(source=tmp_path, target="/data"),)))
        )
        await asyncio.sleep(delay_ms / 1000)
        if not launching.cancel():
            await (await launching).kill()
        elif (await asyncio.wait([launching]))[0] and not launching.cancelled():
            await launching.result().kill()
    # the fixture looks for what is left


async def test_a_long_environment(engine: SandboxEngine) -> None:
    env = {f"V{number}": "x" * 1000 for number in range(300)}
    ran = await run_python(
        engine, "import os; print(sum(len(v) for k, v in os.environ.items() if k[0] == 'V'))", env=env
    )
    assert ran.text == "300000\n"


async def test_the_probe_says_what_holds(engine: SandboxEngine) -> None:
    report = await engine.probe()
    assert report.available
    assert report.engine == engine.name
    assert report.start_ms is not None
    assert 0 < report.start_ms < 20_000
    assert {"network", "memory", "processes", "wall clock", "disk", "open files", "output"} <= set(report.limits)
    assert all(held == "held" or held.startswith("not held: ") for held in report.limits.values())


async def test_a_sweep_leaves_running_sandboxes_alone(engine: SandboxEngine) -> None:
    process = await engine.launch(python_job("print(input())"))
    assert await engine.sweep() == []
    await process.write(b"still here\n")
    assert (await collect(process)).text == "still here\n"
