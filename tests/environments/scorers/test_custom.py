from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from metaharness.environments import load_environment
from metaharness.environments.scorers.custom import CustomOptions, CustomScorer
from metaharness.errors import EnvironmentFormatError, ScoringFailed
from metaharness.task import Split
from tests.environments.support import SPLITS, task, write_environment

CODE = '''\
"""Scores by what the answer says."""

import os
import re
import sys
import time
from dataclasses import dataclass

from metaharness.score import Score

from .helper import BEST


@dataclass
class Kept:
    calls: int = 0


KEPT = Kept()


def score(task, answer):
    KEPT.calls += 1
    print("a print is no reply")
    if answer == "raise":
        raise KeyError("lost\\nline")
    if answer == "exit":
        sys.exit(3)
    if answer == "die":
        os._exit(9)
    if answer == "sleep":
        time.sleep(60)
    if answer == "backtrack":
        re.fullmatch("(a+)+b", "a" * 60)
    if answer == "calls":
        return KEPT.calls
    if answer == "pid":
        return os.getpid()
    if answer == "mapping":
        return {"reward": BEST, "components": {"half": 5}, "feedback": task.metadata["hint"]}
    if answer == "score":
        return Score(reward=0.5)
    if answer == "choices":
        return 10.0 if task.choices == ("a", "b") and task.split == "train" else 0.0
    return {"text": "much", "none": None, "nan": float("nan"), "true": True, "list": {"rewards": 1}}.get(answer, 5)
'''


def make(tmp_path: Path, code: str = CODE, **options: object) -> CustomScorer:
    (tmp_path / "env.py").write_text(code)
    (tmp_path / "helper.py").write_text("BEST = 10\n")
    given = {"kind": "custom", "function": "env.py:score", "reward_range": (0, 10), "timeout_s": 20, **options}
    return CustomOptions.model_validate(given).build(tmp_path)


def test_rewards_are_rescaled_and_shown(tmp_path: Path) -> None:
    scorer = make(tmp_path)
    assert scorer.score(task(), "five").reward == 0.5
    assert scorer.score(task(), "true").reward == 0.1
    assert scorer.score(task(), "score").reward == pytest.approx(0.05)
    assert scorer.score(task(choices=["a", "b"]), "choices").reward == 1
    best = scorer.score(task(metadata={"hint": "look closer"}), "mapping")
    assert (best.reward, best.components, best.feedback) == (1.0, {"half": 5.0}, "look closer")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("raise", r"env\.py:score: KeyError: 'lost\\nline'"),
        ("exit", r"SystemExit: 3"),
        ("die", "the scorer's process ended"),
        ("text", "a reward must be a number, not str"),
        ("none", "a reward must be a number, not NoneType"),
        ("nan", "reward nan is not a finite number"),
        ("list", "a score has `reward`, `components` and `feedback`, not rewards"),
        ("pid", r"reward \d+\.0 is not in its reward_range \[0\.0, 10\.0\]"),
    ],
)
def test_failures_are_no_scores_and_the_next_answer_is_judged(tmp_path: Path, answer: str, message: str) -> None:
    scorer = make(tmp_path)
    with pytest.raises(ScoringFailed, match=message) as caught:
        scorer.score(task(), answer)
    assert "\n" not in str(caught.value)
    assert scorer.score(task(), "five").reward == 0.5


def test_one_process_serves_all_answers(tmp_path: Path) -> None:
    scorer = make(tmp_path)
    rewards = [scorer.score(task(), "calls").reward for _ in range(3)]
    assert rewards == [0.1, 0.2, 0.3]


@pytest.mark.parametrize("answer", ["sleep", "backtrack"])
def test_a_hang_ends_at_the_time_limit(tmp_path: Path, answer: str) -> None:
    scorer = make(tmp_path, timeout_s=2)
    started = time.monotonic()
    with pytest.raises(ScoringFailed, match=r"the scorer's process ended: Timeout \(0:00:02\)!"):
        scorer.score(task(), answer)
    assert time.monotonic() - started < 30
    assert scorer.score(task(), "five").reward == 0.5


def test_the_process_ends_with_the_scorer(tmp_path: Path) -> None:
    scorer = make(tmp_path, reward_range=(0, 10**9))
    pid = round(scorer.score(task(), "pid").reward * 10**9)
    os.kill(pid, 0)
    del scorer
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def other(task, answer): return 1\n", "unknown function 'score' (known: other)"),
        ("def score(task, answer)\n", "env.py:1: expected ':'"),
        ("import nothing_of_this_name\ndef score(task, answer): return 1\n", "cannot be loaded: ModuleNotFoundError"),
        ("def score(task, answer): return 1\nraise SystemExit\n", "cannot be loaded: SystemExit"),
        ("x = '\0'", "env.py"),
    ],
)
def test_files_that_do_not_load(tmp_path: Path, code: str, message: str) -> None:
    with pytest.raises(EnvironmentFormatError) as caught:
        make(tmp_path, code)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFormatError, match=r"env\.py: no such file"):
        CustomOptions(function="env.py:score").build(tmp_path)


CONFIG = """\
schema_version = 1
name = "own"
[scorer]
kind = "custom"
function = "env.py:score"
needs_label = false
"""
LENGTH = "def score(task, answer):\n    return min(1, len(answer) / task.metadata.get('full', 4))\n"


async def test_an_environment_with_its_own_scorer(tmp_path: Path) -> None:
    unlabelled = [{"id": "t", "input": "write", "metadata": {"full": 10}}]
    write_environment(tmp_path, CONFIG, {"train": unlabelled}, {"env.py": LENGTH})
    environment = load_environment(str(tmp_path), base=Path())
    assert not environment.info.can_fit
    session = await environment.open(environment.tasks(Split.TRAIN)[0])
    rewards = await asyncio.gather(*(session.score("x" * n) for n in range(4)))
    assert [score.reward for score in rewards] == pytest.approx([0, 0.1, 0.2, 0.3])


def test_code_and_metadata_are_part_of_the_digest(tmp_path: Path) -> None:
    def digest() -> str:
        return load_environment(str(tmp_path), base=Path()).info.digest

    write_environment(tmp_path, CONFIG, files={"env.py": LENGTH})
    first = digest()
    assert digest() == first
    (tmp_path / "helper.py").write_text("X = 1\n")
    with_helper = digest()
    val = [{**line, "metadata": {"full": 7}} for line in SPLITS["val"]]
    write_environment(tmp_path, CONFIG, {"val": val}, {"env.py": LENGTH})
    assert len({first, with_helper, digest()}) == 3


def test_options() -> None:
    for options in (
        {"function": "env.py"},
        {"function": "../env.py:score"},
        {"function": "env.py:score", "reward_range": (1, 0)},
        {"function": "env.py:score", "reward_range": (0, float("inf"))},
        {"function": "env.py:score", "timeout_s": 0},
    ):
        with pytest.raises(ValueError, match="1 validation error"):
            CustomOptions.model_validate({"kind": "custom", **options})
