"""Scorecards as git notes, so that `git log --notes=metaharness` shows them.

The notes lie in one tree, by the first two hex digits of the commit (a layout that git reads as its own), under one
commit without parents: the newest scorecards are what counts, and `git log --all` shows them once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from metaharness.archive.messages import build_message, identity
from metaharness.archive.trees import FILE_MODE, TREE_MODE, Entry, parse_tree, write_entries
from metaharness.errors import ArchiveError

if TYPE_CHECKING:
    from metaharness.archive.repository import Repository

NOTES_REF = "refs/notes/metaharness"
FIRST_KEYS = ("parts", "test", "manifest")
WHOLE_ID = 40


def format_note(data: Mapping[str, Any]) -> str:
    """Return a note as short JSON made to be read: scores first, one line for each part.

    Everything outside ASCII is escaped: a note is shown in terminals, and may quote what a harness wrote.
    """
    order = [*(key for key in FIRST_KEYS if key in data), *(key for key in data if key not in FIRST_KEYS)]
    lines = []
    for key in order:
        value = data[key]
        if isinstance(value, Mapping) and value and all(isinstance(item, Mapping) for item in value.values()):
            inner = ",\n".join(f"  {json.dumps(name)}: {json.dumps(item)}" for name, item in value.items())
            lines.append(f" {json.dumps(key)}: {{\n{inner}\n }}")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n" if lines else "{}\n"


def write_notes(repository: Repository, notes: Mapping[str, Mapping[str, Any]], at: float) -> None:
    """Set the notes of commits, all at once; the caller holds the archive's lock.

    Args:
        repository: Where.
        notes: Commit to note.
        at: Unix time in seconds.

    Raises:
        ArchiveError: A commit is absent, or the ref has changed meanwhile.
    """
    if not notes:
        return
    for commit in notes:
        if repository.find(f"{commit}^{{commit}}") is None:
            raise ArchiveError(f"{repository.git_dir}: {commit}: no such commit")
    before = repository.find(NOTES_REF)
    root = _read_entries(repository, f"{before}^{{tree}}") if before is not None else {}
    folders: dict[str, dict[str, Entry]] = {}
    # Notes which somebody else's git wrote without directories are moved into ours.
    for name in [name for name, entry in root.items() if len(name) == WHOLE_ID and entry.mode != TREE_MODE]:
        _folder(repository, root, folders, name)[name[2:]] = root.pop(name)
    who = f"{identity('metaharness')} {max(0, int(at))} +0000"
    message = build_message("Scorecards", ["Kept as notes on the candidates: `git log --notes=metaharness`."], [])
    with repository.writer() as writer:
        for commit, data in notes.items():
            blob = writer.write("blob", format_note(data).encode())
            _folder(repository, root, folders, commit)[commit[2:]] = Entry(mode=FILE_MODE, object_id=blob)
        for name, entries in folders.items():
            root[name] = Entry(mode=TREE_MODE, object_id=write_entries(writer, entries))
        tree = write_entries(writer, root)
        commit = writer.write("commit", f"tree {tree}\nauthor {who}\ncommitter {who}\n\n{message}".encode())
    repository.update_refs({NOTES_REF: (commit, before)})


def read_note(repository: Repository, commit: str) -> dict[str, Any] | None:
    """Return the note of a commit, or None.

    Raises:
        ArchiveError: It is no JSON object.
    """
    for path in (f"{commit[:2]}/{commit[2:]}", commit, f"{commit[:2]}/{commit[2:4]}/{commit[4:]}"):
        blob = repository.find(f"{NOTES_REF}:{path}")
        if blob is None:
            continue
        try:
            data = json.loads(repository.read(blob, "blob"))
        except ValueError as error:
            raise ArchiveError(f"{repository.git_dir}: the note of {commit} is not JSON: {error}") from error
        if not isinstance(data, dict):
            raise ArchiveError(f"{repository.git_dir}: the note of {commit} is no JSON object")
        return data
    return None


def _read_entries(repository: Repository, name: str) -> dict[str, Entry]:
    return parse_tree(repository.read(name, "tree"))


def _folder(
    repository: Repository, root: Mapping[str, Entry], folders: dict[str, dict[str, Entry]], commit: str
) -> dict[str, Entry]:
    """Return the entries of the directory that the note of a commit lies in; deeper directories are flattened."""
    name = commit[:2]
    if name not in folders:
        entries: dict[str, Entry] = {}
        if name in root:
            for inner, entry in _read_entries(repository, root[name].object_id).items():
                if entry.mode == TREE_MODE:
                    found = _read_entries(repository, entry.object_id)
                    entries |= {f"{inner}{rest}": deeper for rest, deeper in found.items()}
                else:
                    entries[inner] = entry
        folders[name] = entries
    return folders[name]
