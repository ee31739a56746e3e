from __future__ import annotations

import json
from pathlib import Path

import pytest

from metaharness.environments import bundled_environments
from metaharness.environments.check import CheckReport, check_environment, inspect_environment
from metaharness.environments.limits import LimitedEnvironment
from metaharness.environments.native import NativeEnvironment
from metaharness.errors import EnvironmentFormatError
from metaharness.task import Split
from tests.environments.support import CONFIG, SPLITS, write_environment

CANARY = "metaharness-canary 0f0f0f0f"


def check(directory: Path) -> CheckReport:
    return check_environment(str(directory), base=Path())


def test_a_clean_environment(tmp_path: Path) -> None:
    report = check(write_environment(tmp_path))
    assert report.warnings == ()
    assert report.sizes["train"] == 8
    assert report.sizes["fit"] + report.sizes["practice"] == 8
    assert report.labels["train"] == {"red": 4, "green": 4}
    assert report.scored == 12
    assert json.loads(json.dumps(report.to_json()))["name"] == "colours"


@pytest.mark.parametrize("name", bundled_environments())
def test_bundled_environments_pass_their_own_check(name: str) -> None:
    report = check_environment(name, base=Path())
    assert report.scored > 0
    assert not [warning for warning in report.warnings if "canary" in warning or "label" in warning]


@pytest.mark.parametrize(
    ("splits", "warning"),
    [
        ({"val": [SPLITS["val"][0]]}, "val: no task has the label 'green'"),
        (
            {"val": [{"id": f"v{n}", "input": f"{n}", "answer": "red"} for n in range(11)] + [SPLITS["val"][1]]},
            "val: 11 of 12 tasks have the label 'red'; answering nothing else wins",
        ),
        (
            {"val": [*SPLITS["val"], {"id": "again", "input": "A ripe tomato!", "answer": "green"}]},
            "1 inputs appear more than once in a split: val-0 and again",
        ),
        (
            {"val": [*SPLITS["val"], {"id": "near", "input": "thing 1 of the train split too", "answer": "green"}]},
            "near duplicates between splits: train-1 and near: 0.86",
        ),
    ],
)
def test_warnings(tmp_path: Path, splits: dict[str, list[dict[str, str]]], warning: str) -> None:
    report = check(write_environment(tmp_path, splits=splits))
    assert any(warning in found for found in report.warnings), report.warnings


def test_canaries(tmp_path: Path) -> None:
    config = CONFIG.replace("[scorer]", f'canary = "{CANARY}"\n[scorer]')
    (missing,) = check(write_environment(tmp_path, config, {"val": [{"canary": CANARY}, *SPLITS["val"]]})).warnings
    assert missing == f'test.jsonl: lacks the canary of env.toml; add the line {{"canary": "{CANARY}"}}'
    both = {name: [{"canary": CANARY}, *SPLITS[name]] for name in ("val", "test")}
    assert check(write_environment(tmp_path, config, both)).warnings == ()


async def test_a_bundled_environment_needs_a_canary(tmp_path: Path) -> None:
    report = await inspect_environment(NativeEnvironment(write_environment(tmp_path)), is_bundled=True)
    assert report.warnings == ("env.toml: no canary; bundled environments have one, in their val and test files too",)


@pytest.mark.parametrize(
    ("code", "warning"),
    [
        ("return 0.5", "12 tasks reward an empty answer: train-0: 0.5; train-1: 0.5; train-2: 0.5; …"),
        ("return 0.5 if answer else 0", "12 labels do not earn the full reward when given as the answer: train-0: 0.5"),
        (
            "raise ValueError(task.id)",
            "12 tasks on which the scorer fails: train-0: env.py:score: ValueError: train-0;",
        ),
    ],
)
def test_the_scorer_is_tried(tmp_path: Path, code: str, warning: str) -> None:
    config = CONFIG.replace('kind = "exact"', 'kind = "custom"\nfunction = "env.py:score"')
    report = check(write_environment(tmp_path, config, files={"env.py": f"def score(task, answer):\n    {code}\n"}))
    assert any(found.startswith(warning) for found in report.warnings), report.warnings


def test_patterns_are_not_their_own_answers(tmp_path: Path) -> None:
    config = 'schema_version = 1\nname = "x"\n[scorer]\nkind = "regex"\n'
    report = check(write_environment(tmp_path, config))
    assert (report.scored, report.warnings) == (0, ())


def test_streams_are_tried_whole(tmp_path: Path) -> None:
    online = CONFIG.replace("[scorer]", 'protocol = "online"\n[online]\nstreams_per_split = 2\n[scorer]', 1)
    report = check(write_environment(tmp_path, online))
    assert (report.scored, report.warnings) == (6, ())
    assert report.sizes == {"train": 2, "fit": 0, "practice": 2, "val": 2, "test": 2}
    assert report.labels["val"] == {"red": 1, "green": 1}


async def test_any_environment_can_be_checked(tmp_path: Path) -> None:
    limited = LimitedEnvironment(NativeEnvironment(write_environment(tmp_path)), {Split.TRAIN: 6})
    report = await inspect_environment(limited)
    assert (report.sizes["train"], report.scored) == (6, 10)


def test_what_cannot_be_used_is_no_warning(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFormatError, match="no tasks"):
        check(write_environment(tmp_path, splits={"test": []}))
