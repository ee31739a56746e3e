"""A campaign as one JSON object: what `best --json`, `ls --json` and the verdict are made of."""

from __future__ import annotations

from collections import Counter
from typing import Any

from metaharness.budget import Usage
from metaharness.candidate import Candidate
from metaharness.ledger import Ledger
from metaharness.report.scorecards import Weights, estimate_records
from metaharness.spec import CampaignSpec
from metaharness.task import Part
from metaharness.unit import Purpose


def campaign_summary(ledger: Ledger, spec: CampaignSpec) -> dict[str, Any]:
    """Return where a campaign is and what it found.

    The object has: `campaign`, `phase` (`search`, `race`, `test`, `done`), `model`, `sandbox`, `search_end`, `best` (id
    of the winner, or of the best so far), `selected` (the winner's val estimates, exploratory), `test` (the final
    reading or None), `candidates`, `proposals` by verdict, `rollouts` by outcome, `spent`, `budget`, `running_s`.
    """
    candidates = ledger.candidates()
    decisions = {kind: found[-1].data for kind in DECISIONS if (found := ledger.decisions(kind))}
    final = decisions.get("final")
    winner = decisions.get("winner", {})
    search_end = decisions.get("search_end", {})
    rows = ledger.rollouts()
    return {
        "schema_version": 1,
        "campaign": spec.name,
        "phase": "done" if final else "end" if search_end else "search",
        "model": spec.model.ref,
        "sandbox": ledger.get_meta("engine"),
        "environments": ledger.get_meta("environments"),
        "search_end": search_end.get("reason"),
        "best": winner.get("candidate") or _best_so_far(ledger, candidates),
        "selected": winner or None,
        "test": final,
        "candidates": len(candidates),
        "proposals": dict(sorted(Counter(record.verdict for record in ledger.proposals()).items())),
        "rollouts": dict(sorted(Counter(row.status.value for row in rows).items())),
        "spent": ledger.spent().to_json(),
        "budget": spec.budget.model_dump(exclude_none=True),
        "running_s": round(ledger.running_seconds(), 1),
    }


DECISIONS = ("search_end", "winner", "control", "final")


def candidate_row(ledger: Ledger, candidate: Candidate, weights: Weights) -> dict[str, Any]:
    """Return one candidate as JSON: lineage, mechanism, val estimate (exploratory), spend."""
    rows = [row for row in ledger.rollouts(candidate=candidate.id) if row.unit.part is not Part.TEST]
    val = estimate_records([row for row in rows if row.unit.part is Part.VAL], weights)
    practice = estimate_records([row for row in rows if row.unit.part is Part.PRACTICE], weights)
    spent = sum((row.usage for row in rows), Usage())
    return {
        "id": candidate.id,
        "name": candidate.name,
        "parents": list(candidate.parents),
        "proposer": candidate.proposer,
        "mechanism": candidate.manifest.mechanism,
        "hypothesis": candidate.manifest.hypothesis,
        "status": candidate.status.value,
        "flags": [str(flag) for flag in candidate.flags],
        "commit": candidate.commit,
        "tree": candidate.tree_digest,
        "rollouts": len(rows),
        "practice": practice.to_json(),
        "val": val.to_json(),
        "tokens": spent.tokens,
        "cost_usd": spent.cost_usd,
        "seconds": round(sum(row.seconds for row in rows), 2),
    }


def campaign_weights(ledger: Ledger) -> dict[str, float]:
    """Return the weight of each environment by name, adding up to 1, as the campaign's ledger records them."""
    return dict(ledger.get_meta("weights") or {})


def _best_so_far(ledger: Ledger, candidates: list[Candidate]) -> str | None:
    """Return the candidate with the best lower end of its val interval; exploratory."""
    weights = campaign_weights(ledger)
    best, low = None, -1.0
    for candidate in candidates:
        rows = ledger.rollouts(candidate=candidate.id, part=Part.VAL, purpose=Purpose.SEARCH)
        found = estimate_records(rows, weights)
        if found.tasks and found.low > low:
            best, low = candidate.id, found.low
    return best
