"""Code that tries to get out of a `bubblewrap` sandbox, or to take more than it was given."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from metaharness.job import Limits, Mount
from metaharness.sandboxes.bubblewrap import BubblewrapEngine
from metaharness.sandboxes.labels import label_of
from tests.sandboxes.helpers import (
    QUICK,
    collect,
    command_line,
    own_processes,
    private_directory,
    python_job,
    read_line,
    require_held,
    run_python,
)

# What most attacks begin with: `tried` prints how an attempt ended, `call` makes a system call by its number.
TOOLS = """
import ctypes, errno, os, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
ARM = os.uname().machine == "aarch64"
def call(x86_64, aarch64, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(aarch64 if ARM else x86_64), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result
def tried(name, attempt):
    try:
        print(name, "worked", attempt())
    except OSError as error:
        print(name, errno.errorcode.get(error.errno, error.errno))
    except Exception as error:
        print(name, type(error).__name__)
"""


HOME = Path.home()


def _write(path: Path, content: str) -> None:
    """Make a file that every user can read, as far as its own directory goes."""
    path.write_text(content)
    path.parent.chmod(0o755)


def outcomes(text: str) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in text.splitlines())


# ------------------------------------------------------------------------------------------------------------- network


@contextmanager
def listener(family: int, address: object) -> Iterator[socket.socket]:
    with socket.socket(family, socket.SOCK_STREAM) as server:
        server.bind(address)  # type: ignore[arg-type]
        server.listen()
        server.settimeout(0.2)
        yield server
        with pytest.raises(TimeoutError):
            server.accept()


async def test_no_connection_to_the_host(bubblewrap: BubblewrapEngine) -> None:
    code = f"""{TOOLS}
port = int(sys.argv[1])
for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        def attempt():
            with socket.socket(family, kind) as s:
                s.settimeout(2)
                s.connect((host, port))
                s.send(b"x")
                s.recv(1)
        tried(f"{{host}}-{{kind.name}}", attempt)
tried("abstract", lambda: socket.socket(socket.AF_UNIX).connect("\\0" + sys.argv[2]))
tried("path", lambda: socket.socket(socket.AF_UNIX).connect(sys.argv[3]))
tried("name", lambda: socket.getaddrinfo("localhost.localdomain.invalid", 80))
"""
    name = f"metaharness-test-{uuid.uuid4().hex}"
    with (
        private_directory() as directory,
        listener(socket.AF_INET, ("127.0.0.1", 0)) as tcp,
        listener(socket.AF_UNIX, f"\0{name}"),
        listener(socket.AF_UNIX, str(directory / "socket")),
    ):
        directory.chmod(0o755)
        (directory / "socket").chmod(0o777)
        port = tcp.getsockname()[1]
        ran = await run_python(bubblewrap, code, str(port), name, str(directory / "socket"))
    found = outcomes(ran.text)
    assert len(found) == 7, ran.end.stderr
    assert not [name for name, outcome in found.items() if outcome.startswith("worked")], found


async def test_a_socket_in_a_mounted_directory_does_not_reach_the_host(bubblewrap: BubblewrapEngine) -> None:
    # The host never mounts one; this pins what would happen if it did: reading a socket file is not speaking to it.
    code = (
        "import socket\ntry:\n  socket.socket(socket.AF_UNIX).connect('/data/s')\nexcept OSError as e:\n  print('no')"
    )
    with private_directory() as directory:
        directory.chmod(0o755)
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(directory / "s"))
        (directory / "s").unlink()  # nothing is left to mount but its directory
        ran = await run_python(bubblewrap, code, mounts=(Mount(source=directory, target="/data"),))
        server.close()
    assert ran.text == "no\n"


async def test_the_only_interface_is_its_own_loopback(bubblewrap: BubblewrapEngine) -> None:
    code = f"""{TOOLS}
print("interfaces", [name for _, name in socket.if_nameindex()])
print("routes", len(open("/proc/net/route").read().splitlines()) - 1)
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(server.getsockname()).close()
print("own", "works")
tried("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
tried("up", lambda: __import__("fcntl").ioctl(socket.socket(), 0x8914, b"lo".ljust(16, b"\\0") + b"\\0" * 16))
"""
    found = outcomes((await run_python(bubblewrap, code)).text)
    assert found == {"interfaces": "['lo']", "routes": "0", "own": "works", "raw": "EPERM", "up": "EPERM"}


async def test_socket_families_that_no_namespace_isolates_are_closed(bubblewrap: BubblewrapEngine) -> None:
    await require_held("system-call filter")
    code = f"""{TOOLS}
for family in range(60):
    if family not in (1, 2, 10, 16):
        tried(str(family), lambda: socket.socket(family, socket.SOCK_STREAM))
for protocol in range(1, 24):
    tried(f"netlink{{protocol}}", lambda: socket.socket(16, socket.SOCK_RAW, protocol))
tried("pair", lambda: socket.socketpair(40, socket.SOCK_STREAM))
"""
    found = outcomes((await run_python(bubblewrap, code)).text)
    assert len(found) == 56 + 23 + 1
    assert set(found.values()) == {"EAFNOSUPPORT"}


# --------------------------------------------------------------------------------------------------------------- files


async def test_no_file_of_the_host_can_be_read(bubblewrap: BubblewrapEngine, tmp_path: Path) -> None:
    _write(tmp_path / "val.jsonl", "label")
    with private_directory() as other_candidate:
        (other_candidate / "harness.py").write_text("idea")
        other_candidate.chmod(0o755)
        (other_candidate / "harness.py").chmod(0o644)
        places = [
            *(tmp_path, tmp_path / "val.jsonl", other_candidate, other_candidate / "harness.py"),
            *(Path(__file__), Path(__file__).parents[2], HOME / ".ssh", HOME / ".bashrc"),
            *map(Path, ("/home", "/var", "/var/cache", "/srv", "/mnt", "/media", "/opt", "/boot", "/run", "/sys")),
            *map(Path, ("/etc/shadow", "/etc/hostname", "/etc/ssh", "/proc/kcore", "/proc/1/root/../..", "/dev/sda")),
            *map(Path, ("/dev/vda", "/dev/mem", "/dev/kmsg", "/dev/fuse", "/dev/vsock", "/dev/kvm", "/dev/net/tun")),
            *map(Path, ("/usr/local/bin", "/usr/src", "/usr/lib/python3/dist-packages")),
        ]
        code = """
import os, sys
readable = []
for place in sys.argv[1:]:
    try:
        if os.path.isdir(place):
            if os.listdir(place):
                readable.append(place)
        else:
            readable.append((place, open(place, "rb").read(10)))
    except OSError:
        pass
print(readable)
"""
        ran = await run_python(bubblewrap, code, *map(str, places))
    inside = eval(ran.text)
    # Its own root, and where the interpreter is mounted at the place that it was built for, its empty parents.
    inside = [place for place in inside if place != "/proc/1/root/../.."]
    assert [place for place in inside if not any(python in str(place) for python in ("/opt", "/usr/local"))] == []


async def test_what_is_visible_is_what_is_meant_to_be(bubblewrap: BubblewrapEngine) -> None:
    code = """
import os
print(sorted(os.listdir("/etc")), [l.split(":")[0] for l in open("/etc/passwd")], os.listdir("/usr/local"))
print(sorted(set(os.listdir("/dev"))))
"""
    etc, dev = (await run_python(bubblewrap, code)).text.splitlines()
    assert etc.startswith("['alternatives', 'group', 'hosts', 'ld.so.cache', 'nsswitch.conf', 'passwd']")
    assert "['sandbox', 'root']" in etc
    allowed = {"core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty"}
    assert set(eval(dev)) <= allowed | {"urandom", "zero", "console"}


async def test_the_system_cannot_be_written(bubblewrap: BubblewrapEngine, tmp_path: Path) -> None:
    _write(tmp_path / "f", "x")
    code = f"""{TOOLS}
for place in ("/usr/x", "/x", "/etc/x", "/etc/passwd", "/etc/ld.so.preload", "/dev/x", "/bin/sh", "/data/f", "/data/x",
              "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/usr/local/x", os.path.realpath(sys.executable)):
    tried(place, lambda: open(place, "w"))
tried("rename", lambda: os.rename("/usr/bin/env", "/usr/bin/env2"))
tried("link", lambda: os.link("/data/f", "/work/f"))
tried("chmod", lambda: os.chmod("/data/f", 0o777))
tried("utime", lambda: os.utime("/data/f"))
"""
    ran = await run_python(bubblewrap, code, mounts=(Mount(source=tmp_path, target="/data"),))
    found = outcomes(ran.text)
    assert len(found) == 17
    assert set(found.values()) <= {"EROFS", "EACCES", "EPERM", "EXDEV", "ENOENT", "ETXTBSY"}, found
    assert (tmp_path / "f").read_text() == "x"


async def test_links_in_a_mount_lead_nowhere_outside(bubblewrap: BubblewrapEngine, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("label")
    with private_directory() as source:
        (source / "absolute").symlink_to(secret)
        (source / "relative").symlink_to("../" * 20 + str(secret).lstrip("/"))
        (source / "passwd").symlink_to("/etc/passwd")
        code = f"""{TOOLS}
for name in ("absolute", "relative", "passwd"):
    tried(name, lambda: open("/data/" + name).read(7))
"""
        ran = await run_python(bubblewrap, code, mounts=(Mount(source=source, target="/data"),))
    assert outcomes(ran.text) == {"absolute": "ENOENT", "relative": "ENOENT", "passwd": "worked sandbox"}


@pytest.mark.parametrize("place", ["/work", "/tmp", "/dev/shm"])
async def test_a_full_disk_is_the_sandboxs_own(bubblewrap: BubblewrapEngine, place: str) -> None:
    code = f"""{TOOLS}
block = b"x" * 65536
total = 0
def fill():
    global total
    for number in range(1000):
        with open(f"{{sys.argv[1]}}/{{number}}", "wb", buffering=0) as file:
            for _ in range(64):
                total += file.write(block)
tried("fill", fill)
print("total", total >> 20)
"""
    ran = await run_python(bubblewrap, code, place, limits=Limits(work_mb=8, memory_mb=256, timeout_s=60.0))
    assert outcomes(ran.text) == {"fill": "ENOSPC", "total": "7"} or outcomes(ran.text)["total"] == "8", ran.text
    assert outcomes(ran.text)["fill"] == "ENOSPC"


async def test_a_sparse_file_cannot_be_longer_than_the_disk(bubblewrap: BubblewrapEngine) -> None:
    code = f"{TOOLS}\ntried('truncate', lambda: open('/work/f', 'wb').truncate(1 << 40))"
    ran = await run_python(bubblewrap, code, limits=Limits(work_mb=8, memory_mb=256))
    assert outcomes(ran.text) == {"truncate": "EFBIG"}


async def test_a_writable_mount_is_bounded_and_returns_nothing_strange(bubblewrap: BubblewrapEngine) -> None:
    code = f"""{TOOLS}
os.chdir("/data")
os.symlink("/etc/shadow", "link")
os.mkfifo("fifo")
socket.socket(socket.AF_UNIX).bind("socket")
open("set-id", "w").write("x"); os.chmod("set-id", 0o6777)
open("closed", "w").write("y"); os.chmod("closed", 0)
os.makedirs("a/" * 100)
os.link("set-id", "hard")
open(b"bad\\xff\\nname", "w").write("z")
for number in range(5):
    open(f"sparse{{number}}", "wb").truncate(7 << 20)
tried("device", lambda: os.mknod("device", 0o20666, os.makedev(1, 3)))
def fill():
    with open("big", "wb", buffering=0) as file:
        while True:
            file.write(b"x" * 65536)
tried("fill", fill)
os.unlink("big")
"""
    with private_directory() as source:
        (source / "old").write_text("old")
        mounts = (Mount(source=source, target="/data", writable=True),)
        limits = Limits(work_mb=8, memory_mb=256, timeout_s=60.0)
        ran = await run_python(bubblewrap, code, mounts=mounts, limits=limits)
        names = set(os.listdir(os.fsencode(source)))  # noqa: PTH208
        sizes = sum(path.lstat().st_size for path in source.rglob("*") if path.is_file() and not path.is_symlink())
        deepest = max(len(path.relative_to(source).parts) for path in source.rglob("*"))
        link = (source / "link").readlink()
        modes = {name: (source / name).lstat().st_mode & 0o7777 for name in ("set-id", "closed", "hard")}
        links = {(source / name).lstat().st_nlink for name in ("set-id", "hard")}
    assert outcomes(ran.text) == {"device": "EPERM", "fill": "ENOSPC"}, ran.end.stderr
    assert {b"old", b"link", b"fifo", b"set-id", b"closed", b"hard", b"a", b"bad\xff\nname"} <= names
    assert b"socket" not in names
    assert str(link) == "/etc/shadow"
    assert modes["set-id"] == 0o755
    assert modes["closed"] == 0o600
    assert links == {1}
    assert deepest < 70
    assert sizes <= 8 << 20
    assert "not returned" in ran.end.stderr


# ----------------------------------------------------------------------------------------------------------- processes


async def test_no_variable_of_the_host_is_visible(
    bubblewrap: BubblewrapEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-hunter2")
    code = """
import glob, os
seen = repr(dict(os.environ)).encode()
for path in glob.glob("/proc/*/environ") + glob.glob("/proc/*/cmdline") + glob.glob("/proc/*/task/*/environ"):
    try:
        seen += open(path, "rb").read()
    except OSError:
        pass
print(b"hunter" + b"2" in seen, b"API" + b"_KEY" in seen, len(seen) > 20)
"""
    assert (await run_python(bubblewrap, code, env={"VISIBLE": "1"})).text == "False False True\n"


async def test_no_process_of_the_host_is_visible(bubblewrap: BubblewrapEngine) -> None:
    code = f"""{TOOLS}
print("pids", sorted(int(name) for name in os.listdir("/proc") if name.isdigit()))
host = int(sys.argv[1])
tried("status", lambda: open(f"/proc/{{host}}/status"))
tried("signal", lambda: os.kill(host, 0))
tried("pidfd", lambda: os.pidfd_open(host))
tried("everyone", lambda: os.kill(-1, 0))
"""
    found = outcomes((await run_python(bubblewrap, code, str(os.getpid()))).text)
    assert found == {"pids": "[1, 2]", "status": "ENOENT", "signal": "ESRCH", "pidfd": "ESRCH", "everyone": "ESRCH"}


async def test_the_init_process_has_no_more_rights_than_the_program(bubblewrap: BubblewrapEngine) -> None:
    code = """
def status(pid):
    lines = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status"))
    return {key: lines[key].strip() for key in ("Uid", "CapEff", "CapBnd", "CapInh", "CapAmb", "NoNewPrivs", "Seccomp")}
print(status(1) == status("self"), status("self"))
"""
    same, _, status = (await run_python(bubblewrap, code)).text.partition(" ")
    assert same == "True"
    none = "0" * 16
    found = eval(status)
    assert {found[name] for name in ("CapEff", "CapBnd", "CapInh", "CapAmb")} == {none}
    assert found["NoNewPrivs"] == "1"


async def test_it_runs_as_a_user_of_its_own(bubblewrap: BubblewrapEngine) -> None:
    await require_held("own user")
    processes = [await bubblewrap.launch(python_job("print(1, flush=True); input()")) for _ in range(3)]
    for process in processes:
        await read_line(process)
    users = set()
    for pid in own_processes():
        users.add(_users_of(pid))
    assert len(users) >= 3
    assert all(uid.split() == [uid.split()[0]] * 4 and 61000 <= int(uid.split()[0]) < 61184 for uid in users)
    await asyncio.gather(*(process.kill() for process in processes))


def _users_of(pid: int) -> str:
    return dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())["Uid"]


@pytest.mark.parametrize("ending", ["exit", "kill", "timeout"])
async def test_a_daemon_does_not_outlive_its_sandbox(bubblewrap: BubblewrapEngine, ending: str) -> None:
    code = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    if os.fork() == 0:
        print("up", flush=True)
        os.closerange(0, 10)
        while True:
            time.sleep(0.05)
            open("/work/beat", "w").write(str(time.time()))
    os._exit(0)
if sys.argv[1] != "exit":
    time.sleep(60)
time.sleep(0.2)
"""
    before = set(_all_pids())
    process = await bubblewrap.launch(python_job(code, ending, limits=Limits(timeout_s=1.5, memory_mb=256)))
    assert await read_line(process) == b"up\n"
    daemon = [pid for pid in set(_all_pids()) - before if _beats(pid)]
    assert daemon
    if ending == "kill":
        await process.kill()
    end = await process.wait()
    assert end.reason == {"exit": "exited", "kill": "killed", "timeout": "timeout"}[ending]
    assert not [pid for pid in daemon if _beats(pid)]


def _beats(pid: int) -> bool:
    return b"beat" in command_line(pid) and not label_of(pid)  # bwrap itself, and the spare, have labels


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


@pytest.mark.parametrize(
    "bomb",
    [
        "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass",
        "import threading, time\nwhile True:\n  try: threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "  except RuntimeError: pass",
        "import subprocess\nwhile True:\n  try: subprocess.Popen(['/bin/sleep', '60'])\n  except OSError: pass",
    ],
    ids=["fork", "threads", "programs"],
)
async def test_bombs_are_contained(bubblewrap: BubblewrapEngine, bomb: str) -> None:
    await require_held("processes")
    process = await bubblewrap.launch(
        python_job(bomb, limits=Limits(processes=20, cpus=0.5, memory_mb=256, timeout_s=2.0))
    )
    await asyncio.sleep(1.0)
    began = time.monotonic()
    other = await asyncio.create_subprocess_exec("/bin/true")  # the host can still start processes
    assert await other.wait() == 0
    assert time.monotonic() - began < 5
    for group in _groups(bubblewrap, "pids"):
        assert int((group / "pids.current").read_text()) <= 22
    end = await process.wait()
    assert end.reason in ("timeout", "memory")


def _groups(engine: BubblewrapEngine, controller: str) -> list[Path]:
    assert engine._ground is not None
    parent = engine._ground.cgroups.parents.get(controller)
    own = f"-{os.getpid()}-"
    return [path for path in parent.iterdir() if own in path.name] if parent else []


# -------------------------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize(
    "hog",
    [
        "a = []\nwhile True: a.append(bytearray(1 << 20))",
        "import os\nfor _ in range(8): os.fork()\na = []\nwhile True: a.append(bytearray(1 << 20))",
        "import mmap\na = []\nwhile True:\n  a.append(mmap.mmap(-1, 1 << 20)); a[-1].write(b'x' * (1 << 20))",
        "import os\nf = os.memfd_create('x')\nwhile True: os.write(f, b'x' * (1 << 20))",
    ],
    ids=["heap", "tree", "shared", "memfd"],
)
async def test_memory_over_the_limit_ends_it(bubblewrap: BubblewrapEngine, hog: str) -> None:
    await require_held("memory")
    ran = await run_python(bubblewrap, hog, limits=Limits(memory_mb=64, work_mb=200, timeout_s=60.0))
    assert (ran.end.reason, ran.end.code) == ("memory", None)
    assert ran.end.peak_memory_mb is not None
    assert 30 < ran.end.peak_memory_mb <= 65


async def test_a_child_that_is_killed_for_memory_takes_the_sandbox_with_it(bubblewrap: BubblewrapEngine) -> None:
    await require_held("memory")
    code = """
import os, time
if os.fork() == 0:
    a = []
    while True: a.append(bytearray(1 << 20))
time.sleep(50)
"""
    began = time.monotonic()
    ran = await run_python(bubblewrap, code, limits=Limits(memory_mb=64, timeout_s=60.0))
    assert ran.end.reason == "memory"
    assert time.monotonic() - began < 30


async def test_files_count_as_memory(bubblewrap: BubblewrapEngine) -> None:
    await require_held("memory")
    code = "for place in ('/work/f', '/tmp/f'):\n  open(place, 'wb').write(b'x' * (60 << 20))\nprint('survived')"
    ran = await run_python(bubblewrap, code, limits=Limits(memory_mb=80, work_mb=64, timeout_s=60.0))
    assert ran.end.reason == "memory"
    assert ran.text == ""


async def test_processor_time_is_shared_out(bubblewrap: BubblewrapEngine) -> None:
    await require_held("processor time")
    code = """
import os, time
for _ in range(2): os.fork()
until = time.monotonic() + 1.5
while time.monotonic() < until: pass
print(time.process_time())
"""
    ran = await run_python(bubblewrap, code, limits=Limits(cpus=0.2, memory_mb=256, timeout_s=60.0))
    assert sum(map(float, ran.text.split())) < 0.2 * 1.5 * 3  # without a limit two or more of 1.5 seconds


# -------------------------------------------------------------------------------------------------------- system calls


async def test_dangerous_system_calls_are_refused(bubblewrap: BubblewrapEngine) -> None:
    await require_held("system-call filter")
    code = f"""{TOOLS}
buffer = ctypes.create_string_buffer(4096)
attempts = {{
    "unshare-user": (272, 97, 0x10000000), "unshare-mount": (272, 97, 0x20000), "unshare-net": (272, 97, 0x40000000),
    "setns": (308, 268, 0, 0), "mount": (165, 40, b"none", b"/work", b"tmpfs", 0, 0), "umount": (166, 39, b"/proc", 2),
    "pivot_root": (155, 41, b"/work", b"/work"), "chroot": (161, 51, b"/work"),
    "open_tree": (428, 428, -100, b"/usr", 1), "fsopen": (430, 430, b"tmpfs", 0),
    "mount_setattr": (442, 442, -100, b"/usr", 0, buffer, 32), "move_mount": (429, 429, 0, b"", 0, b"", 0),
    "ptrace": (101, 117, 0, 0, 0, 0), "vm_read": (310, 270, 1, buffer, 1, buffer, 1, 0),
    "vm_write": (311, 271, 1, buffer, 1, buffer, 1, 0), "pidfd_getfd": (438, 438, 0, 0, 0), "kcmp": (312, 272, 1, 1, 0),
    "io_uring": (425, 425, 4, buffer), "bpf": (321, 280, 0, buffer, 64), "userfaultfd": (323, 282, 0),
    "perf": (298, 241, buffer, 0, -1, -1, 0), "add_key": (248, 217, b"user", b"x", b"y", 1, -3),
    "keyctl": (250, 219, 0, -3, 0), "request_key": (249, 218, b"user", b"x", 0, -3),
    "module": (175, 105, buffer, 64, b""),
    "kexec": (246, 104, 0, 0, 0, 0), "reboot": (169, 142, 0, 0, 0, 0), "swapon": (167, 224, b"/work/x", 0),
    "clock": (227, 112, 0, buffer), "settime": (164, 170, buffer, 0), "hostname": (170, 161, b"x", 1),
    "handle": (303, 264, -100, b"/usr", buffer, buffer, 0), "by_handle": (304, 265, -100, buffer, 0),
    "fanotify": (300, 262, 0, 0), "syslog": (103, 116, 3, buffer, 64), "acct": (163, 89, b"/work/x"),
    "clone-user": (56, 220, 0x10000000 | 17, 0, 0, 0, 0), "clone-mount": (56, 220, 0x20000 | 17, 0, 0, 0, 0),
    "personality": (135, 92, 0x0400000), "memfd_secret": (447, 447, 0), "sti": (16, 29, 0, 0x5412, buffer),
    "numa": (237, 235, 0, 0, 0, 0, 0, 0),
}}
for name, (x86_64, aarch64, *arguments) in attempts.items():
    tried(name, lambda: call(x86_64, aarch64, *arguments))
print("attempts", len(attempts))
"""
    found = outcomes((await run_python(bubblewrap, code)).text)
    assert int(found.pop("attempts")) == len(found) >= 40
    assert set(found.values()) == {"EPERM"}, {name: outcome for name, outcome in found.items() if outcome != "EPERM"}


async def test_system_calls_that_nobody_has_looked_at_do_not_exist(bubblewrap: BubblewrapEngine) -> None:
    await require_held("system-call filter")
    code = f"""{TOOLS}
for number in (435, 467, 500, 1000, 0x40000000 + 39):
    tried(str(number), lambda: call(number, number, 0, 0))
"""
    assert set(outcomes((await run_python(bubblewrap, code)).text).values()) == {"ENOSYS"}


async def test_calls_of_another_abi_end_the_program(bubblewrap: BubblewrapEngine) -> None:
    await require_held("system-call filter")
    if os.uname().machine != "x86_64":
        pytest.skip("32-bit calls are tried on x86_64 only")
    # int 0x80 with eax = 20 (getpid): on x86_64 number 20 is writev, so that a filter by number alone would be fooled.
    code = """
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")
print("calling", flush=True)
print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))(), "survived")
"""
    ran = await run_python(bubblewrap, code)
    assert ran.text == "calling\n"
    assert ran.end.code == -31  # SIGSYS


async def test_the_filter_cannot_be_lifted(bubblewrap: BubblewrapEngine) -> None:
    await require_held("system-call filter")
    code = f"""{TOOLS}
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
allow = (ctypes.c_uint64 * 1)(0x7fff000000000006)
program = Program(1, ctypes.addressof(allow))
tried("disable", lambda: call(157, 167, 22, 0, 0, 0, 0))
tried("allow-all", lambda: call(157, 167, 22, 2, ctypes.byref(program), 0, 0))
tried("new-privileges", lambda: call(157, 167, 38, 0, 0, 0, 0))
tried("still", lambda: call(272, 97, 0x10000000))
print("mode", call(157, 167, 21, 0, 0, 0, 0))
pid = os.fork()
if pid == 0:
    os.execv("/usr/bin/env", ["env", sys.executable, "-I", "-S", "-c",
        "import ctypes; print('after-exec', ctypes.CDLL(None).unshare(0x10000000))"])
os.waitpid(pid, 0)
"""
    found = outcomes((await run_python(bubblewrap, code)).text)
    assert found["disable"] == "EINVAL"
    assert found["allow-all"].startswith("worked")  # one more filter, which can only forbid more
    assert found["new-privileges"] == "EINVAL"
    assert found["still"] == "EPERM"
    assert found["after-exec"] == "-1"


async def test_set_id_programs_give_nothing(bubblewrap: BubblewrapEngine) -> None:
    code = f"""{TOOLS}
import subprocess
print("mounted", subprocess.check_output(["/data/id", "-u"]).decode().strip())
open("/work/id", "wb").write(open("/data/id", "rb").read())
os.chmod("/work/id", 0o6755)
print("own", subprocess.check_output(["/work/id", "-u"]).decode().strip())
for number, attempt in enumerate((lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]),
                                  lambda: os.setresuid(0, 0, 0), lambda: os.chown("/work/id", 0, 0))):
    tried(f"become{{number}}", attempt)
"""
    with private_directory() as directory:
        directory.chmod(0o755)  # as it is: a copy would have lost the mode
        shutil.copy("/usr/bin/id", directory)
        (directory / "id").chmod(0o6755)
        ran = await run_python(bubblewrap, code, mounts=(Mount(source=directory, target="/data"),))
    found = outcomes(ran.text)
    assert found.pop("mounted") == found.pop("own") == "1000"
    assert len(found) == 5
    assert set(found.values()) <= {"EPERM", "EINVAL"}


async def test_the_memory_of_the_init_process_gives_nothing_more(bubblewrap: BubblewrapEngine) -> None:
    """Even with its init process taken over, a sandbox ends in time, and whatever it reports is one exit code."""
    code = """
import os, re, time
maps = open("/proc/1/maps").read()
memory = os.open("/proc/1/mem", os.O_RDWR)
for line in maps.splitlines():
    start, end = (int(part, 16) for part in re.match(r"(\\w+)-(\\w+)", line).groups())
    if "r-xp" in line and "[" not in line:
        os.pwrite(memory, b"\\xeb\\xfe" * ((end - start) // 2), start)
print("overwritten", flush=True)
"""
    ran = await run_python(bubblewrap, code, limits=Limits(timeout_s=2.0, memory_mb=256))
    assert ran.text == "overwritten\n"
    assert ran.end.reason == "timeout"


async def test_no_signal_and_no_limit_reaches_outside(bubblewrap: BubblewrapEngine) -> None:
    code = f"""{TOOLS}
import resource
tried("nice", lambda: os.nice(-5))
tried("raise-files", lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100000, 100000)))
tried("raise-core", lambda: resource.setrlimit(resource.RLIMIT_CORE, (1, 1)))
tried("realtime", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
tried("oom", lambda: open("/proc/self/oom_score_adj", "w").write("-1000"))
"""
    found = outcomes((await run_python(bubblewrap, code)).text)
    refused = {name: outcome for name, outcome in found.items() if not outcome.startswith("worked")}
    assert {"nice", "raise-files", "realtime"} <= set(refused) | {"raise-core", "oom"}
    assert {found["nice"], found["raise-files"], found["raise-core"], found["realtime"]} <= {
        "EPERM",
        "EACCES",
        "PermissionError",
        "ValueError",
    }


async def test_endless_output_without_a_newline(bubblewrap: BubblewrapEngine) -> None:
    code = "import os\nwhile True: os.write(2, b'x' * 65536)"
    ran = await run_python(bubblewrap, code, limits=Limits(timeout_s=1.5, output_kb=16, memory_mb=256))
    assert ran.end.reason == "timeout"
    assert len(ran.end.stderr) < 17 * 1024
    assert "bytes dropped" in ran.end.stderr


async def test_a_million_small_files(bubblewrap: BubblewrapEngine) -> None:
    code = f"""{TOOLS}
def many():
    for number in range(1_000_000):
        os.close(os.open(f"/work/{{number}}", os.O_CREAT | os.O_WRONLY))
tried("many", many)
"""
    ran = await run_python(bubblewrap, code, limits=Limits(memory_mb=48, work_mb=8, timeout_s=8.0))
    assert ran.end.reason in ("memory", "timeout") or outcomes(ran.text)["many"] in ("ENOSPC", "worked None")


async def test_sandboxes_do_not_see_each_other(bubblewrap: BubblewrapEngine) -> None:
    code = """
import os, socket, sys
open("/tmp/mark", "w").write("x"); open("/dev/shm/mark", "w").write("x"); open("/work/mark", "w").write("x")
server = socket.socket(socket.AF_UNIX); server.bind("\\0metaharness-mark"); server.listen()
tcp = socket.create_server(("127.0.0.1", 45454))
print("ready", flush=True)
input()
"""
    look = f"""{TOOLS}
for place in ("/tmp/mark", "/dev/shm/mark", "/work/mark"):
    tried(place, lambda: open(place))
tried("unix", lambda: socket.socket(socket.AF_UNIX).connect("\\0metaharness-mark"))
tried("tcp", lambda: socket.create_connection(("127.0.0.1", 45454), 2))
"""
    first = await bubblewrap.launch(python_job(code, limits=QUICK))
    assert await read_line(first) == b"ready\n"
    found = outcomes((await run_python(bubblewrap, look)).text)
    await first.kill()
    assert (await collect(first)).end.reason == "killed"
    assert set(found.values()) == {"ENOENT", "ECONNREFUSED"}
