"""What the history shows, what it never shows, and that it can be written again."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaharness.candidate import Scorecard
from metaharness.history import History
from metaharness.runtime import history as reading
from metaharness.task import Part
from tests.archive.support import state
from tests.ledger.examples import candidate, proposal, rollout, tree, unit

SECRET = "val-task-digest"


def trajectory(**ours: Any) -> str:
    steps = [
        {"step_id": 1, "source": "system", "message": "Answer."},
        {"step_id": 2, "source": "user", "message": "where is my\nparcel \x1b[31m"},
    ]
    return json.dumps({"schema_version": "ATIF-v1.7", "steps": steps, "extra": {"metaharness": ours}}, indent=1)


WRONG = trajectory(status="scored", answer="refund", score={"reward": 0.0, "feedback": "expected delivery, got refund"})


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(tmp_path / "history")
    made.add_candidate(candidate(0), tree(), None)
    made.add_candidate(candidate(1, 0), tree("x = 2\n"), ("c0000", tree()))
    made.add_rollout(rollout(unit(1)), WRONG)
    return made


def test_a_candidate_comes_back(history: History) -> None:
    root = history.root
    assert reading.candidate_ids(root) == ["c0000", "c0001"]
    assert reading.read_source(root, "c0001") == dict(tree("x = 2\n"))
    assert reading.read_manifest(root, "c0001") == candidate(1, 0).manifest.model_dump(mode="json")
    assert reading.read_diff(root, "c0000") == ""
    assert reading.read_diff(root, "c0001").splitlines()[-2:] == ["-x = 1", "+x = 2"]
    about = json.loads((root / "candidates/c0001/candidate.json").read_text())
    assert (about["parents"], about["base"], about["proposer"]) == (["c0000"], "c0000", "codemods")
    assert "practice" in (root / "README.md").read_text()


def test_a_rollout_comes_back(history: History) -> None:
    (found,) = reading.read_rollouts(history.root, "c0001")
    assert (found.environment, found.task, found.attempt) == ("support_intents", "0f3a" * 4, 0)
    assert (found.status, found.reward, found.failed) == ("scored", 0.0, True)
    assert (found.answer, found.feedback) == ("refund", "expected delivery, got refund")
    assert found.question.startswith("where is my")
    assert found.path == history.root / f"candidates/c0001/rollouts/support_intents/{'0f3a' * 4}/0.json"
    assert found.path.read_text() == WRONG


def test_statuses_and_rewards(history: History) -> None:
    cases: list[dict[str, Any]] = [
        {"status": "harness_error", "error": "it crashed", "score": None},
        {"status": "infra_error", "error": "503", "unit": {"environment": "support_intents", "task": "whole"}},
        {"status": "scored", "score": {"reward": 1.0}, "answer": None},
    ]
    for attempt, ours in enumerate(cases, 1):
        history.add_rollout(rollout(unit(1, attempt=attempt)), trajectory(**ours))
    found = {item.attempt: item for item in reading.read_rollouts(history.root, "c0001")}
    assert [(found[n].reward, found[n].failed) for n in range(4)] == [
        (0.0, True), (0.0, True), (None, False), (1.0, False),
    ]  # fmt: skip
    assert (found[1].error, found[2].task, found[3].answer) == ("it crashed", "whole", "")


@pytest.mark.parametrize("part", [Part.VAL, Part.TEST, Part.FIT])
def test_rollouts_of_other_parts_are_refused(history: History, part: Part) -> None:
    before = state(history.root)
    with pytest.raises(ValueError, match="must not be seen by a proposer"):
        history.add_rollout(rollout(unit(1, part=part)), WRONG)
    assert state(history.root) == before


def card(**changes: Any) -> dict[str, Any]:
    val = {
        "mean": 0.5, "interval": [0.4, 0.6], "tasks": 96, "missing": 1, "outcomes": {"scored": 95, "infra_error": 1},
        "by_task": {SECRET: 1.0}, "errors": [SECRET], "tokens_per_rollout": 12,
    }  # fmt: skip
    practice = {"mean": 0.25, "interval": [0.1, 0.4], "tasks": 20, "by_task": {"0f3a": 0.0}}
    made = Scorecard(
        candidate="support/c0001", status="active", parts={"practice": practice, "val": val}, manifest={"flipped": 1}
    )
    return {**made.to_json(), "by_task": SECRET, **changes}


def test_of_val_only_totals_are_written(history: History) -> None:
    history.write_scorecard("c0001", card())
    found = reading.read_scorecard(history.root, "c0001")
    assert found is not None
    assert found["parts"]["val"] == {
        "mean": 0.5, "interval": [0.4, 0.6], "tasks": 96, "missing": 1, "outcomes": {"scored": 95, "infra_error": 1},
    }  # fmt: skip
    assert found["parts"]["practice"]["by_task"] == {"0f3a": 0.0}
    assert found["manifest"] == {"flipped": 1}
    history.write_frontier([{"candidate": "c0001", "parts": card()["parts"], "best_on": ["0f3a"]}])
    assert reading.read_frontier(history.root)[0]["parts"] == found["parts"]
    assert not [path for path in history.root.rglob("*") if path.is_file() and SECRET in path.read_text()]


@pytest.mark.parametrize(
    "data",
    [
        card(test={"mean": 0.5}),
        card(parts={"test": {"mean": 0.5}}),
        card(parts={"fit": {}}),
        card(parts={"val": {"mean": SECRET}}),
        card(parts={"val": {"interval": [0.1, [SECRET]]}}),
        card(parts={"val": {"tasks": SECRET}}),
        card(parts={"val": {"outcomes": {"scored": SECRET}}}),
    ],
)
def test_what_no_proposer_may_see_is_refused(history: History, data: dict[str, Any]) -> None:
    before = state(history.root)
    with pytest.raises((ValueError, TypeError)):
        history.write_scorecard("c0001", data)
    with pytest.raises((ValueError, TypeError)):
        history.write_frontier([{"candidate": "c0001", **{k: v for k, v in data.items() if k in ("parts", "test")}}])
    assert state(history.root) == before


def test_a_scorecard_without_scores(history: History) -> None:
    assert reading.read_scorecard(history.root, "c0001") is None
    history.write_scorecard("c0001", card(parts={"val": {"mean": None, "interval": [None, None], "tasks": 0}}))
    history.write_scorecard("c0001", card(parts={"val": {"mean": float("nan")}}))
    found = reading.read_scorecard(history.root, "c0001")
    assert found is not None
    assert found["parts"] == {"val": {"mean": None, "interval": [None, None], "outcomes": {}}}


def test_proposals_are_appended_once(history: History) -> None:
    assert reading.read_proposals(history.root) == []
    history.add_proposal(proposal(0, 1), {"practice": 0.25})
    history.add_proposal(proposal(1, None), {})
    history.add_proposal(proposal(0, 1), {"practice": 9})
    with (history.root / "proposals.jsonl").open("ab") as handle:
        handle.write(b'{"number": 2, "par')  # killed in the middle of a line
    assert [line["number"] for line in reading.read_proposals(history.root)] == [0, 1]
    again = History(history.root)
    again.add_proposal(proposal(1, None), {})
    again.add_proposal(proposal(2, None), {})
    first, *others = reading.read_proposals(history.root)
    assert first == {
        "number": 0, "parents": ["c0000"], "proposer": "codemods", "mechanism": "graft", "verdict": "accepted",
        "reason": "", "candidate": "c0001", "delta": {"practice": 0.25},
    }  # fmt: skip
    assert [line["number"] for line in others] == [1, 2]


def test_writing_again_changes_nothing(history: History) -> None:
    history.add_proposal(proposal(0, 1), {})
    before = state(history.root / "candidates")
    again = History(history.root)
    again.add_candidate(candidate(0), tree("another"), None)
    again.add_candidate(candidate(1, 0), tree("another"), ("c0000", tree()))
    again.add_rollout(rollout(unit(1)), "another")
    again.add_proposal(proposal(0, 1), {})
    assert state(history.root / "candidates") == before


def test_what_a_kill_has_left_is_finished(history: History) -> None:
    folder = history.root / "candidates" / "c0002"
    (folder / ".source.tmp" / "old").mkdir(parents=True)
    (folder / "manifest.json").touch()
    history.add_rollout(rollout(unit(2)), WRONG)
    again = History(history.root)
    assert reading.candidate_ids(history.root) == ["c0000", "c0001"]
    assert (again.has_candidate("c0001"), again.has_candidate("c0002")) == (True, False)
    again.add_candidate(candidate(2, 0), tree("y = 1\n"), ("c0000", tree()))
    assert reading.read_source(history.root, "c0002") == dict(tree("y = 1\n"))
    assert reading.read_manifest(history.root, "c0002")["mechanism"] == "graft"
    assert len(reading.read_rollouts(history.root, "c0002")) == 1
    empty = history.root / f"candidates/c0001/rollouts/support_intents/{'0f3a' * 4}/0.json"
    empty.write_text("")
    again.add_rollout(rollout(unit(1)), WRONG)
    assert empty.read_text() == WRONG


def test_the_user_of_a_sandbox_can_read_it_and_it_leads_nowhere_else(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        history = History(tmp_path / "deep" / "history")
        history.add_candidate(candidate(0), tree(**{"a/b/c.py": "x"}), None)
        history.add_rollout(rollout(unit(0)), WRONG)
        history.write_scorecard("c0000", card())
        history.write_frontier([])
        history.add_proposal(proposal(0, None), {})
    finally:
        os.umask(before)
    for path in [history.root, *history.root.rglob("*")]:
        status = path.lstat()
        assert stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink == 1)
        assert stat.S_IMODE(status.st_mode) == (0o755 if path.is_dir() else 0o644)


@given(st.text(min_size=1, max_size=80))
@settings(max_examples=50, deadline=None)
def test_names_never_leave_the_tree(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    root = tmp_path_factory.mktemp("names") / "history"
    history = History(root)
    of = unit(0)
    record = rollout(type(of)(candidate="c0000", environment=name, part=of.part, task=of.task, attempt=0))
    try:
        history.add_rollout(record, WRONG)
    except ValueError:
        assert name.startswith(".")
        return
    (path,) = (root / "candidates").rglob("*.json")
    assert path.resolve().is_relative_to(root.resolve() / "candidates" / "c0000" / "rollouts")
    assert len(path.relative_to(root).parts) == 6
    assert len(reading.read_rollouts(root, "c0000")) == 1


def test_any_text_can_be_in_a_trajectory(history: History) -> None:
    text = json.dumps({"extra": {"metaharness": {"status": "scored", "answer": "a\ud800b"}}}, ensure_ascii=False)
    history.add_rollout(rollout(unit(1, attempt=5)), text)
    assert reading.read_rollouts(history.root, "c0001")[1].answer == "a\ud800b"
