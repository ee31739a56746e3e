"""A directory for what sandboxes share: staged interpreters, locks, short-lived copies of mounts.

It must be readable by the unprivileged users that sandboxes run as, and writable by nobody but us: a directory that
another user could have planted or can change is refused.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from metaharness.errors import SandboxUnavailable

_COMPLETE = ".complete"


def default_cache_dirs() -> tuple[Path, ...]:
    """Return where the cache may lie, best first: `/var/cache` for root, the user's own cache directory otherwise.

    A home directory of root is no place: the users that sandboxes run as cannot enter it.
    """
    user = os.geteuid()
    first = Path("/var/cache/metaharness") if user == 0 else Path("~/.cache/metaharness/sandboxes").expanduser()
    return (first, Path(f"/var/tmp/metaharness-sandboxes-{user}"), Path(f"/tmp/metaharness-sandboxes-{user}"))  # noqa: S108 - see _refusal


class Cache:
    """One cache directory, open for use.

    Args:
        root: An absolute path; made when absent.

    Raises:
        SandboxUnavailable: It cannot be used; the message says why.
    """

    def __init__(self, root: Path) -> None:
        try:
            root.parent.mkdir(parents=True, exist_ok=True)
            root.mkdir(mode=0o755, exist_ok=True)
            if root.lstat().st_uid == os.geteuid() and not root.is_symlink():
                root.chmod(0o755)  # whatever the umask is
            refusal = _refusal(root)
        except OSError as error:
            raise SandboxUnavailable(f"{root}: {error.strerror}") from error
        if refusal:
            raise SandboxUnavailable(f"{root}: {refusal}")
        self.root = root

    @classmethod
    def open_first(cls, roots: Sequence[Path], accept: Callable[[Cache], str]) -> Cache:
        """Return the first usable cache.

        Args:
            roots: Candidates, best first.
            accept: Returns why a cache is not good enough, or an empty string.

        Raises:
            SandboxUnavailable: None is usable; the message has every reason.
        """
        refusals = []
        for root in roots:
            try:
                cache = cls(root)
                refusal = accept(cache)
            except SandboxUnavailable as error:
                refusals.append(str(error))
                continue
            if not refusal:
                return cache
            refusals.append(f"{root}: {refusal}")
        raise SandboxUnavailable(f"no usable cache directory ({'; '.join(refusals)})")

    def directory(self, name: str) -> Path:
        """Return a subdirectory that every user can enter."""
        path = self.root / name
        path.mkdir(mode=0o755, exist_ok=True)
        path.chmod(0o755)
        return path

    def build_once(self, name: str, build: Callable[[Path], int]) -> Path:
        """Return the directory `name`, made by `build` unless a complete one is there.

        Safe against other processes and against a kill at any time: it is built beside, under a lock, and renamed.
        A directory from which something was deleted since (cleaners of temporary files do that) is built anew.

        Args:
            name: Must name the content: version and digest.
            build: Makes the directory at the path that it gets, and returns its number of entries.
        """
        final = self.root / name
        if _is_complete(final):
            return final
        with self._locked():
            if _is_complete(final):
                return final
            remove_tree(final)
            partial = self.root / f".{name}.partial"
            remove_tree(partial)
            entries = build(partial)
            (partial / _COMPLETE).write_text(str(entries))
            (partial / _COMPLETE).chmod(0o644)
            partial.rename(final)
        return final

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.root / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def remove_tree(path: Path) -> None:
    """Remove a directory tree of ours, if it is there; another process may be removing it as well."""
    try:
        if path.is_symlink() or path.is_file():
            path.unlink()
        else:
            shutil.rmtree(path)
    except FileNotFoundError:
        return


def can_execute(cache: Cache, program: Path) -> str:
    """Return why `program` (a copy in the cache) does not run from there, or an empty string."""
    try:
        done = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=20, env={}, check=False, cwd=cache.root
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program.name} does not run from there ({error}; is it mounted noexec?)"
    return "" if done.returncode == 0 else f"{program.name} fails there: {done.stderr.strip()[:200]}"


def count_entries(root: Path) -> int:
    """Return how many files, directories and links are below `root`, without what was added by us or by Python."""
    count = 0
    for _, directories, files in os.walk(root):
        if "__pycache__" in directories:
            directories.remove("__pycache__")
        count += len(directories) + len(files)
    return count


def _is_complete(path: Path) -> bool:
    try:
        expected = int((path / _COMPLETE).read_text())
    except (OSError, ValueError):
        return False
    return count_entries(path) - 1 == expected


def _refusal(root: Path) -> str:
    """Return why others could read too little of or write into `root`, or an empty string."""
    status = root.lstat()
    if not stat.S_ISDIR(status.st_mode):
        return "is a link or no directory"
    if status.st_uid != os.geteuid():
        return f"belongs to user {status.st_uid}"
    if status.st_mode & 0o022:
        return "others can write to it"
    for parent in root.parents:
        above = parent.stat()
        if above.st_uid not in (0, os.geteuid()):
            return f"{parent} belongs to user {above.st_uid}"
        if above.st_mode & 0o022 and not above.st_mode & stat.S_ISVTX:
            return f"others can write to {parent}"
        if os.geteuid() == 0 and not above.st_mode & stat.S_IXOTH:
            return f"unprivileged users cannot enter {parent}"
    return ""
