"""The tables of `ledger.db`, and how the file is opened."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from metaharness.errors import ArchiveError

FILE_NAME = "ledger.db"
SCHEMA_VERSION = 1
APPLICATION_ID = 0x6D686C67
"""`mhlg` in ASCII: tells a ledger from other SQLite files."""

BUSY_TIMEOUT_MS = 10_000
CACHE_KIB = 32_768

# `seq` counts over all tables of events, in the order of commits: a resume replays them by it.
# Harnesses and tasks are interned, so that a row and its index entry stay small at 200,000 rollouts.
TABLES = """
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE candidates (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    campaign TEXT NOT NULL,
    parents TEXT NOT NULL,
    tree_digest TEXT NOT NULL,
    commit_id TEXT NOT NULL,
    proposer TEXT NOT NULL,
    name TEXT NOT NULL,
    manifest TEXT NOT NULL,
    status TEXT NOT NULL,
    flags TEXT NOT NULL,
    created_at REAL NOT NULL,
    proposal INTEGER REFERENCES proposals (number) DEFERRABLE INITIALLY DEFERRED
) STRICT;

CREATE TABLE proposals (
    seq INTEGER PRIMARY KEY,
    number INTEGER NOT NULL UNIQUE,
    parents TEXT NOT NULL,
    proposer TEXT NOT NULL,
    mechanism TEXT NOT NULL,
    candidate TEXT REFERENCES candidates (id) DEFERRABLE INITIALLY DEFERRED,
    verdict TEXT NOT NULL,
    reason TEXT NOT NULL,
    usage TEXT NOT NULL,
    seconds REAL NOT NULL,
    finished_at REAL NOT NULL
) STRICT;

CREATE TABLE harnesses (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE tasks (
    number INTEGER PRIMARY KEY,
    environment TEXT NOT NULL,
    part TEXT NOT NULL,
    digest TEXT NOT NULL,
    UNIQUE (digest, environment, part)
) STRICT;

CREATE TABLE rollouts (
    seq INTEGER PRIMARY KEY,
    harness INTEGER NOT NULL REFERENCES harnesses (number),
    task INTEGER NOT NULL REFERENCES tasks (number),
    attempt INTEGER NOT NULL CHECK (attempt >= 0),
    purpose TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('scored', 'harness_error', 'infra_error')),
    reward REAL CHECK (reward BETWEEN 0.0 AND 1.0),
    components TEXT,
    feedback TEXT,
    rollouts INTEGER NOT NULL,
    proposals INTEGER NOT NULL,
    model_calls INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    cost_usd REAL NOT NULL,
    seconds REAL NOT NULL,
    trajectory TEXT NOT NULL,
    error TEXT NOT NULL,
    answer_preview TEXT NOT NULL,
    inherited_from TEXT,
    finished_at REAL NOT NULL,
    CHECK ((status = 'scored') = (reward IS NOT NULL)),
    UNIQUE (harness, task, attempt)
) STRICT;

CREATE TABLE decisions (
    seq INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    at REAL NOT NULL
) STRICT;
CREATE INDEX decisions_by_kind ON decisions (kind);

CREATE TABLE fits (
    key TEXT PRIMARY KEY,
    status TEXT NOT NULL,
    state BLOB,
    error TEXT NOT NULL,
    seconds REAL NOT NULL
) STRICT;

CREATE TABLE replies (
    number INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    account TEXT NOT NULL,
    reply TEXT NOT NULL
) STRICT;

CREATE TABLE spending (
    account TEXT PRIMARY KEY,
    rollouts INTEGER NOT NULL DEFAULT 0,
    proposals INTEGER NOT NULL DEFAULT 0,
    model_calls INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cached_tokens INTEGER NOT NULL DEFAULT 0,
    cost_usd REAL NOT NULL DEFAULT 0.0
) STRICT, WITHOUT ROWID;
"""


@contextmanager
def clear_errors(path: Path) -> Iterator[None]:
    """Turn what SQLite reports about the file into one clear line.

    Raises:
        ArchiveError: The file is damaged, locked, not writable, or the disk is full.
    """
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError):
        raise
    except sqlite3.DatabaseError as error:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            advice = "another program keeps it locked: close that program, then try again"
        elif name.startswith("SQLITE_FULL"):
            advice = "the disk is full: make room, then `metaharness resume`; what was committed is safe"
        elif name.startswith("SQLITE_READONLY"):
            advice = "it cannot be written: check the permissions of the file and its directory"
        elif name.startswith("SQLITE_CANTOPEN"):
            advice = "it cannot be opened: check that it exists and may be read"
        elif name.startswith("SQLITE_IOERR"):
            advice = "reading or writing failed: check the disk"
        else:
            advice = "the file is damaged or no ledger: restore it from a backup"
        raise ArchiveError(f"{path}: {advice} ({error})") from error


def connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """Open the file with the settings that the ledger relies on; says nothing about what is in it yet.

    Raises:
        ArchiveError: It cannot be opened.
    """
    with clear_errors(path):
        uri = f"file:{quote(str(path.resolve()))}?mode={_mode(path, read_only=read_only)}"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_TIMEOUT_MS / 1000)
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            if read_only:
                connection.execute("PRAGMA query_only = ON")
            else:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
        except BaseException:
            connection.close()
            raise
    return connection


def _mode(path: Path, *, read_only: bool) -> str:
    if not read_only:
        return "rwc"
    # WAL needs a shared-memory file beside the database. Where a finished campaign lies in a directory that cannot be
    # written, and no writer has left a log, the file cannot change under us either.
    can_write = os.access(path.parent, os.W_OK)
    has_log = path.with_name(f"{path.name}-wal").exists()
    return "ro" if can_write or has_log else "ro&immutable=1"


def create_tables(connection: sqlite3.Connection) -> None:
    """Make the tables in one transaction, so that a kill leaves all of them or none."""
    script = f"BEGIN IMMEDIATE; {TABLES} PRAGMA application_id = {APPLICATION_ID}; "
    connection.executescript(f"{script} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")


def is_empty(connection: sqlite3.Connection) -> bool:
    """Return whether nothing was ever committed to the file (a kill during creation leaves that)."""
    return bool(connection.execute("SELECT count(*) = 0 FROM sqlite_schema").fetchone()[0])


def check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Raise ArchiveError unless the file is a ledger of this version."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION_ID:
        raise ArchiveError(f"{path}: a SQLite file, but no ledger")
    if version > SCHEMA_VERSION:
        raise ArchiveError(
            f"{path}: written by a newer metaharness (schema {version}, this one knows {SCHEMA_VERSION}): upgrade it"
        )
    if version < SCHEMA_VERSION:
        raise ArchiveError(f"{path}: schema {version} is not known to this metaharness (it knows {SCHEMA_VERSION})")
