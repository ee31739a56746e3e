from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaharness.errors import HarnessError
from metaharness.source import MAX_FILE_BYTES, MAX_FILES, SourceTree, path_problem

NAMES = st.text("abcXYZ_-09.", min_size=1, max_size=12).filter(lambda name: path_problem(name) is None)
FILES = st.dictionaries(NAMES, st.binary(max_size=40), max_size=8)


@pytest.mark.parametrize(
    "path",
    [
        "", "/etc/passwd", "../x", "a/../b", "./a", "a//b", "a/", "a\\b", "a\0b", "a\nb", "a\u202eb", "a\u200bb",
        "\udc80", ".git/config", ".GIT/config", "a/.Git/hooks/x", ".git./x", ".git /x", "GIT~1/x",
        ".git::$INDEX_ALLOCATION/x",
        ".g\u200cit/x", "x" * 201, "a/" * 600 + "b",
    ],
)  # fmt: skip
def test_paths_that_must_not_enter(path: str) -> None:
    assert path_problem(path) is not None
    with pytest.raises(HarnessError):
        SourceTree({path: b""})


@pytest.mark.parametrize("path", ["a", "a/b.py", ".gitignore", "über/ñ.txt", "a b.md", "digit/x", ".github/x"])
def test_paths_that_may_enter(path: str) -> None:
    assert path_problem(path) is None
    assert SourceTree({path: b"x"})[path] == b"x"


@given(FILES)
def test_the_digest_depends_on_content_and_not_on_order(files: dict[str, bytes]) -> None:
    tree = SourceTree(files)
    assert SourceTree(dict(reversed(files.items()))) == tree
    assert SourceTree(dict(reversed(files.items()))).digest == tree.digest
    for path in files:
        assert tree.replace({path: files[path] + b"!"}).digest != tree.digest
        assert tree.replace({path: None}).digest != tree.digest


def test_moving_bytes_between_name_and_content_changes_the_digest() -> None:
    assert SourceTree({"a": b"bc"}).digest != SourceTree({"ab": b"c"}).digest
    assert SourceTree({"a": b"1", "b": b""}).digest != SourceTree({"a": b"", "b": b"1"}).digest


@given(FILES)
def test_written_trees_read_back(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]) -> None:
    directory = tmp_path_factory.mktemp("tree")
    tree = SourceTree(files)
    tree.write_to(directory)
    assert SourceTree.from_directory(directory, ignore=False) == tree


def test_diff_reads_like_git(tmp_path: Path) -> None:
    before = SourceTree({"a.py": b"x = 1\n", "gone.txt": b"bye", "blob": b"\0\1"})
    after = SourceTree({"a.py": b"x = 2\n", "new.txt": b"hi\n", "blob": b"\0\2"})
    text = before.diff(after)
    assert "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n" in text
    assert "--- a/gone.txt\n+++ /dev/null\n" in text
    assert "-bye\n\\ No newline at end of file\n" in text
    assert "+++ b/new.txt" in text
    assert "Binary file blob differs" in text
    assert before.diff(before) == ""


def test_limits_are_named() -> None:
    with pytest.raises(HarnessError, match="at most"):
        SourceTree({"big": b"x" * (MAX_FILE_BYTES + 1)})
    with pytest.raises(HarnessError, match="at most"):
        SourceTree({str(number): b"" for number in range(MAX_FILES + 1)})
    with pytest.raises(HarnessError, match="bytes together"):
        SourceTree({str(number): b"x" * MAX_FILE_BYTES for number in range(9)})
    with pytest.raises(HarnessError, match="a file and a directory"):
        SourceTree({"a": b"", "a/b": b""})


def test_links_and_special_files_are_refused(tmp_path: Path) -> None:
    def read(name: str) -> None:
        with pytest.raises(HarnessError, match=name):
            SourceTree.from_directory(tmp_path / name)

    secret = tmp_path / "secret"
    secret.write_text("key")
    for name in ("symlink", "dirlink", "hardlink", "fifo"):
        (tmp_path / name).mkdir()
    (tmp_path / "symlink" / "symlink").symlink_to(secret)
    (tmp_path / "dirlink" / "dirlink").symlink_to("/etc")
    os.link(secret, tmp_path / "hardlink" / "hardlink")
    os.mkfifo(tmp_path / "fifo" / "fifo")
    for name in ("symlink", "dirlink", "hardlink", "fifo"):
        read(name)
    with pytest.raises(HarnessError, match="not a directory"):
        SourceTree.from_directory(secret)


def test_caches_and_secrets_stay_out(tmp_path: Path) -> None:
    for path in ("a.py", ".env", "__pycache__/a.pyc", ".git/config", "venv/x", "b.pyc"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("x")
    assert list(SourceTree.from_directory(tmp_path)) == ["a.py"]


def test_a_harness_needs_its_file() -> None:
    with pytest.raises(HarnessError, match=r"no harness\.toml"):
        _ = SourceTree({"a.py": b""}).config
