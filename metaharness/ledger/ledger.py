"""`Ledger`: what a campaign has done and spent, durable row by row."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import merge
from pathlib import Path
from types import TracebackType
from typing import Any

from metaharness.budget import Usage
from metaharness.candidate import Candidate, CandidateStatus
from metaharness.errors import ArchiveError
from metaharness.ledger.database import Database
from metaharness.ledger.replies import LedgerReplies, add_spending, read_spending
from metaharness.ledger.rollouts import find_rollout, insert_rollout, list_rollouts
from metaharness.ledger.rows import (
    CANDIDATE_COLUMNS,
    PROPOSAL_COLUMNS,
    ROLLOUT_COLUMNS,
    ROLLOUT_TABLES,
    DecisionRecord,
    FitRecord,
    candidate_row,
    proposal_row,
    read_candidate,
    read_proposal,
    read_rollout,
    text,
    to_json,
)
from metaharness.ledger.schema import FILE_NAME
from metaharness.locking import FileLock, refuse_network_file_system
from metaharness.task import Part
from metaharness.trajectory import RolloutStatus
from metaharness.unit import ProposalRecord, Purpose, RolloutRecord, RolloutUnit

Event = Candidate | ProposalRecord | RolloutRecord

LOCK_NAME = "lock"
MAX_STATE_BYTES = 16 * 1024 * 1024
PROPOSAL_ACCOUNT = "proposer"


class Ledger:
    """The SQLite database of one campaign. Also a context manager.

    One process writes, and holds the campaign's lock while it does; any number may read meanwhile. A method that writes
    has made its rows durable when it returns: all of them or, when it is killed before, none. To be used from the
    thread that opened it.
    """

    def __init__(self, database: Database, lock: FileLock | None, clock: Callable[[], float]) -> None:
        self._database = database
        self._lock = lock
        self._clock = clock
        tables = ("candidates", "proposals", "rollouts", "decisions")
        newest = [database.one(f"SELECT max(seq) FROM {name}")[0] or 0 for name in tables]  # noqa: S608 - our own names
        self._last_seq: int = max(newest)

    @classmethod
    def create(cls, directory: Path, *, clock: Callable[[], float] = time.time) -> Ledger:
        """Make the ledger of a new campaign, and its directory if absent.

        Args:
            directory: Directory of the campaign.
            clock: Unix time.

        Raises:
            ArchiveError: The campaign exists, another process holds it, or the directory cannot be used.
        """
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArchiveError(f"{directory}: cannot be made: {error.strerror}") from error
        return cls._locked(directory, clock, Database.create)

    @classmethod
    def open(cls, directory: Path, *, read_only: bool = False, clock: Callable[[], float] = time.time) -> Ledger:
        """Open the ledger of a campaign.

        Args:
            directory: Directory of the campaign.
            read_only: Read beside a campaign that may be running: takes no lock, and writes nothing.
            clock: Unix time.

        Raises:
            ArchiveError: It is absent, damaged or of another version, or another process holds it.
        """
        if not directory.is_dir():
            raise ArchiveError(f"{directory}: no such directory: there is no such campaign")
        if read_only:
            refuse_network_file_system(directory)
            return cls(Database.open(directory / FILE_NAME, read_only=True), None, clock)
        return cls._locked(directory, clock, lambda path: Database.open(path, read_only=False))

    @classmethod
    def _locked(cls, directory: Path, clock: Callable[[], float], connect: Callable[[Path], Database]) -> Ledger:
        refuse_network_file_system(directory)
        lock = FileLock.acquire(directory / LOCK_NAME, what=f"campaign {directory.name!r}")
        try:
            return cls(connect(directory / FILE_NAME), lock, clock)
        except BaseException:
            lock.release()
            raise

    def close(self) -> None:
        """Close the database, then give the lock back. Harmless when that was done before."""
        self._database.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _next_seq(self) -> int:
        self._last_seq += 1
        return self._last_seq

    # ------------------------------------------------------------------------------ candidates, proposals

    def add_candidate(self, candidate: Candidate) -> None:
        """Add a candidate that no proposal has led to: a seed.

        Raises:
            ValueError: There is one with this id.
        """
        try:
            with self._database.transaction() as connection:
                self._insert_candidate(connection, candidate, None)
        except sqlite3.IntegrityError as error:
            raise ValueError(f"candidate {candidate.id!r} cannot be added: {error}") from error

    def add_proposal(self, record: ProposalRecord, candidate: Candidate | None) -> None:
        """Add a proposal and the candidate it has led to, if any, at once.

        Args:
            record: The proposal; its `candidate` is the id of the new candidate, of an older one that has the same
                files, or None.
            candidate: The new candidate.

        Raises:
            ValueError: The number or the candidate is there already, or the two disagree.
        """
        if candidate is not None and record.candidate != candidate.id:
            raise ValueError(f"proposal {record.number} names candidate {record.candidate!r}, not {candidate.id!r}")
        try:
            with self._database.transaction() as connection:
                if candidate is not None:
                    self._insert_candidate(connection, candidate, record.number)
                row = proposal_row(self._next_seq(), record)
                connection.execute(f"INSERT INTO proposals VALUES ({_marks(row)})", row)  # noqa: S608 - marks only
                add_spending(connection, PROPOSAL_ACCOUNT, Usage(proposals=1))
        except sqlite3.IntegrityError as error:
            raise ValueError(f"proposal {record.number} cannot be added: {error}") from error

    def _insert_candidate(self, connection: sqlite3.Connection, candidate: Candidate, proposal: int | None) -> None:
        row = candidate_row(self._next_seq(), candidate, proposal)
        connection.execute(f"INSERT INTO candidates VALUES ({_marks(row)})", row)  # noqa: S608 - marks only

    def candidates(self) -> list[Candidate]:
        """Return all candidates in the order in which they were added."""
        rows = self._database.all(f"SELECT {CANDIDATE_COLUMNS} FROM candidates ORDER BY seq")  # noqa: S608 - our own
        return [read_candidate(row) for row in rows]

    def candidate(self, id: str) -> Candidate:  # noqa: A002 - the word of the domain
        """Return one candidate.

        Raises:
            ArchiveError: There is none with this id.
        """
        row = self._database.one(f"SELECT {CANDIDATE_COLUMNS} FROM candidates WHERE id = ?", (id,))  # noqa: S608
        if row is None:
            raise ArchiveError(self._no_candidate(id))
        return read_candidate(row)

    def set_status(self, id: str, status: CandidateStatus) -> None:  # noqa: A002 - the word of the domain
        """Change the status of a candidate.

        Raises:
            ArchiveError: There is none with this id.
        """
        with self._database.transaction() as connection:
            changed = connection.execute("UPDATE candidates SET status = ? WHERE id = ?", (status.value, id)).rowcount
        if not changed:
            raise ArchiveError(self._no_candidate(id))

    def _no_candidate(self, wanted: str) -> str:
        count, first, last = self._database.one(
            "SELECT count(*), (SELECT id FROM candidates ORDER BY seq), "
            "(SELECT id FROM candidates ORDER BY seq DESC) FROM candidates"
        )
        known = f"it has {count}: {first} to {last}" if count else "it has none yet"
        return f"campaign {self._database.path.parent.name!r} has no candidate {wanted!r} ({known})"

    def proposals(self) -> list[ProposalRecord]:
        """Return all proposals in the order in which they ended."""
        rows = self._database.all(f"SELECT {PROPOSAL_COLUMNS} FROM proposals ORDER BY seq")  # noqa: S608 - our own
        return [read_proposal(row) for row in rows]

    # ------------------------------------------------------------------------------------------- rollouts

    def add_rollout(self, record: RolloutRecord) -> None:
        """Add a finished rollout.

        Raises:
            ValueError: Its unit has a row, or it was stopped: such a rollout is run again, so it gets no row.
        """
        self.add_rollouts([record])

    def add_rollouts(self, records: Iterable[RolloutRecord]) -> None:
        """Add several rollouts at once: all of them or none. Raises as `add_rollout`."""
        with self._database.transaction() as connection:
            for record in records:
                insert_rollout(connection, self._next_seq(), record)

    def rollout(self, unit: RolloutUnit) -> RolloutRecord | None:
        """Return the rollout of a unit, or None when it has no row."""
        return find_rollout(self._database, unit)

    def rollouts(
        self, *, candidate: str | None = None, part: Part | None = None, purpose: Purpose | None = None
    ) -> list[RolloutRecord]:
        """Return the rollouts of a candidate, part or purpose (None: of any), in the order in which they ended."""
        return list_rollouts(self._database, candidate, part, purpose)

    def events(self) -> Iterator[Event]:
        """Yield seeds, proposals and rollouts in the order of their commits.

        A candidate that a proposal led to comes as that proposal.
        """
        seeds = self._database.by_seq(
            f"SELECT {CANDIDATE_COLUMNS} FROM candidates WHERE proposal IS NULL AND seq > :after "  # noqa: S608
            "ORDER BY seq LIMIT :limit"
        )
        proposals = self._database.by_seq(
            f"SELECT {PROPOSAL_COLUMNS} FROM proposals WHERE seq > :after ORDER BY seq LIMIT :limit"  # noqa: S608
        )
        rollouts = self._database.by_seq(
            f"SELECT {ROLLOUT_COLUMNS} FROM {ROLLOUT_TABLES} WHERE r.seq > :after "  # noqa: S608 - our own names
            "ORDER BY r.seq LIMIT :limit"
        )
        readers: list[tuple[Iterator[Any], Callable[[Any], Event]]] = [
            (seeds, read_candidate),
            (proposals, read_proposal),
            (rollouts, read_rollout),
        ]
        tagged = [_tag(rows, read) for rows, read in readers]
        for _, row, read in merge(*tagged, key=lambda item: item[0]):
            yield read(row)

    # ------------------------------------------------------------------- decisions, fits, spending, settings

    def add_decision(self, kind: str, data: Mapping[str, Any]) -> None:
        """Add a decision, with the time."""
        with self._database.transaction() as connection:
            row = (self._next_seq(), kind, to_json(dict(data)), self._clock())
            connection.execute("INSERT INTO decisions VALUES (?, ?, ?, ?)", row)

    def decisions(self, kind: str | None = None) -> list[DecisionRecord]:
        """Return the decisions of a kind (None: of any) in order."""
        rows = self._database.all(
            "SELECT kind, data, at FROM decisions WHERE ?1 IS NULL OR kind = ?1 ORDER BY seq", (kind,)
        )
        return [DecisionRecord(kind=found, data=json.loads(data), at=at) for found, data, at in rows]

    def get_fit(self, key: str) -> FitRecord | None:
        """Return the fit that was kept under a key, or None."""
        row = self._database.one("SELECT status, state, error, seconds FROM fits WHERE key = ?", (key,))
        if row is None:
            return None
        status, state, error, seconds = row
        return FitRecord(key=key, status=RolloutStatus(status), state=state, error=error, seconds=seconds)

    def put_fit(self, record: FitRecord) -> None:
        """Keep a fit.

        Raises:
            ValueError: There is one under its key (rollouts may rest on it), or its state is over 16 MiB.
        """
        if record.state is not None and len(record.state) > MAX_STATE_BYTES:
            raise ValueError(f"a state of {len(record.state)} bytes, at most {MAX_STATE_BYTES}")
        row = (record.key, record.status.value, record.state, text(record.error), record.seconds)
        try:
            with self._database.transaction() as connection:
                connection.execute("INSERT INTO fits VALUES (?, ?, ?, ?, ?)", row)
        except sqlite3.IntegrityError as error:
            raise ValueError(f"fit {record.key!r} cannot be added: {error}") from error

    def reply_cache(self, account: str) -> LedgerReplies:
        """Return the reply cache as one account uses it: `rollouts`, `proposer` or `judge`."""
        return LedgerReplies(self._database, account)

    def spent(self) -> Usage:
        """Return what the campaign has spent: rollouts and proposals by their rows, all else by paid replies."""
        return sum(self.spent_by_account().values(), Usage())

    def spent_by_account(self) -> dict[str, Usage]:
        """Return the same by account."""
        return read_spending(self._database)

    def running_seconds(self) -> float:
        """Return for how many seconds the campaign has run, over all its resumes."""
        return float(self.get_meta("running_seconds") or 0.0)

    def add_running_seconds(self, seconds: float) -> None:
        """Add to the running time; a campaign does so every few seconds, so that a kill loses no more.

        Raises:
            ValueError: `seconds` is negative.
        """
        if seconds < 0:
            raise ValueError(f"{seconds} seconds")
        self.set_meta("running_seconds", self.running_seconds() + seconds)

    def get_meta(self, name: str) -> Any:
        """Return the JSON value of a setting, or None."""
        row = self._database.one("SELECT value FROM meta WHERE key = ?", (name,))
        return json.loads(row[0]) if row is not None else None

    def set_meta(self, name: str, value: Any) -> None:
        """Keep a JSON value under a name, in place of an earlier one."""
        with self._database.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, to_json(value)))


def _tag(rows: Iterator[Any], read: Callable[[Any], Event]) -> Iterator[tuple[int, Any, Callable[[Any], Event]]]:
    return ((row[0], row, read) for row in rows)


def _marks(row: tuple[Any, ...]) -> str:
    return ", ".join("?" * len(row))
