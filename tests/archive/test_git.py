"""The archive as the user's own git sees it, and the user's own git as the archive leaves it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaharness.archive import Archive
from metaharness.archive.notes import format_note
from metaharness.candidate import Finding, Scorecard
from metaharness.errors import ArchiveError, HarnessError
from metaharness.source import SourceTree
from tests.archive.support import commit, git, state
from tests.ledger.examples import tree
from tests.support import require

CARD = Scorecard(
    candidate="support/c0001",
    status="active",
    parts={
        "practice": {"mean": 0.5, "interval": [0.4, 0.6], "tasks": 96},
        "val": {"mean": None, "interval": [None, None], "tasks": 0},
    },
    manifest={"expected_flips": {"hit": 1, "of": 1}},
).to_json()


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with Archive.open(tmp_path / "archive", create=True, clock=lambda: 1_700_000_500.0) as made:
        yield made


def test_a_plain_clone_checks_the_winner_out(archive: Archive, tmp_path: Path) -> None:
    seed = commit(archive, 0)
    winner = commit(archive, 1, seed, files=tree("winner\n", **{"prompts/deep/x.txt": "x"}))
    archive.set_best("support", seed)
    archive.set_best("support", winner)
    archive.set_best("support", winner)
    git("clone", "-q", archive.git_dir, tmp_path / "clone")
    assert SourceTree.from_directory(tmp_path / "clone", ignore=True) == archive.read_tree(winner)
    assert git("-C", tmp_path / "clone", "status", "--porcelain") == ""
    assert git("-C", tmp_path / "clone", "branch", "--show-current") == "support/best\n"
    archive.set_best("other", seed)
    git("clone", "-q", archive.git_dir, tmp_path / "second")
    assert SourceTree.from_directory(tmp_path / "second", ignore=True) == archive.read_tree(seed)
    with pytest.raises(ArchiveError, match="no such object"):
        archive.set_best("support", "0" * 40)


def test_the_log_shows_lineage_hypotheses_and_scores(archive: Archive) -> None:
    seed = commit(archive, 0, hypothesis="Ask once.")
    left = commit(archive, 1, seed, hypothesis="Show examples.")
    right = commit(archive, 2, seed, hypothesis="Retry.")
    commit(archive, 3, left, right, hypothesis="Both.")
    archive.commit_rejected(
        campaign="support", number=3, tree=tree("z"), parents=[left], proposer="x", created_at=1_700_000_009.0,
        findings=[Finding(check="leak", message="holds a val input")],
    )  # fmt: skip
    archive.write_note(left, CARD)
    log = git("-C", archive.git_dir, "log", "--graph", "--notes=metaharness", "--all", "--format=%an | %s%n%N")
    for line in (
        "seed | Ask once.",
        "codemods | Show examples.",
        "codemods | Both.",
        "x | Rejected - leak: holds a val",
    ):
        assert line in log
    shown = [line.lstrip("| *\\/").rstrip() for line in log.splitlines() if '"practice"' in line]
    assert shown == ['"practice": {"mean": 0.5, "interval": [0.4, 0.6], "tasks": 96},']
    dates = git("-C", archive.git_dir, "log", "-1", "--format=%aI %cI %cn", left)
    assert dates == "2023-11-14T22:13:21+00:00 2023-11-14T22:13:21+00:00 metaharness\n"
    assert git("-C", archive.git_dir, "fsck", "--strict", "--full", "--no-dangling") == ""


def test_notes(archive: Archive) -> None:
    commits = [commit(archive, number) for number in range(6)]
    assert archive.read_note(commits[0]) is None
    archive.write_notes({})
    archive.write_notes({made: {**CARD, "candidate": made} for made in commits[:5]})
    archive.write_note(commits[0], {"status": "broken"})
    assert archive.read_note(commits[0]) == {"status": "broken"}
    assert archive.read_note(commits[4]) == {**CARD, "candidate": commits[4]}
    assert archive.read_note(commits[5]) is None
    for made in commits[:5]:
        shown = git("-C", archive.git_dir, "notes", "--ref=metaharness", "show", made)
        assert json.loads(shown) == archive.read_note(made)
    assert len(git("-C", archive.git_dir, "rev-list", "refs/notes/metaharness").splitlines()) == 1
    with pytest.raises(ArchiveError, match="no such commit"):
        archive.write_note("0" * 40, {})
    assert git("-C", archive.git_dir, "fsck", "--strict", "--full", "--no-dangling") == ""


def test_notes_that_another_git_has_written_are_kept(archive: Archive) -> None:
    commits = [commit(archive, number) for number in range(4)]
    env = {"GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x@x", "GIT_COMMITTER_NAME": "x", "GIT_COMMITTER_EMAIL": "x@x"}
    add = ("-C", archive.git_dir, "notes", "--ref=metaharness", "add", "-f", "-m")
    git(*add, '{"by": "hand"}', commits[0], env=env)
    assert archive.read_note(commits[0]) == {"by": "hand"}
    archive.write_note(commits[1], CARD)
    assert archive.read_note(commits[0]) == {"by": "hand"}
    git(*add, "no JSON", commits[2], env=env)
    git(*add, "[1]", commits[3], env=env)
    archive.write_note(commits[1], {})
    assert archive.read_note(commits[1]) == {}
    for made, message in ((commits[2], "is not JSON"), (commits[3], "is no JSON object")):
        with pytest.raises(ArchiveError, match=message):
            archive.read_note(made)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), plain, max_size=4))
def test_a_note_is_its_json_whatever_is_in_it(data: dict[str, object]) -> None:
    text = format_note(data)
    assert json.loads(text) == data
    assert text.isascii()
    assert not set(map(ord, text)) & set(range(32)) - {10}
    assert text.endswith("}\n")


def test_a_note_begins_with_the_scores() -> None:
    assert format_note(CARD).splitlines()[:4] == [
        "{",
        ' "parts": {',
        '  "practice": {"mean": 0.5, "interval": [0.4, 0.6], "tasks": 96},',
        '  "val": {"mean": null, "interval": [null, null], "tasks": 0}',
    ]


@pytest.mark.parametrize(
    "path",
    [
        ".git/config", ".GIT/hooks/pre-commit", ".Git", "a/.git", "a/.giT/x", ".git.", ".git ", ".git. . ",
        ".git::$INDEX", "git~1", "GIT~1/config", "a/git~2", ".g\u200cit/config", ".\u200dgit", ".gi\ufefft",
        ".git\u2028", "..", "a/../b", "/etc/passwd", "a//b", "./a", "a\\..\\b", ".git\\config", "a\nb", "\ud800", "",
    ],
)  # fmt: skip
def test_paths_that_spell_git_or_leave_the_tree_never_enter(archive: Archive, path: str) -> None:
    with pytest.raises(HarnessError):
        commit(archive, 0, files=SourceTree({**tree(), path: b"x"}))
    assert archive.candidate_refs("support") == {}


def test_every_path_that_does_enter_passes_the_checks_of_git(archive: Archive, tmp_path: Path) -> None:
    paths = [".gitattributes", ".github/x", "git", "git1", "x.git", ".gitx/y", "a~1/b", ".gitignore", "con", "aux.txt"]
    archive.set_best("support", commit(archive, 0, files=SourceTree({**tree(), **dict.fromkeys(paths, b"x\n")})))
    protect = ("-c", "core.protectHFS=true", "-c", "core.protectNTFS=true", "-c", "transfer.fsckObjects=true")
    git(*protect, "clone", "-q", "--no-local", archive.git_dir, tmp_path / "clone")
    assert all((tmp_path / "clone" / path).is_file() for path in paths)


@pytest.fixture
def hostile_home(tmp_path: Path) -> dict[str, str]:
    """A user whose git configuration would change every commit, if it were read."""
    home = tmp_path / "home"
    hooks = home / "hooks"
    hooks.mkdir(parents=True)
    for name in ("pre-commit", "reference-transaction", "post-checkout", "update", "post-update"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {home}/hook-ran\nexit 1\n")
        (hooks / name).chmod(0o755)
    (home / "templates" / "hooks").mkdir(parents=True)
    (home / "templates" / "hooks" / "reference-transaction").write_text(f"#!/bin/sh\ntouch {home}/hook-ran\nexit 1\n")
    (home / "templates" / "hooks" / "reference-transaction").chmod(0o755)
    (home / "attributes").write_text("* filter=evil text eol=crlf\n")
    (home / ".gitconfig").write_text(
        f"[core]\n hooksPath = {hooks}\n autocrlf = true\n attributesFile = {home}/attributes\n"
        f"[core]\n fsmonitor = touch {home}/ran\n"
        f"[init]\n templateDir = {home}/templates\n defaultBranch = trunk\n defaultObjectFormat = sha256\n"
        f'[filter "evil"]\n clean = touch {home}/filter-ran\n required = true\n'
        "[commit]\n gpgSign = true\n[gpg]\n program = false\n[i18n]\n commitEncoding = latin1\n"
        "[alias]\n update-ref = !false\n[core]\n logAllRefUpdates = always\n"
    )
    return {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "GIT_DEFAULT_HASH": "sha256"}


def test_the_users_configuration_and_hooks_play_no_part(
    tmp_path: Path, hostile_home: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Archive.open(tmp_path / "calm", create=True) as calm:
        expected = commit(calm, 0, hypothesis="Ünïcode.")
    for name, value in hostile_home.items():
        monkeypatch.setenv(name, value)
    with Archive.open(tmp_path / "archive", create=True) as archive:
        made = commit(archive, 0, hypothesis="Ünïcode.")
        archive.write_note(made, CARD)
        archive.set_best("support", made)
        assert made == expected
        assert archive.read_tree(made) == tree("x = 0\n")
        assert list(archive.lineage("support")) == ["c0000"]
        assert not (archive.git_dir / "hooks").exists()
        assert not (archive.git_dir / "logs").exists()
    home = Path(hostile_home["HOME"])
    assert sorted(path.name for path in home.iterdir()) == [".gitconfig", "attributes", "hooks", "templates"]


def test_hooks_of_the_archive_itself_do_not_run(archive: Archive, tmp_path: Path) -> None:
    hook = archive.git_dir / "hooks" / "reference-transaction"
    hook.parent.mkdir()
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    hook.chmod(0o755)
    commit(archive, 0)
    assert not (tmp_path / "ran").exists()


def test_the_repository_around_it_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    git("init", "-q", project)
    (project / "file.py").write_text("x = 1\n")
    (project / ".gitignore").write_text("/archive/\n")
    git("-C", project, "add", "-A")
    git("-C", project, "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "-m", "x")
    (project / "file.py").write_text("x = 2\n")
    git("-C", project, "add", "file.py")
    (project / "file.py").write_text("x = 3\n")
    before = (state(project), git("--no-optional-locks", "-C", project, "status", "--porcelain"))
    monkeypatch.chdir(project)
    # What git tells its hooks: here of the user's repository.
    for name, value in (
        ("GIT_DIR", ".git"), ("GIT_WORK_TREE", "."), ("GIT_INDEX_FILE", ".git/index"), ("GIT_PREFIX", ""),
        ("GIT_COMMON_DIR", ".git"), ("GIT_OBJECT_DIRECTORY", str(project / ".git" / "objects")), ("GIT_NAMESPACE", "x"),
        ("GIT_QUARANTINE_PATH", str(project / ".git" / "q")), ("GIT_CONFIG_PARAMETERS", "'core.bare=false'"),
    ):  # fmt: skip
        monkeypatch.setenv(name, value)
    with Archive.open(Path("archive"), create=True) as archive:
        made = commit(archive, 0)
        archive.write_note(made, CARD)
        archive.set_best("support", made)
        assert archive.read_tree(made) == tree("x = 0\n")
        assert archive.candidate_refs("support") == {"c0000": made}
    after = {name: value for name, value in state(project).items() if not name.startswith("archive/")}
    assert (after, git("--no-optional-locks", "-C", project, "status", "--porcelain")) == before
    assert git("-C", project / "archive" / "harnesses.git", "fsck", "--strict", "--full", "--no-dangling") == ""


def test_an_archive_of_another_user_can_be_used(archive: Archive) -> None:
    require(os.geteuid() == 0, "the right to give files away")
    made = commit(archive, 0)
    for path in [archive.git_dir, *archive.git_dir.rglob("*")]:
        os.chown(path, 65534, 65534)
    with Archive.open(archive.root) as again:
        assert again.read_tree(made) == tree("x = 0\n")
        assert again.candidate_refs("support") == {"c0000": made}
        commit(again, 1, made)


def test_a_ref_that_changed_meanwhile_is_not_overwritten(archive: Archive) -> None:
    first, second = commit(archive, 0), commit(archive, 1)
    repository = archive._repository
    with pytest.raises(ArchiveError, match="cannot lock ref"):
        repository.update_refs({"refs/candidates/support/c0000": (second, second)})
    with pytest.raises(ArchiveError, match="cannot lock ref"):
        repository.update_refs({"refs/candidates/support/c0000": (second, None)})
    with pytest.raises(ArchiveError):
        repository.update_refs({"refs/heads/x": (first, None), "refs/candidates/support/c0000": (second, None)})
    assert repository.find("refs/heads/x") is None
    assert archive.candidate_refs("support") == {"c0000": first, "c0001": second}
