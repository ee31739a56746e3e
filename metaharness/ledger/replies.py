"""Replies of models, kept by key, and what each account has spent."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from metaharness.budget import Usage
from metaharness.exchange import ModelReply
from metaharness.ledger.database import Database
from metaharness.ledger.rows import USAGE_COLUMNS, text, to_json

_ADD_SPENDING = (
    f"INSERT INTO spending (account, {', '.join(USAGE_COLUMNS)}) "  # noqa: S608 - names of our own columns
    f"VALUES (:account, {', '.join(f':{name}' for name in USAGE_COLUMNS)}) "
    f"ON CONFLICT (account) DO UPDATE SET {', '.join(f'{name} = {name} + excluded.{name}' for name in USAGE_COLUMNS)}"
)


def add_spending(connection: sqlite3.Connection, account: str, amount: Usage) -> None:
    """Add to what an account has spent; part of the transaction that adds the row it is spent on."""
    connection.execute(_ADD_SPENDING, {"account": account, **amount.to_json()})


def read_spending(database: Database) -> dict[str, Usage]:
    """Return what each account has spent."""
    rows = database.all(
        f"SELECT account, {', '.join(USAGE_COLUMNS)} FROM spending ORDER BY account"  # noqa: S608 - our own columns
    )
    return {account: Usage(**dict(zip(USAGE_COLUMNS, values, strict=True))) for account, *values in rows}


class LedgerReplies:
    """A `ReplyCache` whose replies are paid for by one account.

    Replies are found by any account. Tokens, dollars and model calls of a campaign are added up from here alone, also
    those of a rollout that was stopped and run again.
    """

    def __init__(self, database: Database, account: str) -> None:
        self._database = database
        self._account = account

    def get_reply(self, key: str) -> ModelReply | None:
        """Return the reply (marked `cached`), or None."""
        row: Any = self._database.one("SELECT reply FROM replies WHERE key = ?", (key,))
        return ModelReply.from_json(json.loads(row[0]), cached=True) if row is not None else None

    def put_reply(self, key: str, reply: ModelReply) -> None:
        """Keep a reply and charge it; both are durable on return.

        Of two replies under one key the first is kept, but both were paid for and are charged.

        Raises:
            ValueError: The reply came from the cache: it was charged before.
        """
        if reply.cached:
            raise ValueError("a cached reply is not paid for again")
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO replies (key, account, reply) VALUES (?, ?, ?) ON CONFLICT (key) DO NOTHING",
                (key, text(self._account), to_json(reply.to_json())),
            )
            add_spending(connection, text(self._account), reply.usage)
