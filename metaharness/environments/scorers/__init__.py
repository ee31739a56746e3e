"""Scorers: each is a `[scorer]` table with its `kind`.

Another package adds one with an entry point in the group `metaharness.scorers`: a subclass of `base.ScorerOptions`.
"""

from __future__ import annotations

from metaharness.registry import Registry

_PACKAGE = "metaharness.environments.scorers"

SCORERS = Registry(
    "scorer",
    "metaharness.scorers",
    {
        "exact": f"{_PACKAGE}.matching:ExactScorer",
        "normalised": f"{_PACKAGE}.matching:NormalisedScorer",
        "token_f1": f"{_PACKAGE}.matching:TokenF1Scorer",
        "numeric": f"{_PACKAGE}.numeric:NumericScorer",
        "regex": f"{_PACKAGE}.pattern:RegexScorer",
        "json_fields": f"{_PACKAGE}.fields:JsonFieldsScorer",
        "custom": f"{_PACKAGE}.custom:CustomOptions",
    },
)
"""Known kinds of `[scorer]`."""
