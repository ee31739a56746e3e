"""Source trees and git trees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from metaharness.archive.objects import ObjectWriter
from metaharness.errors import ArchiveError, HarnessError
from metaharness.source import MAX_FILES, SourceTree

if TYPE_CHECKING:
    from metaharness.archive.repository import Repository

FILE_MODE = "100644"
TREE_MODE = "40000"
FILE_MODES = frozenset({FILE_MODE, "100755"})
MAX_DIRECTORIES = 4 * MAX_FILES


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a git tree: mode as git writes it (`100644`, `40000`, …) and object id in hex."""

    mode: str
    object_id: str


def parse_tree(data: bytes) -> dict[str, Entry]:
    """Read the content of a git tree object: name to entry."""
    entries = {}
    position = 0
    while position < len(data):
        space = data.index(b" ", position)
        end = data.index(b"\0", space)
        name = data[space + 1 : end].decode("utf-8", "surrogateescape")
        entries[name] = Entry(mode=data[position:space].decode(), object_id=data[end + 1 : end + 21].hex())
        position = end + 21
    return entries


def write_entries(writer: ObjectWriter, entries: Mapping[str, Entry]) -> str:
    """Write a git tree object and return its id."""
    encoded = {name.encode("utf-8", "surrogateescape"): entry for name, entry in entries.items()}
    # git orders a directory as if its name ended in a slash.
    order = sorted(encoded, key=lambda name: name + b"/" if encoded[name].mode == TREE_MODE else name)
    lines = [b"%s %s\0%s" % (encoded[n].mode.encode(), n, bytes.fromhex(encoded[n].object_id)) for n in order]
    return writer.write("tree", b"".join(lines))


def write_source(writer: ObjectWriter, tree: SourceTree) -> str:
    """Write all files of a tree, unfiltered, and return the id of the git tree."""
    root: dict[str, Any] = {}
    for path, data in tree.items():
        *folders, name = path.split("/")
        folder = root
        for part in folders:
            folder = folder.setdefault(part, {})
        folder[name] = data
    return _write_folder(writer, root)


def _write_folder(writer: ObjectWriter, folder: Mapping[str, Any]) -> str:
    entries = {
        name: Entry(mode=TREE_MODE, object_id=_write_folder(writer, content))
        if isinstance(content, dict)
        else Entry(mode=FILE_MODE, object_id=writer.write("blob", content))
        for name, content in folder.items()
    }
    return write_entries(writer, entries)


def read_source(repository: Repository, name: str) -> SourceTree:
    """Read the files of a commit.

    Raises:
        ArchiveError: There is no such commit, or its tree is none of a harness (links, limits, paths).
    """
    files: dict[str, bytes] = {}
    for path, entry in _walk(repository, f"{name}^{{tree}}", "", [0]):
        if entry.mode not in FILE_MODES:
            raise ArchiveError(f"{repository.git_dir}: {name}: {path!r} is a link or submodule, not a file")
        if len(files) >= MAX_FILES:
            raise ArchiveError(f"{repository.git_dir}: {name}: more than {MAX_FILES} files")
        files[path] = repository.read(entry.object_id, "blob")
    try:
        return SourceTree(files)
    except HarnessError as error:
        raise ArchiveError(f"{repository.git_dir}: {name}: {error}") from error


def _walk(repository: Repository, name: str, prefix: str, count: list[int]) -> Iterator[tuple[str, Entry]]:
    count[0] += 1
    if count[0] > MAX_DIRECTORIES or prefix.count("/") > MAX_FILES:
        raise ArchiveError(f"{repository.git_dir}: {name}: more than {MAX_DIRECTORIES} directories")
    for entry_name, entry in parse_tree(repository.read(name, "tree")).items():
        path = f"{prefix}{entry_name}"
        if entry.mode == TREE_MODE:
            yield from _walk(repository, entry.object_id, f"{path}/", count)
        else:
            yield path, entry
