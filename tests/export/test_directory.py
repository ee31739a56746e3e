from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from metaharness import api
from metaharness.archive import Archive
from metaharness.errors import UserError

ROOT = Path(__file__).parents[2]
Ended = tuple[Path, dict[str, Any]]


def run(directory: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", directory.name, *arguments],
        cwd=directory.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture(scope="module")
def exported(ended: Ended, tmp_path_factory: pytest.TempPathFactory) -> Path:
    archive, _ = ended
    directory = tmp_path_factory.mktemp("export") / "winner"
    found = api.export("climb/best", to=directory, archive=archive)
    assert found.directory == directory
    assert "python -m winner" in found.command
    return directory


def test_it_answers_a_new_question_by_itself(exported: Path) -> None:
    # Nine of these ten questions at least are within the winner's skill or answered honestly with nonsense.
    questions = [f"a new question {number}" for number in range(10)]
    done = run(exported, "--json", *questions)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [found["question"] for found in answers] == questions
    right = [found for found in answers if found["answer"] == found["question"].upper()]
    assert right
    assert all(found["answer"] == "no idea" for found in answers if found not in right)
    assert run(exported, given="a new question 1\na new question 2\n").stdout.count("\n") == 2


def test_it_holds_the_source_as_archived_and_a_card(exported: Path, ended: Ended) -> None:
    archive, summary = ended
    card = json.loads((exported / "card.json").read_text())
    assert card["candidate"]["id"] == summary["best"]
    assert card["test"]["paired_interval"] == summary["test"]["paired_interval"]
    tree = Archive.open(archive).read_tree(card["candidate"]["commit"])
    assert (exported / "harness" / "harness.py").read_bytes() == tree["harness.py"]
    assert "95% interval" in (exported / "README.md").read_text()


def test_wrong_use_is_one_line(exported: Path) -> None:
    done = run(exported, "--environment", "shut", "hello")
    assert done.returncode == 2
    assert "unknown environment 'shut'; did you mean 'shout'?" in done.stderr


def test_an_existing_directory_is_not_touched(ended: Ended, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="exists"):
        api.export("climb/best", to=tmp_path, archive=ended[0])
