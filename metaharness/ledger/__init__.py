"""The ledger of a campaign: one durable row a rollout, a proposal, an expense, a decision."""

from metaharness.ledger.ledger import Event, Ledger
from metaharness.ledger.replies import LedgerReplies
from metaharness.ledger.rows import DecisionRecord, FitRecord
from metaharness.ledger.schema import FILE_NAME

__all__ = ["FILE_NAME", "DecisionRecord", "Event", "FitRecord", "Ledger", "LedgerReplies"]
