"""The rows of rollouts: adding, finding and listing them."""

from __future__ import annotations

import sqlite3

from metaharness.budget import Usage
from metaharness.ledger.database import Database
from metaharness.ledger.replies import add_spending
from metaharness.ledger.rows import ROLLOUT_COLUMNS, ROLLOUT_TABLES, read_rollout, rollout_values
from metaharness.task import Part
from metaharness.trajectory import RolloutStatus
from metaharness.unit import Purpose, RolloutRecord, RolloutUnit

KEPT = frozenset({RolloutStatus.SCORED, RolloutStatus.HARNESS_ERROR, RolloutStatus.INFRA_ERROR})
"""Outcomes that get a row; a rollout that was stopped is run again."""

ROLLOUT_ACCOUNT = "rollouts"


def insert_rollout(connection: sqlite3.Connection, seq: int, record: RolloutRecord) -> None:
    """Add a row and charge it, within a transaction.

    Raises:
        ValueError: The unit has a row, or the record is none that gets one.
    """
    unit = record.unit
    if record.status not in KEPT:
        raise ValueError(f"a rollout that ended as {record.status.value!r} is run again; it gets no row")
    if (record.score is not None) != (record.status is RolloutStatus.SCORED):
        raise ValueError(f"a rollout that ended as {record.status.value!r} with score {record.score}")
    task = (unit.environment, unit.part.value, unit.task)
    connection.execute("INSERT OR IGNORE INTO harnesses (id) VALUES (?)", (unit.candidate,))
    connection.execute("INSERT OR IGNORE INTO tasks (environment, part, digest) VALUES (?, ?, ?)", task)
    values = {"seq": seq, **rollout_values(record)}
    names = f"harness, task, {', '.join(values)}"
    marks = ", ".join(f":{name}" for name in values)
    keys = {"h": unit.candidate, "e": unit.environment, "p": unit.part.value, "d": unit.task}
    try:
        connection.execute(
            f"INSERT INTO rollouts ({names}) VALUES ((SELECT number FROM harnesses WHERE id = :h), "  # noqa: S608
            f"(SELECT number FROM tasks WHERE digest = :d AND environment = :e AND part = :p), {marks})",
            {**keys, **values},
        )
    except sqlite3.IntegrityError as error:
        raise ValueError(f"{unit} cannot be added: {error}") from error
    if record.inherited_from is None:
        add_spending(connection, ROLLOUT_ACCOUNT, Usage(rollouts=1))


def find_rollout(database: Database, unit: RolloutUnit) -> RolloutRecord | None:
    """Return the rollout of a unit, or None when it has no row."""
    row = database.one(
        f"SELECT {ROLLOUT_COLUMNS} FROM {ROLLOUT_TABLES} "  # noqa: S608 - our own names
        "WHERE h.id = ? AND t.digest = ? AND t.environment = ? AND t.part = ? AND r.attempt = ?",
        (unit.candidate, unit.task, unit.environment, unit.part.value, unit.attempt),
    )
    return read_rollout(row) if row is not None else None


def list_rollouts(
    database: Database, candidate: str | None, part: Part | None, purpose: Purpose | None
) -> list[RolloutRecord]:
    """Return the rollouts of a candidate, part or purpose (None: of any), in the order in which they ended."""
    wanted = {"h.id": candidate, "t.part": part, "r.purpose": purpose}
    given = {column: str(value) for column, value in wanted.items() if value is not None}
    where = " AND ".join(f"{column} = ?" for column in given) or "TRUE"
    rows = database.all(
        f"SELECT {ROLLOUT_COLUMNS} FROM {ROLLOUT_TABLES} WHERE {where} ORDER BY r.seq",  # noqa: S608 - our own names
        tuple(given.values()),
    )
    return [read_rollout(row) for row in rows]
