"""Copying directory trees for sandboxes: never through a link, readable by another user, bounded.

Two directions. `share_tree` makes a copy of a directory that any user can read, with hard links where the file itself
is already harmless to share. `return_tree` brings what untrusted code wrote back to the host, from a directory that is
only known by its descriptor.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from metaharness.errors import SandboxUnavailable

MAX_RETURNED_ENTRIES = 10_000
MAX_RETURNED_DEPTH = 60


def readable_by_others(root: Path) -> bool:
    """Return whether every user can reach and read `root` and all that is in it."""
    for parent in root.parents:
        if not parent.stat().st_mode & stat.S_IXOTH:
            return False
    pending = [root]
    while pending:
        path = pending.pop()
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            if mode & 0o005 != 0o005:
                return False
            pending += [Path(entry.path) for entry in os.scandir(path)]
        elif not stat.S_ISLNK(mode) and not mode & stat.S_IROTH:
            return False
    return True


def share_tree(
    source: Path, target: Path, *, skip: Callable[[str, str], bool] = lambda _directory, _name: False
) -> int:
    """Copy `source` to the new directory `target` so that every user can read it.

    Symbolic links stay links and are not followed.

    Args:
        source: A directory.
        target: Must not exist; its parent must.
        skip: Called with the directory (relative to `source`, "" for itself) and a name; True leaves it out.

    Returns:
        How many entries were made.

    Raises:
        SandboxUnavailable: There is something that is no file, directory or link.
    """
    count = 0
    pending = [""]
    while pending:
        directory = pending.pop()
        made = target / directory
        made.mkdir()
        made.chmod(0o755)  # whatever the umask is
        with os.scandir(source / directory) as entries:
            for entry in entries:
                if skip(directory, entry.name):
                    continue
                count += 1
                if entry.is_dir(follow_symlinks=False):
                    pending.append(os.path.join(directory, entry.name))  # noqa: PTH118 - a relative string, many times
                else:
                    share_file(Path(entry.path), made / entry.name)
    return count


def share_file(source: Path, target: Path) -> None:
    """Link or copy one file, or copy a symbolic link itself.

    A hard link shares owner and mode with its source: it is made only where the source belongs to this user or root,
    others may read it and nobody else may write it.
    """
    status = source.lstat()
    if stat.S_ISLNK(status.st_mode):
        target.symlink_to(source.readlink())
        return
    if not stat.S_ISREG(status.st_mode):
        raise SandboxUnavailable(f"{source} is neither a file, a directory nor a link: it cannot enter a sandbox")
    executable = bool(status.st_mode & stat.S_IXUSR)
    wanted = 0o005 if executable else 0o004
    if status.st_uid in (0, os.geteuid()) and status.st_mode & wanted == wanted and not status.st_mode & 0o022:
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError:  # another file system, too many links, or links refused by the kernel's settings: copy instead
            pass
        else:
            return
    reader = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(reader, "rb") as content, target.open("xb") as copy:
        shutil.copyfileobj(content, copy, 1 << 20)
    target.chmod(0o755 if executable else 0o644)
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))  # byte-code caches compare the time


@dataclass(slots=True)
class _Returned:
    max_bytes: int
    size_bytes: int = 0
    entries: int = 0
    left_out: int = 0


def return_tree(directory: int, target: Path, *, max_bytes: int) -> str:
    """Replace what is in `target` by what is in the directory open as `directory`; its writers must be dead.

    Files, directories, symbolic links and FIFOs (as such, so that whoever inspects the result sees them) come back;
    sockets do not, and devices cannot exist. Hard links become separate files. Modes lose set-id and sticky bits.

    Args:
        directory: Descriptor of a directory that untrusted code has filled.
        target: A directory of the host.
        max_bytes: Most bytes to bring back; sparse files can be longer than the memory that held them.

    Returns:
        Empty, or a line which says what did not come back.
    """
    for entry in list(os.scandir(target)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            Path(entry.path).unlink()
    tally = _Returned(max_bytes=max_bytes)
    _return_directory(directory, target, tally, 0)
    if not tally.left_out:
        return ""
    return (
        f"… {tally.left_out} entries of {target} were not returned: at most {MAX_RETURNED_ENTRIES} entries, "
        f"{max_bytes} bytes, {MAX_RETURNED_DEPTH} directories deep, no sockets"
    )


def _return_directory(directory: int, target: Path, tally: _Returned, depth: int) -> None:
    with os.scandir(directory) as entries:
        names = sorted(entry.name for entry in entries)
    for number, name in enumerate(names):
        if tally.entries >= MAX_RETURNED_ENTRIES:
            tally.left_out += len(names) - number
            return
        tally.entries += 1
        status = os.lstat(name, dir_fd=directory)
        mode = status.st_mode
        path = target / name
        if stat.S_ISLNK(mode):
            path.symlink_to(os.readlink(name, dir_fd=directory))
        elif stat.S_ISFIFO(mode):
            os.mkfifo(path)
        elif stat.S_ISDIR(mode) and depth < MAX_RETURNED_DEPTH:
            path.mkdir()
            child = _open(name, directory, os.O_DIRECTORY)
            try:
                _return_directory(child, path, tally, depth + 1)
            finally:
                os.close(child)
        elif stat.S_ISREG(mode) and tally.size_bytes + status.st_size <= tally.max_bytes:
            tally.size_bytes += status.st_size
            with os.fdopen(_open(name, directory, 0), "rb") as content, path.open("xb") as copy:
                shutil.copyfileobj(content, copy, 1 << 20)
            path.chmod(mode & 0o755 | 0o600)
        else:
            tally.left_out += 1


def _open(name: str, directory: int, flags: int) -> int:
    """Open for reading without following a link; a mode that forbids its owner to read is overruled."""
    flags |= os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=directory)
    except PermissionError:
        handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            Path(f"/proc/self/fd/{handle}").chmod(0o700)
        finally:
            os.close(handle)
        return os.open(name, flags, dir_fd=directory)
