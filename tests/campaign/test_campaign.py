from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from metaharness import api
from metaharness.archive import Archive
from metaharness.errors import ArchiveError, InfraError, SpecError, UserError
from metaharness.ledger import Ledger
from metaharness.report import campaign_weights, candidate_row
from metaharness.task import Part
from metaharness.trajectory import RolloutStatus, read_trajectory
from metaharness.unit import Purpose
from tests.campaign.doubles import write_world


def test_it_climbs_and_the_verdict_is_on_test(ended: tuple[Path, dict[str, Any]]) -> None:
    _, summary = ended
    test = summary["test"]
    assert summary["phase"] == "done"
    assert test["verdict"] == "better"
    assert test["winner_id"] == summary["best"] != "c0000"
    assert test["seed_id"] == "c0000"
    assert test["winner"]["mean"] > test["seed"]["mean"]
    assert test["paired_interval"][0] > 0
    assert test["winner"]["tasks"] == test["seed"]["tasks"] == 40
    assert test["complete"]


def test_budget_and_rows_agree(ended: tuple[Path, dict[str, Any]]) -> None:
    archive, summary = ended
    with Ledger.open(archive / "campaigns" / "climb", read_only=True) as ledger:
        rows = ledger.rollouts()
        assert len(rows) == summary["spent"]["rollouts"] <= 260
        assert len({row.unit for row in rows}) == len(rows)
        assert {row.status for row in rows} == {RolloutStatus.SCORED}
        assert not [row for row in rows if row.unit.part is Part.TEST and row.purpose is not Purpose.TEST]
        verdicts = [record.verdict for record in ledger.proposals()]
    assert {"accepted", "rejected", "failed"} <= set(verdicts)
    assert summary["proposals"]["rejected"] == verdicts.count("rejected")


def test_test_is_read_for_winner_and_seed_only_and_recorded(ended: tuple[Path, dict[str, Any]]) -> None:
    archive, summary = ended
    with Ledger.open(archive / "campaigns" / "climb", read_only=True) as ledger:
        read = {row.unit.candidate for row in ledger.rollouts(part=Part.TEST)}
        trajectories = {row.trajectory.split("/")[0] for row in ledger.rollouts(part=Part.TEST)}
        order = [decision.kind for decision in ledger.decisions()]
    assert read == {"c0000", summary["best"]}
    assert trajectories == {"sealed"}
    assert order.index("winner") < order.index("final")
    reads = Archive.open(archive).test_reads()
    assert len(reads) == 1


def test_proposers_see_practice_and_nothing_else(ended: tuple[Path, dict[str, Any]]) -> None:
    archive, _ = ended
    history = archive / "campaigns" / "climb" / "history"
    seen = "".join(path.read_text() for path in history.rglob("*") if path.is_file())
    assert "train word" in seen
    assert "val word" not in seen
    assert "test word" not in seen


