"""Candidates in, candidates out."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from metaharness.archive import Archive, Located
from metaharness.candidate import Finding
from metaharness.errors import ArchiveError, MissingDependency
from metaharness.source import SourceTree
from tests.archive.support import commit, git
from tests.ledger.examples import tree
from tests.support import require


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with Archive.open(tmp_path / "archive", create=True, clock=lambda: 1_700_000_500.0) as made:
        yield made


def test_files_come_back_byte_for_byte(archive: Archive) -> None:
    files = SourceTree(
        {
            "harness.toml": tree()["harness.toml"],
            "crlf.txt": b"a\r\nb\r\n",
            "binary.bin": bytes(range(256)),
            "empty": b"",
            "$Id$.py": b"$Id$ ident",
            "a/b/c/d.py": b"deep\n",
            "a.b": b"sorts between a and a/",
            "a-b": b"",
            "naïve/ünïcode.txt": "é".encode(),
            ".gitattributes": b"* text eol=crlf ident filter=evil\n*.py export-subst\n",
            ".gitignore": b"*\n",
            ".gitmodules": b'[submodule "x"]\n\tpath = x\n\turl = ext::sh -c evil\n',
            "--option": b"-",
        }
    )
    found = archive.read_tree(commit(archive, 0, files=files))
    assert found == files
    assert found.digest == files.digest
    assert archive.read_tree("refs/candidates/support/c0000") == files
    git("-C", archive.git_dir, "fsck", "--full")


def test_a_commit_is_the_same_wherever_it_is_made(archive: Archive, tmp_path: Path) -> None:
    first = commit(archive, 0)
    with Archive.open(tmp_path / "other", create=True) as other:
        assert commit(other, 0) == first
        assert commit(other, 1, first) == commit(archive, 1, first)
    assert archive.candidate_refs("support") == {"c0000": first, "c0001": commit(archive, 1, first)}


def test_an_orphan_with_the_same_files_and_parents_is_adopted(archive: Archive) -> None:
    seed = commit(archive, 0)
    orphan = commit(archive, 1, seed)
    assert commit(archive, 1, seed, hypothesis="Said differently.", created_at=1.0) == orphan
    assert archive.candidate_refs("support")["c0001"] == orphan


def test_an_orphan_with_other_files_or_parents_is_replaced(archive: Archive) -> None:
    seed, other = commit(archive, 0), commit(archive, 1)
    orphan = commit(archive, 2, seed)
    second = commit(archive, 2, seed, files=tree("y = 1\n"))
    third = commit(archive, 2, other, files=tree("y = 1\n"))
    assert len({orphan, second, third}) == 3
    assert archive.candidate_refs("support")["c0002"] == third


def test_rejected_proposals_are_kept_apart(archive: Archive) -> None:
    seed = commit(archive, 0)
    findings = [
        Finding(check="leak", message="holds a val input", path="harness.py", line=3),
        Finding(check="parse", message="a second one"),
    ]
    made = archive.commit_rejected(
        campaign="support", number=7, tree=tree("bad"), parents=[seed], findings=findings, proposer="x", created_at=5.0
    )
    assert list(archive.candidate_refs("support")) == ["c0000"]
    assert archive.read_tree("refs/rejected/support/p0007") == tree("bad")
    body = git("-C", archive.git_dir, "log", "-1", "--format=%s%n%b", made)
    assert body.startswith("Rejected - leak: harness.py:3: holds a val input\n  parse: a second one\n\nMetaharness-")


def test_parents_are_checked_and_named(archive: Archive) -> None:
    old = commit(archive, 3, campaign="old")
    seed = commit(archive, 0, old)
    child = commit(archive, 1, seed, old)
    trailers = git("-C", archive.git_dir, "log", "-1", "--format=%(trailers:key=Metaharness-Parents)", child)
    assert trailers.strip() == "Metaharness-Parents: c0000, old/c0003"
    with pytest.raises(ArchiveError, match="no such object"):
        commit(archive, 2, "0" * 40)
    with pytest.raises(ArchiveError, match="is no commit"):
        commit(archive, 2, "refs/candidates/support/c0000\nauthor x")
    blob = git("-C", archive.git_dir, "rev-parse", f"{seed}:harness.py").strip()
    with pytest.raises(ArchiveError, match="a blob, not a commit"):
        commit(archive, 2, blob)
    assert "c0002" not in archive.candidate_refs("support")


def test_lineage(archive: Archive) -> None:
    old = commit(archive, 3, campaign="old")
    zero, one = commit(archive, 0), commit(archive, 1, old)
    two = commit(archive, 2, zero)
    three = commit(archive, 3, two, one)
    graph = archive.lineage("support")
    assert {node: data["commit"] for node, data in graph.nodes(data=True)} == {
        "c0000": zero, "c0001": one, "c0002": two, "c0003": three, "old/c0003": old,
    }  # fmt: skip
    assert set(graph.edges(data="role")) == {
        ("old/c0003", "c0001", "base"),
        ("c0000", "c0002", "base"),
        ("c0002", "c0003", "base"),
        ("c0001", "c0003", "donor"),
    }
    assert list(archive.lineage("empty")) == []


def test_candidates_are_listed_by_number(archive: Archive) -> None:
    for number in (10_000, 2, 9_999):
        commit(archive, number)
    assert list(archive.candidate_refs("support")) == ["c0002", "c9999", "c10000"]


def test_resolve(archive: Archive) -> None:
    one, other, only = commit(archive, 1), commit(archive, 1, campaign="other"), commit(archive, 2)
    assert archive.resolve("c0001", "support") == Located("support", "c0001", one)
    assert archive.resolve("other/c0001", "support") == ("other", "c0001", other)
    assert archive.resolve("c0002", None) == ("support", "c0002", only)
    for text, campaign, message in (
        ("c0001", None, "is in 2 campaigns: name one of other/c0001, support/c0001"),
        ("c0009", None, r"no campaign has a candidate 'c0009' \(campaigns: other, support\)"),
        ("c0009", "support", r"campaign 'support' has no candidate 'c0009' \(it has 2: c0001 to c0002\)"),
        ("suport/c0001", None, r"unknown campaign 'suport'; did you mean 'support'\? \(known: other, support\)"),
        ("best", "support", "name it `c0042`"),
        ("--all", "support", "name it `c0042`"),
        ("a\nb/c0001", None, "unknown campaign"),
        ("../c0001", None, "unknown campaign"),
    ):
        with pytest.raises(ArchiveError, match=message):
            archive.resolve(text, campaign)


def test_campaigns(archive: Archive) -> None:
    assert archive.campaigns() == []
    (archive.campaign_dir("fresh")).mkdir()
    commit(archive, 0, campaign="cloned")
    assert archive.campaigns() == ["cloned", "fresh"]
    assert archive.campaign_dir("fresh") == archive.root / "campaigns" / "fresh"


@pytest.mark.parametrize("name", ["", ".", "..", "a..b", "a/b", "a.lock", "a.", "A", "-a", "a b", "a\n", "x" * 64, "é"])
def test_names_that_no_campaign_can_have(archive: Archive, name: str) -> None:
    with pytest.raises(ArchiveError, match="campaign"):
        archive.campaign_dir(name)
    with pytest.raises(ArchiveError):
        commit(archive, 0, campaign=name)
    with pytest.raises(ArchiveError):
        archive.set_best(name, "0" * 40)
    assert archive.campaigns() == []


@pytest.mark.parametrize("name", ["a", "a1", "a.b-c_d", "x" * 63, "a-", "lock"])
def test_names_that_git_and_the_archive_take(archive: Archive, name: str) -> None:
    made = commit(archive, 0, campaign=name)
    archive.set_best(name, made)
    assert archive.candidate_refs(name) == {"c0000": made}


def test_test_reads(archive: Archive) -> None:
    assert archive.test_reads() == []
    archive.record_test_read(kind="campaign", campaign="support", candidates=["c0001", "c0000"], tasks=["t1"], at=1.5)
    with (archive.root / "test_reads").open("ab") as handle:
        handle.write(b'{"kind":"eval","camp')  # a crash in the middle of a line
    archive.record_test_read(kind="export", campaign="", candidates=["x"], tasks=["t2", "t3"], at=2.5)
    first, torn, second = archive.test_reads()
    assert dataclasses.asdict(first) == {
        "kind": "campaign", "campaign": "support", "candidates": ("c0001", "c0000"), "tasks": ("t1",), "at": 1.5,
    }  # fmt: skip
    assert torn.kind == "unreadable"
    assert (second.kind, second.touches({"t3", "t9"}), second.touches(["t1"])) == ("export", True, False)


def test_without_git_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDependency, match=r"install git 2\.32"):
        Archive.open(tmp_path, create=True)


def test_an_absent_archive(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="there is none: `metaharness run` makes one"):
        Archive.open(tmp_path / "absent")
    assert not (tmp_path / "absent").exists()
    (tmp_path / "file").touch()
    with pytest.raises(ArchiveError, match="cannot be made"):
        Archive.open(tmp_path / "file", create=True)


def test_a_half_made_archive_is_finished(tmp_path: Path) -> None:
    (tmp_path / "campaigns").mkdir()
    (tmp_path / ".harnesses.git.abc").mkdir()
    with Archive.open(tmp_path, create=True) as archive:
        commit(archive, 0)
    with Archive.open(tmp_path, create=True) as archive:
        assert list(archive.candidate_refs("support")) == ["c0000"]


def test_an_archive_that_cannot_be_written(archive: Archive) -> None:
    require(os.geteuid() == 0, "the right to become another user")
    made = commit(archive, 0)
    for parent in (archive.root.parent, *archive.root.parent.parents[:2]):
        parent.chmod(0o755)
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom metaharness.archive import Archive\n"
        "import metaharness.archive.repository\nfrom metaharness.errors import ArchiveError\n"
        "from tests.archive.support import commit\nroot = Path(sys.argv[1])\n"
        "Archive.open(root).close()\nos.setuid(65534)\n"
        "try:\n    Archive.open(root, create=True)\nexcept ArchiveError as error:\n    print(error)\n"
        "with Archive.open(root) as archive:\n"
        "    print(archive.resolve('c0000').commit)\n"
        "    print(archive.read_tree(archive.resolve('c0000').commit).config.name)\n"
        "    try:\n        commit(archive, 1)\n    except ArchiveError as error:\n        print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, archive.root],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    refused, resolved, name, unwritten = done.stdout.splitlines()
    assert "not writable: choose another directory" in refused
    assert (resolved, name) == (made, "few_shot")
    assert "cannot be written: Permission denied" in unwritten


def test_a_tree_that_is_none_of_a_harness_is_refused(archive: Archive) -> None:
    env = {"GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x@x", "GIT_COMMITTER_NAME": "x", "GIT_COMMITTER_EMAIL": "x@x"}
    blob = git("-C", archive.git_dir, "rev-parse", f"{commit(archive, 0)}:harness.py").strip()

    def planted(listing: str) -> str:
        made = subprocess.run(
            ["git", "-C", str(archive.git_dir), "mktree", "--missing"],
            input=listing.encode(), capture_output=True, check=True,
        ).stdout.decode().strip()  # fmt: skip
        return git("-C", archive.git_dir, "commit-tree", made, "-m", "x", env=env).strip()

    for listing, message in (
        (f"120000 blob {blob}\tlink\n", "'link' is a link or submodule"),
        (f"160000 commit {'1' * 40}\tsub\n", "'sub' is a link or submodule"),
        (f"100644 blob {blob}\t.GIT\n", "spells .git"),
        ("".join(f"100644 blob {blob}\tf{number}\n" for number in range(501)), "more than 500 files"),
        (f"100644 blob {'2' * 40}\tf\n", "no such object"),
    ):
        with pytest.raises(ArchiveError, match=message):
            archive.read_tree(planted(listing))
    for name in ("0" * 40, "refs/heads/none", "HEAD\nHEAD"):
        with pytest.raises(ArchiveError):
            archive.read_tree(name)
