"""The file of a ledger: who may open it, and what is said of one that cannot be used."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from metaharness.errors import ArchiveError
from metaharness.ledger import FILE_NAME, Ledger
from tests.ledger.examples import candidate, rollout, unit
from tests.support import require

HOLD = """
import sys
from pathlib import Path
from metaharness.ledger import Ledger
with Ledger.open(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
TRY = """
import sys
from pathlib import Path
from metaharness.errors import UserError
from metaharness.ledger import Ledger
try:
    Ledger.open(Path(sys.argv[1]), read_only=len(sys.argv) > 2).close()
except UserError as error:
    print(error)
    sys.exit(2)
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "support"
    with Ledger.create(made) as ledger:
        ledger.add_candidate(candidate(0))
        ledger.add_rollouts([rollout(unit(0, attempt=number)) for number in range(50)])
    return made


def refusal(directory: Path, *, read_only: bool = False) -> str:
    with pytest.raises(ArchiveError) as caught:
        Ledger.open(directory, read_only=read_only)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_second_process_is_refused_and_a_reader_is_not(directory: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, directory], stdin=-1, stdout=-1, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        second = subprocess.run([sys.executable, "-c", TRY, directory], capture_output=True, text=True, check=False)
        assert second.returncode == 2
        assert second.stdout.startswith(f"campaign 'support' is in use by process {holder.pid}: ")
        assert "Traceback" not in second.stderr
        reader = subprocess.run([sys.executable, "-c", TRY, directory, "read"], check=False)
        assert reader.returncode == 0
        holder.stdin.close()
    Ledger.open(directory).close()


def test_a_failed_open_gives_the_lock_back(directory: Path) -> None:
    (directory / FILE_NAME).rename(directory / "kept")
    assert "no such file" in refusal(directory)
    (directory / "kept").rename(directory / FILE_NAME)
    Ledger.open(directory).close()


def test_a_reader_sees_what_is_committed_while_it_is_written(directory: Path) -> None:
    done = threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        try:
            with Ledger.open(directory, read_only=True) as reader:
                seen = 0
                while not done.is_set():
                    rows = reader.rollouts()
                    assert len(rows) >= seen
                    assert reader.spent().rollouts >= len(rows)
                    seen = len(rows)
        except BaseException as error:
            failures.append(error)

    with Ledger.open(directory) as ledger:
        thread = threading.Thread(target=read)
        thread.start()
        for number in range(100):
            ledger.add_rollout(rollout(unit(1, attempt=number)))
        done.set()
        thread.join()
    assert failures == []


def test_a_reader_writes_nothing(directory: Path) -> None:
    with Ledger.open(directory, read_only=True) as reader:
        with pytest.raises(ArchiveError, match="opened for reading only"):
            reader.add_rollout(rollout(unit(9)))
        with pytest.raises(ArchiveError, match="opened for reading only"):
            reader.set_meta("a", 1)


def test_a_reader_may_read_what_a_killed_writer_has_left(directory: Path) -> None:
    code = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom metaharness.ledger import Ledger\n"
        "from tests.ledger.examples import rollout, unit\nledger = Ledger.open(Path(sys.argv[1]))\n"
        "ledger.add_rollout(rollout(unit(7)))\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code, directory], cwd=root, check=False).returncode == -9
    assert (directory / f"{FILE_NAME}-wal").stat().st_size
    with Ledger.open(directory, read_only=True) as reader:
        assert reader.rollout(unit(7)) == rollout(unit(7))


def test_a_finished_campaign_can_be_read_where_nothing_can_be_written(directory: Path) -> None:
    require(os.geteuid() == 0, "the right to become another user")
    directory.chmod(0o555)
    for parent in (directory.parent, *directory.parent.parents[:2]):
        parent.chmod(0o755)
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom metaharness.ledger import Ledger\nos.setuid(65534)\n"
        "assert not os.access(sys.argv[1], os.W_OK)\n"
        "with Ledger.open(Path(sys.argv[1]), read_only=True) as reader:\n    print(len(reader.rollouts()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, directory], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("50\n", "")


def test_it_is_durable_by_settings(directory: Path) -> None:
    with Ledger.open(directory) as ledger:
        database = ledger._database
        assert database.one("PRAGMA journal_mode") == ("wal",)
        assert database.one("PRAGMA synchronous") == (2,)
        assert database.one("PRAGMA foreign_keys") == (1,)


def test_an_existing_campaign_is_not_made_again(directory: Path) -> None:
    with pytest.raises(ArchiveError, match=r"ledger\.db: exists"):
        Ledger.create(directory)
    with Ledger.open(directory) as ledger:
        assert len(ledger.rollouts()) == 50


def test_a_kill_during_creation_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).touch()
    assert "stopped before it began" in refusal(tmp_path)
    Ledger.create(tmp_path).close()


def test_an_absent_campaign(tmp_path: Path) -> None:
    assert "no such campaign" in refusal(tmp_path / "absent")
    assert "there is no campaign" in refusal(tmp_path)
    assert "there is no campaign" in refusal(tmp_path, read_only=True)
    (tmp_path / "file").touch()
    with pytest.raises(ArchiveError, match="cannot be made"):
        Ledger.create(tmp_path / "file" / "x")


def test_another_sqlite_file(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute("CREATE TABLE other (a)")
    connection.close()
    assert "a SQLite file, but no ledger" in refusal(tmp_path)
    with pytest.raises(ArchiveError, match="exists"):
        Ledger.create(tmp_path)


@pytest.mark.parametrize(("version", "message"), [(2, "newer metaharness (schema 2"), (0, "schema 0 is not known")])
def test_another_version(directory: Path, version: int, message: str) -> None:
    connection = sqlite3.connect(directory / FILE_NAME)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    assert message in refusal(directory)
    assert message in refusal(directory, read_only=True)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_that_is_no_database(directory: Path, read_only: bool) -> None:
    (directory / FILE_NAME).write_bytes(b"not a database at all, but long enough to be read as one" * 100)
    assert "damaged or no ledger" in refusal(directory, read_only=read_only)


def test_a_damaged_page_is_reported_where_it_is_met(directory: Path) -> None:
    path = directory / FILE_NAME
    data = bytearray(path.read_bytes())
    for start in range(4096, len(data), 4096):
        data[start : start + 64] = b"\xff" * 64
    path.write_bytes(data)
    actions: list[Callable[[Ledger], object]] = [Ledger.rollouts, Ledger.candidates, Ledger.spent]
    for action in actions:
        with (
            pytest.raises(ArchiveError, match=r"ledger\.db: the file is damaged") as caught,
            Ledger.open(directory) as led,
        ):
            action(led)
        assert "\n" not in str(caught.value)


def test_a_foreign_lock_is_reported(directory: Path) -> None:
    other = sqlite3.connect(directory / FILE_NAME, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        with Ledger.open(directory) as ledger:
            ledger._database._connection.execute("PRAGMA busy_timeout = 50")
            with pytest.raises(ArchiveError, match="another program keeps it locked"):
                ledger.set_meta("a", 1)
    finally:
        other.close()


def test_a_full_disk_is_reported_and_loses_nothing(directory: Path) -> None:
    with Ledger.open(directory) as ledger:
        pages = ledger._database.one("PRAGMA page_count")[0]
        ledger._database._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(ArchiveError, match="the disk is full"):
            ledger.add_rollouts([rollout(unit(1, attempt=number)) for number in range(5_000)])
        assert len(ledger.rollouts()) == 50
        assert ledger.spent().rollouts == 50


def test_a_copied_directory_is_a_whole_ledger(directory: Path, tmp_path: Path) -> None:
    shutil.copytree(directory, tmp_path / "copy")
    with Ledger.open(tmp_path / "copy") as ledger:
        assert len(ledger.rollouts()) == 50
