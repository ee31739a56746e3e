"""The report of a campaign, as data."""

from metaharness.report.scorecards import scorecard
from metaharness.report.summary import campaign_summary, campaign_weights, candidate_row

__all__ = ["campaign_summary", "campaign_weights", "candidate_row", "scorecard"]
