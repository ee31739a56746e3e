"""Copying trees in and out: readable by others, never through a link, bounded."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaharness.errors import SandboxUnavailable
from metaharness.sandboxes.files import readable_by_others, return_tree, share_tree
from tests.sandboxes.helpers import private_directory

CHARACTERS = st.characters(blacklist_characters="/\0", blacklist_categories=("Cs",))
NAMES = st.text(CHARACTERS, min_size=1, max_size=20).filter(lambda name: name not in (".", ".."))
TREES = st.recursive(st.binary(max_size=50), lambda inner: st.dictionaries(NAMES, inner, max_size=4), max_leaves=8)


def write(path: Path, tree: object) -> None:
    if isinstance(tree, bytes):
        path.write_bytes(tree)
    else:
        assert isinstance(tree, dict)
        path.mkdir()
        for name, inner in tree.items():
            write(path / name, inner)


def read(path: Path) -> object:
    return {p.name: read(p) for p in path.iterdir()} if path.is_dir() else path.read_bytes()


@contextmanager
def descriptor(path: Path) -> Iterator[int]:
    opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield opened
    finally:
        os.close(opened)


@given(tree=st.dictionaries(NAMES, TREES, max_size=4), mask=st.sampled_from([0o022, 0o077, 0o777]))
def test_a_shared_tree_is_equal_and_readable(tree: dict[str, object], mask: int) -> None:
    with private_directory() as directory:
        write(directory / "source", tree)
        before = os.umask(mask)
        try:
            count = share_tree(directory / "source", directory / "copy")
        finally:
            os.umask(before)
        assert read(directory / "copy") == tree
        assert count == sum(len(names) + len(files) for _, names, files in os.walk(directory / "copy"))
        assert not readable_by_others(directory / "copy")  # its parent is closed
        directory.chmod(0o755)
        assert readable_by_others(directory / "copy")


@given(tree=st.dictionaries(NAMES, TREES, max_size=4), old=st.dictionaries(NAMES, TREES, max_size=3))
def test_a_returned_tree_replaces_what_was_there(tree: dict[str, object], old: dict[str, object]) -> None:
    with private_directory() as directory:
        write(directory / "inside", tree)
        write(directory / "target", old)
        with descriptor(directory / "inside") as opened:
            assert return_tree(opened, directory / "target", max_bytes=1 << 20) == ""
        assert read(directory / "target") == tree


def test_closed_files_are_copied_and_open_ones_linked() -> None:
    with private_directory() as directory:
        source = directory / "source"
        source.mkdir()
        given_modes = {"open": 0o644, "closed": 0o600, "program": 0o755, "own-program": 0o700, "shared": 0o666}
        for name, mode in given_modes.items():
            (source / name).write_text(name)
            (source / name).chmod(mode)
        share_tree(source, directory / "copy")
        linked = {p.name for p in (directory / "copy").iterdir() if p.stat().st_ino == (source / p.name).stat().st_ino}
        modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (directory / "copy").iterdir()}
        assert linked == {"open", "program"}
        assert modes == {"open": 0o644, "closed": 0o644, "program": 0o755, "own-program": 0o755, "shared": 0o644}
        assert stat.S_IMODE((source / "closed").stat().st_mode) == 0o600
        assert (directory / "copy" / "closed").stat().st_mtime_ns == (source / "closed").stat().st_mtime_ns


def test_links_are_copied_as_links() -> None:
    with private_directory() as directory:
        (directory / "secret").write_text("label")
        (directory / "source").mkdir()
        (directory / "source" / "file").symlink_to(directory / "secret")
        (directory / "source" / "directory").symlink_to(directory)
        share_tree(directory / "source", directory / "copy")
        assert (directory / "copy" / "file").readlink() == directory / "secret"
        assert (directory / "copy" / "directory").readlink() == directory


def test_what_is_no_file_does_not_enter() -> None:
    with private_directory() as directory:
        (directory / "source").mkdir()
        os.mkfifo(directory / "source" / "fifo")
        with pytest.raises(SandboxUnavailable, match="fifo"):
            share_tree(directory / "source", directory / "copy")


def test_names_can_be_left_out() -> None:
    with private_directory() as directory:
        write(directory / "source", {"keep": {"drop": b"", "keep": b""}, "drop": {"x": b""}})
        share_tree(directory / "source", directory / "copy", skip=lambda where, name: name == "drop" and not where)
        assert read(directory / "copy") == {"keep": {"drop": b"", "keep": b""}}


def test_returned_links_are_not_followed_either_way() -> None:
    with private_directory() as directory:
        outside = directory / "outside"
        outside.mkdir()
        (outside / "precious").write_text("precious")
        write(directory / "inside", {"dir": {}})
        (directory / "inside" / "file").symlink_to(outside / "precious")
        (directory / "inside" / "dir" / "up").symlink_to("../../outside")
        target = directory / "target"
        target.mkdir()
        (target / "file").symlink_to(outside / "precious")
        (target / "dir").symlink_to(outside)
        with descriptor(directory / "inside") as opened:
            assert return_tree(opened, target, max_bytes=1000) == ""
        assert (target / "file").readlink() == outside / "precious"
        assert not (target / "dir").is_symlink()
        assert (outside / "precious").read_text() == "precious"


def test_what_comes_back_is_bounded() -> None:
    with private_directory() as directory:
        write(directory / "inside", {str(number): b"x" * 100 for number in range(10)})
        (directory / "target").mkdir()
        with descriptor(directory / "inside") as opened:
            note = return_tree(opened, directory / "target", max_bytes=350)
        assert len(list((directory / "target").iterdir())) == 3
        assert "7 entries" in note
