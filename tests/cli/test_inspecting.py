from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from metaharness.archive import Archive
from tests.cli.support import Cli

Ended = tuple[Path, dict[str, Any]]


def test_ls_lists_campaigns_and_candidates(cli: Cli, ended: Ended) -> None:
    archive, summary = ended
    campaigns = cli("ls", "--archive", archive)
    assert campaigns.code == 0
    assert "climb" in campaigns.out
    assert "better" in campaigns.out
    candidates = cli("ls", "climb", "--archive", archive)
    assert "one more" in candidates.out
    assert "exploratory" in candidates.out
    rows = json.loads(cli("ls", "climb", "--archive", archive, "--json").out)
    assert len(rows) == summary["candidates"]
    assert rows[0]["id"] == "c0000"
    assert set(rows[0]["val"]) == {"mean", "interval", "tasks", "missing"}


def test_show_says_where_it_comes_from_and_how_it_scored(cli: Cli, ended: Ended) -> None:
    archive, summary = ended
    shown = cli("show", f"climb/{summary['best']}", "--archive", archive)
    assert shown.code == 0
    for text in ("hypothesis", "answers more than", "val", "exploratory", "harness.py", "SKILL"):
        assert text in shown.out
    data = json.loads(cli("show", summary["best"], "--archive", archive, "--json").out)
    assert data["files"]["harness.py"] > 100
    assert data["scorecard"]["test"] is None
    assert data["manifest"]["mechanism"] == "one more"


def test_diff_with_its_parent_and_with_another(cli: Cli, ended: Ended) -> None:
    archive, summary = ended
    own = cli("diff", "climb/c0001", "--archive", archive)
    assert "-SKILL = 3" in own.out
    assert "+SKILL = 4" in own.out
    data = json.loads(cli("diff", "climb/c0000", summary["best"], "--archive", archive, "--json").out)
    assert data["before"] == "climb/c0000"
    assert "-SKILL = 3" in data["diff"]
    seed = cli("diff", "climb/c0000", "--archive", archive)
    assert seed.code == 2
    assert "is a seed and has no parent" in seed.err


def test_lineage_is_a_tree_with_the_winner_marked(cli: Cli, ended: Ended) -> None:
    archive, summary = ended
    tree = cli("lineage", "climb", "--archive", archive)
    assert tree.code == 0
    assert tree.out.count("(winner)") == 1
    data = json.loads(cli("lineage", "climb", "--archive", archive, "--json").out)
    assert {"parent": "c0000", "child": "c0001"} in data["edges"]
    assert [node["id"] for node in data["nodes"] if node["winner"]] == [summary["best"]]


def test_trace_lists_rollouts_and_prints_one(cli: Cli, ended: Ended) -> None:
    archive, summary = ended
    rows = json.loads(cli("trace", summary["best"], "--archive", archive, "--json").out)
    assert rows
    assert not [row for row in rows if row["part"] == "test"]
    listed = cli("trace", summary["best"], "--archive", archive)
    assert rows[0]["task"][:12] in listed.out
    right = next(row for row in rows if row["reward"] == 1.0)
    printed = cli("trace", summary["best"], "--task", right["task"][:10], "--archive", archive)
    assert printed.code == 0
    assert "status: scored" in printed.out
    assert f"answer: {right['answer']}" in printed.out
    raw = json.loads(cli("trace", summary["best"], "--task", right["task"][:10], "--archive", archive, "--json").out)
    assert raw["schema_version"] == "ATIF-v1.7"


def test_trace_keeps_the_test_split_sealed(cli: Cli, ended: Ended) -> None:
    archive, summary = ended
    sealed = next((archive / "campaigns" / "climb" / "sealed" / summary["best"]).rglob("*.json"))
    refused = cli("trace", summary["best"], "--task", sealed.parent.name, "--archive", archive)
    assert refused.code == 2
    assert "has no trajectory of a task" in refused.err


def test_best_has_the_verdict(cli: Cli, ended: Ended) -> None:
    archive, summary = ended
    data = json.loads(cli("best", "--archive", archive, "--json").out)
    test = data["test"]
    assert test["seed"]["mean"] < test["winner"]["mean"]
    assert test["paired_difference"] == pytest.approx(test["winner"]["mean"] - test["seed"]["mean"])
    assert len(test["paired_interval"]) == 2
    shown = cli("best", "climb", "--archive", archive)
    assert "verdict on test: better" in shown.out
    assert f"metaharness export climb/{summary['best']}" in shown.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ls", "clim"], "unknown campaign 'clim'; did you mean 'climb'"),
        (["show", "climb/c9999"], "c9999"),
        (["show", "nonsense"], "name it `c0042` or `<campaign>/c0042`"),
        (["best", "other"], "unknown campaign 'other'"),
        (["trace", "climb/c0000", "--status", "scord"], "unknown status 'scord'; did you mean 'scored'"),
        (["export", "climb/best", "--to", "/"], "/: exists"),
        (["lineage", "nope"], "unknown campaign 'nope'"),
    ],
)
def test_wrong_names_are_one_line_and_exit_2(cli: Cli, ended: Ended, arguments: list[str], message: str) -> None:
    done = cli(*arguments, "--archive", ended[0])
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert message in done.err
    assert done.err.count("\n") == 1


def test_an_absent_archive_is_named(cli: Cli, tmp_path: Path) -> None:
    done = cli("ls", "--archive", tmp_path / "none")
    assert done.code == 2
    assert "there is none" in done.err


def test_a_campaign_without_its_spec_is_not_called_unknown(cli: Cli, tmp_path: Path) -> None:
    with Archive.open(tmp_path / "archive", create=True) as archive:
        archive.campaign_dir("lost").mkdir()
    done = cli("best", "lost", "--archive", tmp_path / "archive")
    assert done.code == 2
    assert "spec.toml is gone" in done.err
    assert done.err.count("\n") == 1
    (archive.campaign_dir("lost") / "spec.toml").write_bytes(b"\xff")
    done = cli("best", "lost", "--archive", tmp_path / "archive")
    assert done.code == 2
    assert "spec.toml: cannot be read" in done.err
