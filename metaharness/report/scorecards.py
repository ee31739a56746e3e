"""Ledger rows to numbers: estimates, comparisons, scorecards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from metaharness.budget import Usage
from metaharness.candidate import Candidate, Scorecard
from metaharness.score import (
    Estimate,
    PairedComparison,
    combine,
    combine_comparisons,
    compare,
    estimate,
    task_means,
)
from metaharness.task import Part
from metaharness.unit import RolloutRecord

Weights = Mapping[str, float]


def by_environment(records: Iterable[RolloutRecord]) -> dict[str, dict[str, float]]:
    """Return per-task mean rewards by environment; missing ones left out."""
    pairs: dict[str, list[tuple[str, float | None]]] = {}
    for record in records:
        pairs.setdefault(record.unit.environment, []).append((record.unit.task, record.reward))
    return {name: task_means(found) for name, found in pairs.items()}


def estimate_records(records: Iterable[RolloutRecord], weights: Weights) -> Estimate:
    """Return the weighted mean reward over environments, with its interval."""
    rows = list(records)
    means = by_environment(rows)
    tasks: dict[str, set[str]] = {}
    for row in rows:
        tasks.setdefault(row.unit.environment, set()).add(row.unit.task)
    return combine(
        [
            (weights[name], estimate(list(means[name].values()), missing=len(tasks[name]) - len(means[name])))
            for name in sorted(means)
        ]
    )


def compare_records(
    first: Iterable[RolloutRecord],
    second: Iterable[RolloutRecord],
    weights: Weights,
    *,
    missing_as_zero: bool = False,
) -> PairedComparison:
    """Compare two harnesses on the tasks that both were run on, second minus first.

    Args:
        first: Rollouts of the first.
        second: Rollouts of the second.
        weights: Weight of each environment.
        missing_as_zero: Count the second's missing rewards as 0, which a verdict of `better` must survive.
    """
    ours = list(second)
    before, after = by_environment(first), by_environment(ours)
    if missing_as_zero:
        for row in ours:
            after[row.unit.environment].setdefault(row.unit.task, 0.0)
    return combine_comparisons(
        [(weights[name], compare(before[name], after[name])) for name in sorted(before.keys() & after.keys())]
    )


def summary(records: Iterable[RolloutRecord], weights: Weights) -> dict[str, Any]:
    """Return mean, interval, outcome counts and spend a rollout, as JSON; says nothing of single tasks."""
    rows = list(records)
    spent = sum((row.usage for row in rows), Usage())
    count = max(1, len(rows))
    return {
        **estimate_records(rows, weights).to_json(),
        "outcomes": dict(sorted(Counter(row.status.value for row in rows).items())),
        "tokens_per_rollout": round(spent.tokens / count, 1),
        "cost_usd_per_rollout": spent.cost_usd / count,
        "seconds_per_rollout": round(sum(row.seconds for row in rows) / count, 3),
    }


def scorecard(
    candidate: Candidate,
    records: Iterable[RolloutRecord],
    weights: Weights,
    *,
    parent: Iterable[RolloutRecord] = (),
    test: Mapping[str, Any] | None = None,
) -> Scorecard:
    """Return the search-time scorecard of a candidate.

    Args:
        candidate: The candidate.
        records: Its rollouts of any part; those of the test split are left out.
        weights: Weight of each environment.
        parent: Rollouts of its first parent, against which the manifest is checked.
        test: The final reading, when the campaign has ended.
    """
    rows = [row for row in records if row.unit.part is not Part.TEST]
    parts = {
        part.value: {**summary(found, weights), "exploratory": True}
        for part in (Part.PRACTICE, Part.VAL)
        if (found := [row for row in rows if row.unit.part is part])
    }
    return Scorecard(
        candidate=candidate.full_id,
        status=candidate.status.value,
        parts=parts,
        test=test,
        manifest=check_manifest(candidate, rows, parent),
    )


def check_manifest(
    candidate: Candidate, records: Iterable[RolloutRecord], parent: Iterable[RolloutRecord]
) -> dict[str, Any]:
    """Return how a manifest's predictions came out, on practice tasks that both harnesses were run on."""
    before = _practice(parent)
    after = _practice(records)
    shared = before.keys() & after.keys()
    flips = [task for task in candidate.manifest.expected_flips if task in shared]
    risks = [task for task in candidate.manifest.at_risk if task in shared]
    return {
        "expected_flips": {"hit": sum(after[task] > before[task] for task in flips), "of": len(flips)},
        "at_risk": {"lost": sum(after[task] < before[task] for task in risks), "of": len(risks)},
        "flipped": sum(after[task] > before[task] for task in shared),
        "broke": sum(after[task] < before[task] for task in shared),
    }


def _practice(records: Iterable[RolloutRecord]) -> dict[str, float]:
    return task_means((row.unit.task, row.reward) for row in records if row.unit.part is Part.PRACTICE)
