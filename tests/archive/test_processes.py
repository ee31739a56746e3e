"""Several processes at one archive, and processes that are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from metaharness.archive import Archive
from metaharness.archive.objects import ObjectWriter
from metaharness.archive.repository import Repository
from metaharness.candidate import candidate_id
from metaharness.errors import ArchiveError
from metaharness.locking import FileLock
from tests.archive.support import commit, git
from tests.ledger.examples import tree

ROOT = Path(__file__).parents[2]
WRITER = """
import sys
from pathlib import Path
from metaharness.archive import Archive
from tests.archive.support import commit
root, campaign, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with Archive.open(root, create=True) as archive:
    known = archive.candidate_refs(campaign)
    made = list(known.values())[-1] if known else commit(archive, 0, campaign=campaign)
    print("open", flush=True)
    for number in range(max(1, len(known)), count):
        made = commit(archive, number, made, campaign=campaign)
        archive.write_note(made, {"number": number})
        archive.set_best(campaign, made)
        print(number, made, flush=True)
"""


def writer(root: Path, campaign: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WRITER, root, campaign, str(count)], cwd=ROOT, stdout=-1, text=True)


def test_campaigns_share_an_archive(tmp_path: Path) -> None:
    root = tmp_path / "archive"
    writers = [writer(root, name, 15) for name in ("one", "two", "three")]
    for each in writers:
        each.communicate()
        assert each.returncode == 0
    with Archive.open(root) as archive:
        for name in ("one", "two", "three"):
            refs = archive.candidate_refs(name)
            assert list(refs) == [candidate_id(number) for number in range(15)]
            assert [archive.read_note(made) for made in list(refs.values())[1:]] == [
                {"number": number} for number in range(1, 15)
            ]
            assert len(archive.lineage(name).edges) == 14
    assert git("-C", root / "harnesses.git", "fsck", "--strict", "--full", "--no-dangling") == ""


def test_killed_in_the_middle(tmp_path: Path) -> None:
    root = tmp_path / "archive"
    times = random.Random(2)
    reported: dict[int, str] = {}
    for _ in range(6):
        running = writer(root, "support", 100_000)
        assert running.stdout is not None
        assert running.stdout.readline() == "open\n"
        time.sleep(times.uniform(0.02, 0.3))
        running.kill()
        for line in running.stdout.read().splitlines():
            words = line.split()
            if len(words) == 2 and len(words[1]) == 40:
                reported[int(words[0])] = words[1]
        running.wait()
        running.stdout.close()
        assert git("-C", root / "harnesses.git", "fsck", "--strict", "--full", "--no-dangling") == ""
        with Archive.open(root, create=True) as archive:
            refs = archive.candidate_refs("support")
            assert list(refs) == [candidate_id(number) for number in range(len(refs))]
            for number, made in reported.items():
                assert refs[candidate_id(number)] == made
                assert archive.read_note(made) == {"number": number}
            last = len(refs) - 1
            if last > 0:
                assert commit(archive, last, refs[candidate_id(last - 1)]) == refs[candidate_id(last)]


def test_a_kill_while_an_archive_is_made_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nimport metaharness.archive.repository\n"
        "from metaharness.archive import Archive\nprint('go', flush=True)\n"
        "Archive.open(Path(sys.argv[1]), create=True)\nprint('made', flush=True)\n"
    )
    for number, wait_s in enumerate((0.0, 0.003, 0.006, 0.01, 0.02)):
        root = tmp_path / f"archive{number}"
        running = subprocess.Popen([sys.executable, "-c", code, root], cwd=ROOT, stdout=-1, start_new_session=True)
        assert running.stdout is not None
        running.stdout.readline()
        time.sleep(wait_s)
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        running.stdout.close()
        with Archive.open(root, create=True) as archive:
            commit(archive, 0)
            assert list(archive.candidate_refs("support")) == ["c0000"]


def test_an_archive_that_stays_locked_is_reported(tmp_path: Path) -> None:
    with Archive.open(tmp_path, create=True, lock_wait_s=0.05) as archive:
        with FileLock.acquire(tmp_path / "lock", what="x"):
            with pytest.raises(ArchiveError, match=rf"archive .* is in use by process {os.getpid()}"):
                commit(archive, 0)
            assert archive.candidate_refs("support") == {}
        commit(archive, 0)


def test_objects_appear_together_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()

    def fail() -> None:
        with ObjectWriter(tmp_path) as objects:
            objects.write("blob", b"a")
            objects.write("blob", b"b")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    with ObjectWriter(tmp_path) as objects:
        names = [objects.write("blob", data) for data in (b"a", b"b", b"a")]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(f"{path.parent.name}{path.name}" for path in files) == sorted(set(names))
    assert {oct(path.stat().st_mode & 0o777) for path in files} == {"0o444"}


def test_many_objects_are_packed_while_work_goes_on(tmp_path: Path) -> None:
    Archive.open(tmp_path, create=True).close()
    repository = Repository(tmp_path / "harnesses.git", pack_above_objects=256)
    with Archive(tmp_path, repository, time.time, 60.0) as archive:
        made = [commit(archive, 0)]
        packings: set[int] = set()
        while len(packings) < 2:
            made.append(commit(archive, len(made), made[-1]))
            archive.write_note(made[-1], {"number": len(made) - 1})
            assert archive.read_tree(made[0]) == tree("x = 0\n")
            if repository._packing is not None:
                packings.add(repository._packing.pid)
            assert len(made) < 3_000
        archive.close()
        counts = dict(line.split(": ") for line in git("-C", archive.git_dir, "count-objects", "-v").splitlines())
        assert int(counts["in-pack"]) > 0
        assert (archive.git_dir / "packed-refs").is_file()
        assert list(archive.candidate_refs("support").values()) == made
        assert [archive.read_note(each) for each in made[1:]] == [{"number": n} for n in range(1, len(made))]
        assert commit(archive, 1, made[0]) == made[1]
        assert len(archive.lineage("support").edges) == len(made) - 1
    assert git("-C", tmp_path / "harnesses.git", "fsck", "--strict", "--full", "--no-dangling") == ""


def test_packing_that_fails_is_tried_more_rarely(tmp_path: Path) -> None:
    Archive.open(tmp_path, create=True).close()
    repository = Repository(tmp_path / "harnesses.git", pack_above_objects=300)
    (repository.git_dir / "packed-refs").mkdir()

    def fill(count: int) -> None:
        for number in range(count):
            (repository.git_dir / "objects" / "17" / f"{number:038x}").touch()

    (repository.git_dir / "objects" / "17").mkdir()
    fill(1)
    assert not repository.pack_if_needed()
    fill(2)
    assert repository.pack_if_needed()
    assert repository._packing is not None
    assert repository._packing.wait() != 0
    assert not repository.pack_if_needed()
    fill(3)
    assert repository.pack_if_needed()
    repository.close()


def test_objects_are_written_while_their_directories_are_removed(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    done = threading.Event()

    def remove() -> None:
        while not done.is_set():
            for path in (tmp_path / "objects").glob("??"):
                with suppress(OSError):
                    path.rmdir()

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        for number in range(100):
            with ObjectWriter(tmp_path) as objects:
                name = objects.write("blob", b"%d" % number)
            assert (tmp_path / "objects" / name[:2] / name[2:]).is_file()
    finally:
        done.set()
        remover.join()
