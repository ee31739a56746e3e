from __future__ import annotations

import pytest

from metaharness.candidate import Candidate, Manifest
from metaharness.report.scorecards import check_manifest, compare_records, estimate_records, scorecard, summary
from metaharness.score import Score
from metaharness.task import Part
from metaharness.trajectory import RolloutStatus
from metaharness.unit import RolloutRecord, RolloutUnit

WEIGHTS = {"a": 0.75, "b": 0.25}


def row(
    task: str,
    reward: float | None,
    *,
    environment: str = "a",
    part: Part = Part.VAL,
    attempt: int = 0,
    status: RolloutStatus | None = None,
    candidate: str = "c0001",
) -> RolloutRecord:
    unit = RolloutUnit(candidate=candidate, environment=environment, part=part, task=task, attempt=attempt)
    if reward is None:
        return RolloutRecord(unit=unit, status=status or RolloutStatus.INFRA_ERROR, error="gone")
    return RolloutRecord(unit=unit, status=RolloutStatus.SCORED, score=Score(reward=reward), seconds=2.0)


def candidate(**changes: object) -> Candidate:
    given: dict[str, object] = {
        "id": "c0001",
        "campaign": "x",
        "parents": ("c0000",),
        "tree_digest": "0" * 64,
        "commit": "0" * 40,
        "proposer": "codemods",
        "name": "n",
        "manifest": Manifest(hypothesis="h", expected_flips=("t1", "t2", "unseen"), at_risk=("t3",)),
        **changes,
    }
    return Candidate(**given)  # type: ignore[arg-type]


def test_infrastructure_failures_are_missing_and_harness_errors_are_zero() -> None:
    rows = [row("1", 1.0), row("2", None), row("3", None, status=RolloutStatus.HARNESS_ERROR)]
    found = estimate_records(rows, WEIGHTS)
    assert (found.mean, found.tasks, found.missing) == (0.5, 2, 1)


def test_attempts_count_once_a_task() -> None:
    found = estimate_records([row("1", 1.0), row("1", 0.0, attempt=1), row("2", 1.0)], WEIGHTS)
    assert (found.mean, found.tasks) == (0.75, 2)


def test_environments_are_weighted_whatever_their_sizes() -> None:
    rows = [row(str(n), 1.0) for n in range(3)] + [row(str(n), 0.0, environment="b") for n in range(30)]
    assert estimate_records(rows, WEIGHTS).mean == pytest.approx(0.75)


def test_a_winner_s_missing_can_be_counted_as_zero() -> None:
    seed = [row(str(n), 0.0, candidate="c0000") for n in range(20)]
    winner = [row(str(n), 1.0 if n < 10 else None) for n in range(20)]
    assert compare_records(seed, winner, WEIGHTS).difference == 1.0
    strict = compare_records(seed, winner, WEIGHTS, missing_as_zero=True)
    assert (strict.difference, strict.tasks) == (0.5, 20)


def test_a_summary_counts_outcomes_and_spend_a_rollout() -> None:
    found = summary([row("1", 1.0), row("2", None)], WEIGHTS)
    assert found["outcomes"] == {"infra_error": 1, "scored": 1}
    assert found["seconds_per_rollout"] == 1.0


def test_a_scorecard_never_holds_test_rollouts() -> None:
    rows = [row("1", 1.0), row("2", 1.0, part=Part.TEST)]
    card = scorecard(candidate(), rows, WEIGHTS).to_json()
    assert set(card["parts"]) == {"val"}
    assert card["parts"]["val"]["exploratory"]
    assert card["test"] is None


def test_predictions_are_checked_on_shared_practice_tasks() -> None:
    before = [row(f"t{n}", float(n == 3), part=Part.PRACTICE, candidate="c0000") for n in (1, 2, 3, 4)]
    after = [row("t1", 1.0, part=Part.PRACTICE), row("t2", 0.0, part=Part.PRACTICE), row("t3", 0.0, part=Part.PRACTICE)]
    assert check_manifest(candidate(), after, before) == {
        "expected_flips": {"hit": 1, "of": 2},
        "at_risk": {"lost": 1, "of": 1},
        "flipped": 1,
        "broke": 1,
    }
