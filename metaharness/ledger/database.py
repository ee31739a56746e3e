"""One connection to a ledger's file: queries and transactions, with clear errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from metaharness.errors import ArchiveError
from metaharness.ledger.schema import check_version, clear_errors, connect, create_tables, is_empty

Parameters = Sequence[Any] | Mapping[str, Any]
CHUNK_ROWS = 1_000


class Database:
    """A connection that was opened and checked. Bound to the thread that opened it."""

    def __init__(self, path: Path, connection: sqlite3.Connection, *, read_only: bool) -> None:
        self.path = path
        self._connection = connection
        self._read_only = read_only

    @classmethod
    def create(cls, path: Path) -> Database:
        """Make a new ledger.

        Raises:
            ArchiveError: There is one, or the file cannot be written.
        """
        connection = connect(path, read_only=False)
        try:
            with clear_errors(path):
                if not is_empty(connection):
                    raise ArchiveError(f"{path}: exists")
                create_tables(connection)
        except BaseException:
            connection.close()
            raise
        return cls(path, connection, read_only=False)

    @classmethod
    def open(cls, path: Path, *, read_only: bool) -> Database:
        """Open a ledger.

        Raises:
            ArchiveError: It is absent, damaged, of another version, or cannot be read.
        """
        if not path.is_file():
            raise ArchiveError(f"{path}: no such file: there is no campaign in this directory")
        connection = connect(path, read_only=read_only)
        try:
            with clear_errors(path):
                if is_empty(connection):
                    raise ArchiveError(f"{path}: empty: the campaign was stopped before it began; delete its directory")
                check_version(connection, path)
        except BaseException:
            connection.close()
            raise
        return cls(path, connection, read_only=read_only)

    def all(self, sql: str, parameters: Parameters = ()) -> list[Any]:
        """Return all rows of a query."""
        with clear_errors(self.path):
            return self._connection.execute(sql, parameters).fetchall()

    def one(self, sql: str, parameters: Parameters = ()) -> Any:
        """Return the first row of a query, or None."""
        with clear_errors(self.path):
            return self._connection.execute(sql, parameters).fetchone()

    def by_seq(self, sql: str) -> Iterator[Any]:
        """Yield the rows of a query in the order of their first column, a few at a time.

        Rows may be added meanwhile; those are yielded too.

        Args:
            sql: Query with the parameters `:after` (least value of the first column, exclusive) and `:limit`.
        """
        after = 0
        while rows := self.all(sql, {"after": after, "limit": CHUNK_ROWS}):
            yield from rows
            after = rows[-1][0]

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit what is done inside, or nothing of it; it is durable at the end.

        Raises:
            ArchiveError: It was opened for reading, or the file cannot be written.
        """
        if self._read_only:
            raise ArchiveError(f"{self.path}: was opened for reading only")
        with clear_errors(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the connection. Harmless when that was done before."""
        self._connection.close()
