"""The cache directory: nobody else can have planted or can change what sandboxes run."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from metaharness.errors import SandboxUnavailable
from metaharness.sandboxes.cache import Cache, can_execute, count_entries, default_cache_dirs
from tests.sandboxes.helpers import private_directory
from tests.support import require


@pytest.fixture
def directory() -> Iterator[Path]:
    with private_directory() as made:
        made.chmod(0o755)
        yield made


def test_it_is_made_whatever_the_umask(directory: Path) -> None:
    before = os.umask(0o777)
    try:
        cache = Cache(directory / "cache")
        sub = cache.directory("sub")
    finally:
        os.umask(before)
    assert (directory / "cache").stat().st_mode & 0o7777 == 0o755
    assert sub.stat().st_mode & 0o7777 == 0o755


def test_a_link_is_refused(directory: Path) -> None:
    (directory / "elsewhere").mkdir()
    (directory / "cache").symlink_to(directory / "elsewhere")
    with pytest.raises(SandboxUnavailable, match="link"):
        Cache(directory / "cache")


def test_a_file_is_refused(directory: Path) -> None:
    (directory / "cache").write_text("")
    with pytest.raises(SandboxUnavailable, match="cache"):
        Cache(directory / "cache")


def test_what_belongs_to_another_user_is_refused(directory: Path) -> None:
    require(os.geteuid() == 0, "root, to make a directory of another user")
    (directory / "cache").mkdir()
    os.chown(directory / "cache", 61000, 61000)
    with pytest.raises(SandboxUnavailable, match="belongs to user 61000"):
        Cache(directory / "cache")
    (directory / "theirs").mkdir()
    os.chown(directory / "theirs", 61000, 61000)
    with pytest.raises(SandboxUnavailable, match="belongs to user 61000"):
        Cache(directory / "theirs" / "cache")


def test_a_parent_that_others_can_write_is_refused(directory: Path) -> None:
    (directory / "open").mkdir()
    (directory / "open").chmod(0o777)
    with pytest.raises(SandboxUnavailable, match="others can write"):
        Cache(directory / "open" / "cache")
    (directory / "open").chmod(0o1777)  # as /tmp: nobody can replace what is ours
    Cache(directory / "open" / "cache")


def test_a_parent_that_others_cannot_enter_is_refused_to_root(directory: Path) -> None:
    require(os.geteuid() == 0, "root")
    (directory / "closed").mkdir(mode=0o700)
    with pytest.raises(SandboxUnavailable, match="cannot enter"):
        Cache(directory / "closed" / "cache")


def test_the_first_acceptable_one_is_taken_and_all_refusals_are_named(directory: Path) -> None:
    (directory / "file").write_text("")
    roots = (directory / "file", directory / "a", directory / "b")
    assert Cache.open_first(roots, lambda cache: "bad" if cache.root.name == "a" else "").root == directory / "b"
    with pytest.raises(SandboxUnavailable, match=r"file.*a: bad.*b: bad"):
        Cache.open_first(roots, lambda cache: "bad")


def test_something_is_built_once_by_many(directory: Path) -> None:
    built: list[int] = []

    def build(path: Path) -> int:
        built.append(1)
        path.mkdir()
        (path / "file").write_text("content")
        return 1

    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(Cache(directory / "cache").build_once("thing-1", build)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1
    assert len(set(found)) == 1
    assert (found[0] / "file").read_text() == "content"


def test_a_failed_build_leaves_nothing_complete(directory: Path) -> None:
    cache = Cache(directory / "cache")

    def broken(path: Path) -> int:
        path.mkdir()
        (path / "half").write_text("")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        cache.build_once("thing", broken)

    def whole(path: Path) -> int:
        path.mkdir()
        (path / "whole").write_text("")
        return 1

    made = cache.build_once("thing", whole)
    assert sorted(entry.name for entry in made.iterdir()) == [".complete", "whole"]


def test_a_directory_that_lost_a_file_is_built_anew(directory: Path) -> None:
    cache = Cache(directory / "cache")

    def build(path: Path) -> int:
        (path / "sub").mkdir(parents=True)
        (path / "sub" / "file").write_text("content")
        return count_entries(path)

    made = cache.build_once("thing", build)
    (made / "sub" / "file").unlink()
    assert (cache.build_once("thing", build) / "sub" / "file").read_text() == "content"


def test_whether_a_program_runs_is_tried(directory: Path) -> None:
    cache = Cache(directory / "cache")
    assert can_execute(cache, Path("/usr/bin/env")) == ""
    (directory / "not").write_text("#!/bin/sh\n")
    assert "does not run" in can_execute(cache, directory / "not")
    (directory / "fails").write_text("#!/bin/sh\necho broken >&2; exit 1\n")
    (directory / "fails").chmod(0o755)
    assert "broken" in can_execute(cache, directory / "fails")


def test_root_does_not_use_a_home_directory() -> None:
    first = default_cache_dirs()[0]
    assert first == Path("/var/cache/metaharness") if os.geteuid() == 0 else first.is_relative_to(Path.home())