def test_git_shows_lineage_scores_and_winner(ended: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    archive, summary = ended
    log = subprocess.run(
        ["git", "-C", str(archive / "harnesses.git"), "log", "--graph", "--notes=metaharness", "--all"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert "answers more than 3." in log
    assert '"mean"' in log
    subprocess.run(["git", "clone", "-q", str(archive / "harnesses.git"), str(tmp_path / "clone")], check=True)
    with Ledger.open(archive / "campaigns" / "climb", read_only=True) as ledger:
        winner = ledger.candidate(summary["best"])
    found = Archive.open(archive).read_tree(winner.commit)
    assert (tmp_path / "clone" / "harness.py").read_text() == found.text("harness.py")


def test_notes_hold_test_scores_only_for_what_was_read(ended: tuple[Path, dict[str, Any]]) -> None:
    archive, summary = ended
    opened = Archive.open(archive)
    with Ledger.open(archive / "campaigns" / "climb", read_only=True) as ledger:
        for candidate in ledger.candidates():
            note = opened.read_note(candidate.commit)
            assert note is not None
            assert (note["test"] is not None) == (candidate.id in ("c0000", summary["best"]))


def test_trajectories_are_atif_with_what_was_said(ended: tuple[Path, dict[str, Any]]) -> None:
    archive, summary = ended
    campaign = archive / "campaigns" / "climb"
    with Ledger.open(campaign, read_only=True) as ledger:
        row = next(row for row in ledger.rollouts(candidate=summary["best"], part=Part.VAL) if row.reward)
    trajectory = read_trajectory(campaign / row.trajectory)
    assert trajectory.steps[-1].source == "agent"
    assert trajectory.ours["answer"] == trajectory.steps[-1].message


def test_running_it_again_refuses_and_names_resume(ended: tuple[Path, dict[str, Any]]) -> None:
    archive, _ = ended
    with pytest.raises(ArchiveError, match="metaharness resume climb"):
        api.run(archive.parent / "campaign.toml", archive=archive)


def test_resuming_what_has_ended_changes_nothing(ended: tuple[Path, dict[str, Any]]) -> None:
    archive, summary = ended
    again = api.resume("climb", archive=archive)
    assert again["test"] == summary["test"]
    assert again["spent"] == summary["spent"]


def test_rows_of_candidates_are_json(ended: tuple[Path, dict[str, Any]]) -> None:
    archive, _ = ended
    with Ledger.open(archive / "campaigns" / "climb", read_only=True) as ledger:
        rows = [candidate_row(ledger, c, campaign_weights(ledger)) for c in ledger.candidates()]
    assert json.loads(json.dumps(rows)) == rows
    assert rows[0]["parents"] == []
    assert rows[1]["parents"] == ["c0000"]


def test_an_archived_candidate_can_be_a_seed(ended: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    shutil.copytree(ended[0], archive)
    summary = ended[1]
    spec = write_world(tmp_path)
    text = (
        spec.read_text()
        .replace('"./seed"', f'"archive:climb/{summary["best"]}"')
        .replace('climb"\nseeds', 'two"\nseeds')
    )
    spec.write_text(text.replace("[final]", '[final]\ntest = "none"').replace("rollouts = 260", "rollouts = 60"))
    second = api.run(spec, archive=archive)
    assert second["test"]["verdict"] == "selected, unconfirmed"
    with Ledger.open(archive / "campaigns" / "two", read_only=True) as ledger:
        assert not ledger.rollouts(part=Part.TEST)


def test_when_no_candidate_beats_the_seed_test_stays_unread(tmp_path: Path) -> None:
    summary = api.run(write_world(tmp_path, skill=10, rollouts=200), archive=tmp_path / "archive")
    assert summary["test"]["verdict"] == "no candidate beat the seeds"
    with Ledger.open(tmp_path / "archive" / "campaigns" / "climb", read_only=True) as ledger:
        assert not ledger.rollouts(part=Part.TEST)
    assert Archive.open(tmp_path / "archive").test_reads() == []


def test_independent_search_also_ends(tmp_path: Path) -> None:
    summary = api.run(write_world(tmp_path, strategy="independent", rollouts=240), archive=tmp_path / "archive")
    assert summary["phase"] == "done"


def test_a_model_that_is_always_down_fails_the_run_and_scores_nothing(tmp_path: Path) -> None:
    spec = write_world(tmp_path, skill=10)
    spec.write_text(
        spec.read_text().replace("doubles:know", "doubles_down:down").replace("[model]", "[model]\nretries = 0")
    )
    with pytest.raises(InfraError, match="resume climb"):
        api.run(spec, archive=tmp_path / "archive")
    with Ledger.open(tmp_path / "archive" / "campaigns" / "climb", read_only=True) as ledger:
        rows = ledger.rollouts()
        assert {row.status for row in rows} == {RolloutStatus.INFRA_ERROR}
        assert {row.reward for row in rows} == {None}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("rollouts = 260", "rollouts = 60"), "budget.rollouts: 60 leaves nothing for the search"),
        (("rollouts = 260", "rollouts = true"), "budget.rollouts: input should be a valid integer"),
        (("rollouts = 260", 'rollouts = "260"'), "budget.rollouts: input should be a valid integer"),
        (("rollouts = 260", "hours = inf"), "budget.hours: input should be a finite number"),
        (("rollouts = 260", "usd = 5"), "budget.usd: calls of scripted/tests.campaign.doubles:know are counted as 0"),
        (("seeds = ", "sedes = "), "campaign.toml: sedes: unknown field; did you mean 'seeds'?"),
        (("[model]", '[model]\nbase_url = "here"'), "model.base_url"),
        (('"./seed"', '"dirct"'), "seeds[0]: unknown seed 'dirct'; did you mean 'direct'?"),
        (('"./seed"', '"archive:climb/c0000"'), "seeds[0]: seed 'archive:climb/c0000': there is no archive"),
        (('"./seed"', '"./nowhere"'), "seed './nowhere': no such directory"),
        (('"./env"', '"./nowhere"'), "environments[0].ref './nowhere'"),
        (('seeds = ["./seed"]', 'seeds = ["./seed"]\nscope = "prompts"'), "none of its files may be changed"),
        (('"./env"', '"suport_intents"'), "did you mean 'support_intents'?"),
        (('kind = "greedy"', 'kind = "greddy"'), "strategy.kind: unknown strategy 'greddy'; did you mean 'greedy'?"),
        (("practice = 4", "practise = 4"), "strategy.options.practise: unknown field; did you mean 'practice'?"),
        (("scripted/tests.campaign.doubles:know", "scriptd/x"), "did you mean 'scripted'?"),
        (("scripted/tests.campaign.doubles:know", "scripted/nothing"), "model.ref"),
        (
            ("tests.campaign.doubles:Ladder", "codemod"),
            "proposers[0].kind: unknown proposer 'codemod'; did you mean 'codemods'?",
        ),
        (
            ('engine = "bubblewrap"', 'engine = "bubblewrp"'),
            "sandbox.engine: unknown sandbox engine 'bubblewrp'; did you mean 'bubblewrap'?",
        ),
    ],
)
def test_a_wrong_request_is_one_line_and_leaves_nothing_behind(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    spec = write_world(tmp_path)
    assert change[0] in spec.read_text()
    spec.write_text(spec.read_text().replace(*change))
    with pytest.raises(UserError) as caught:
        api.run(spec, archive=tmp_path / "archive")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "archive").exists()


def test_a_resume_under_another_environment_is_refused(tmp_path: Path) -> None:
    spec = write_world(tmp_path, rollouts=200)
    spec.write_text(spec.read_text().replace("[final]", '[final]\ntest = "none"'))
    api.run(spec, archive=tmp_path / "archive")
    with (tmp_path / "env" / "val.jsonl").open("a") as tasks:
        tasks.write('{"id": "val-new", "input": "new", "answer": "NEW"}\n')
    with pytest.raises(UserError, match="environments: shout changed since the campaign began"):
        api.resume("climb", archive=tmp_path / "archive")


def test_an_unknown_campaign_is_named_with_the_known_ones(ended: tuple[Path, dict[str, Any]]) -> None:
    with pytest.raises(ArchiveError, match=r"unknown campaign 'clim'; did you mean 'climb'"):
        api.resume("clim", archive=ended[0])


def test_a_spec_that_is_absent_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no such file"):
        api.run(tmp_path / "absent.toml", archive=tmp_path / "archive")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('entry = "harness:Harness"', 'command = ["python", "harness.py"]'), "harness.toml: command"),
        (("entry", 'requirements = ["requests"]\nentry'), "harness.toml: requirements"),
        (("entry", 'place = "task"\nentry'), "harness.toml: place"),
        (("entry", "editable = []\nentry"), "none of its files may be changed"),
        (("harness:Harness", "harness:Missing"), "Missing"),
    ],
)
def test_a_seed_that_could_never_run_is_refused(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    spec = write_world(tmp_path)
    config = tmp_path / "seed" / "harness.toml"
    assert change[0] in config.read_text()
    config.write_text(config.read_text().replace(*change))
    with pytest.raises(UserError) as caught:
        api.run(spec, archive=tmp_path / "archive")
    assert "seed './seed'" in str(caught.value)
    assert message in str(caught.value)
    assert not (tmp_path / "archive" / "campaigns" / "climb").exists()
