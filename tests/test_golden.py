"""The file formats, each against a golden file: a change to one is a change of a published format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from metaharness.candidate import Manifest, Scorecard
from metaharness.environments.config import parse_config
from metaharness.environments.lines import read_tasks
from metaharness.errors import EnvironmentFormatError, HarnessError, SpecError
from metaharness.source import SourceTree
from metaharness.spec import load_spec, parse_spec
from metaharness.task import Split
from metaharness.trajectory import read_trajectory

GOLDEN = Path(__file__).parent / "golden"


def test_campaign() -> None:
    spec = load_spec(GOLDEN / "campaign.toml")
    assert spec.name == "support"
    assert spec.seeds == ("direct", "few_shot", "./my_agent", "archive:old/c0042")
    assert spec.model.ref == "local/smollm2-135m"
    assert spec.environments[0].ref == "support_intents"
    assert spec.proposers[0].donors == ("few_shot", "label_scoring")
    assert spec.budget.caps().rollouts == 1500
    assert spec.sandbox.limits().timeout_s == 120
    assert spec.final.controls == ("bundled", "neighbours")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('name = "support"', 'nam = "support"'), "campaign.toml: nam: unknown field; did you mean 'name'?"),
        (('name = "support"', ""), "campaign.toml: name: missing"),
        (("rollouts = 1500", "rollout = 1500"), "budget.rollout: unknown field; did you mean 'rollouts'?"),
        (("rollouts = 1500", "rollouts = 0"), "budget.rollouts: input should be greater than 0 (got 0)"),
        (("rollouts = 1500", 'rollouts = "many"'), "budget.rollouts: input should be a valid integer"),
        (("rollouts = 1500\nhours = 0.5", ""), "budget: set at least one of"),
        (('"few_shot", "./my_agent"', '"direct", "./my_agent"'), "seeds: a seed is named twice"),
        (('test = "once"', 'test = "twice"'), "final.test: input should be 'once' or 'none' (got 'twice')"),
        (("[budget]", "[budget"), "not valid TOML"),
    ],
)
def test_campaign_errors_name_file_and_field(change: tuple[str, str], message: str) -> None:
    text = (GOLDEN / "campaign.toml").read_text()
    assert change[0] in text
    with pytest.raises(SpecError) as caught:
        parse_spec(text.replace(change[0], change[1], 1))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_harness() -> None:
    tree = SourceTree({"harness.toml": (GOLDEN / "harness.toml").read_bytes()})
    assert tree.config.entry == "harness:Harness"
    assert tree.config.editable == ("**/*.py", "prompts/**")


def test_harness_errors_name_file_and_field() -> None:
    text = (GOLDEN / "harness.toml").read_text()
    for change, message in (
        (("entry", "entri"), "harness.toml: entri: unknown field; did you mean 'entry'?"),
        (('entry = "harness:Harness"', ""), "harness.toml: give exactly one of entry and command"),
        (('"harness:Harness"', '"harness.py"'), "harness.toml: entry: string should match pattern"),
    ):
        with pytest.raises(HarnessError, match=r"harness\.toml") as caught:
            _ = SourceTree({"harness.toml": text.replace(*change).encode()}).config
        assert message in str(caught.value)


def test_environment() -> None:
    config = parse_config((GOLDEN / "env.toml").read_text())
    assert config.name == "support_intents"
    assert config.choices == ("billing", "delivery")
    assert config.splits.of(Split.VAL) == "val.jsonl"
    assert config.scorer.kind == "exact"
    assert config.canary == "metaharness-canary 00000000-0000-4000-8000-000000000000"
    assert (config.protocol, config.streams) == ("offline", None)


def test_environment_errors_name_file_and_field() -> None:
    text = (GOLDEN / "env.toml").read_text()
    for change, message in (
        (('name = "support_intents"', ""), "env.toml: name: missing"),
        (("license", "licence"), "env.toml: licence: unknown field; did you mean 'license'?"),
        (('kind = "exact"', 'kind = "exakt"'), "env.toml: scorer.kind: unknown scorer 'exakt'; did you mean 'exact'?"),
        (('test = "test.jsonl"', 'test = "val.jsonl"'), "env.toml: splits: two splits share a file"),
    ):
        assert change[0] in text
        with pytest.raises(EnvironmentFormatError) as caught:
            parse_config(text.replace(*change, 1))
        assert message in str(caught.value)


def test_task_line() -> None:
    config = parse_config((GOLDEN / "env.toml").read_text())
    found = read_tasks(GOLDEN / "task.jsonl", Split.VAL, config, config.scorer.build(GOLDEN))
    assert found.canaries == (config.canary,)
    assert found.lines == (2,)
    (task,) = found.tasks
    assert (task.id, task.input, task.answer) == ("val-0001", "where is my parcel", "delivery")
    assert (task.instruction, task.choices) == (config.instruction, config.choices)
    assert task.metadata == {"ambiguous": False}


def test_manifest() -> None:
    data = json.loads((GOLDEN / "manifest.json").read_text())
    assert json.loads(Manifest.model_validate(data).model_dump_json()) == data


def test_scorecard() -> None:
    data = json.loads((GOLDEN / "scorecard.json").read_text())
    version = data.pop("schema_version")
    assert Scorecard(**data).to_json() == {"schema_version": version, **data}


def test_trajectory() -> None:
    trajectory = read_trajectory(GOLDEN / "trajectory.json")
    assert trajectory.ours["answer"] == "delivery"
    assert json.loads(trajectory.to_text()) == json.loads((GOLDEN / "trajectory.json").read_text())
