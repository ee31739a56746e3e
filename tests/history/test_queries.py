"""The command line that proposers use, also under Python 3.9 and without the rest of the package."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from metaharness.history import History
from metaharness.runtime import history as reading
from tests.history.test_history import WRONG, card, trajectory
from tests.ledger.examples import candidate, proposal, rollout, tree, unit
from tests.support import require

RUNTIME = Path(reading.__file__).parent


@pytest.fixture
def root(tmp_path: Path) -> Path:
    history = History(tmp_path / "history")
    history.add_candidate(candidate(0), tree(), None)
    history.add_candidate(candidate(1, 0), tree("x = 2\n# retry\n"), ("c0000", tree()))
    history.add_candidate(candidate(2, 1), tree("x = 3\n"), ("c0001", tree("x = 2\n")))
    history.add_rollout(rollout(unit(1)), WRONG)
    history.add_rollout(rollout(unit(1, attempt=1)), trajectory(status="scored", answer="x", score={"reward": 1.0}))
    history.add_rollout(rollout(unit(1, attempt=2)), trajectory(status="harness_error", error="KeyError: 'a'"))
    history.write_scorecard("c0001", card())
    history.write_scorecard("c0002", card(parts={"val": {"mean": 0.75, "interval": [0.7, 0.8], "tasks": 96}}))
    history.write_frontier([{"candidate": "c0002", "parts": card()["parts"]}])
    history.add_proposal(proposal(0, 1), {})
    return history.root


def ask(root: Path, *arguments: str) -> list[str]:
    out = io.StringIO()
    assert reading.main([str(root), *arguments], out) == 0
    return out.getvalue().splitlines()


def test_frontier(root: Path) -> None:
    assert ask(root, "frontier") == [
        "c0002  val 0.500 [0.400, 0.600] over 96 tasks  practice 0.250 [0.100, 0.400] over 20 tasks  graft"
    ]
    (root / "frontier.json").unlink()
    assert "empty" in ask(root, "frontier")[0]


def test_top(root: Path) -> None:
    assert [line.split()[0] for line in ask(root, "top")] == ["c0002", "c0001"]
    assert [line.split()[0] for line in ask(root, "top", "--part", "practice")] == ["c0001"]
    assert [line.split()[0] for line in ask(root, "top", "-n", "1")] == ["c0002"]


def test_diff(root: Path) -> None:
    assert ask(root, "diff", "c0001")[-3:] == ["-x = 1", "+x = 2", "+# retry"]
    assert ask(root, "diff", "c0002", "c0000") == [
        "--- c0000/harness.py", "+++ c0002/harness.py", "@@ -1 +1 @@", "-x = 1", "+x = 3",
    ]  # fmt: skip
    assert "is a seed" in ask(root, "diff", "c0000")[0]


def test_failures(root: Path) -> None:
    lines = ask(root, "failures", "c0001")
    assert lines[0] == "2 of 3 practice rollouts of c0001 failed"
    assert lines[2].endswith("/0.json  scored, reward 0.0")
    assert lines[3] == "  question: where is my\\nparcel \\x1b[31m"
    assert lines[4:6] == ["  answer: refund", "  feedback: expected delivery, got refund"]
    assert lines[-1] == "  error: KeyError: 'a'"
    assert len(ask(root, "failures", "c0001", "-n", "0")) == 1
    assert ask(root, "failures", "c0000") == ["0 of 0 practice rollouts of c0000 failed"]


def test_grep(root: Path) -> None:
    assert ask(root, "grep", "# ret+ry", "--in", "source") == ["candidates/c0001/source/harness.py:2: # retry"]
    assert len(ask(root, "grep", "# retry")) == 2
    assert len(ask(root, "grep", "expected delivery", "--in", "rollouts")) == 1
    assert ask(root, "grep", "nowhere at all") == ["No line matches."]
    lines = ask(root, "grep", ".")
    assert len(lines) == reading.MAX_MATCHES + 1 or lines[-1].startswith("proposals.jsonl")
    many = root / "candidates" / "c0001" / "source" / "many.txt"
    many.write_text("line\n" * 1_000)
    assert ask(root, "grep", "^line$")[-1] == "… more than 200 lines match: narrow the expression"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["diff", "c0009"], "no candidate 'c0009' (there are 3: c0000 to c0002)"),
        (["failures", "../c0001"], "no candidate '../c0001'"),
        (["diff", "c0001", ".."], "no candidate '..'"),
        (["grep", "("], "'(' is no regular expression"),
    ],
)
def test_wrong_questions(root: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert reading.main([str(root), *arguments], io.StringIO()) == 2
    assert message in capsys.readouterr().err


def test_no_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reading.main([str(tmp_path), "top"], io.StringIO()) == 2
    assert "no history tree" in capsys.readouterr().err
    assert (reading.read_frontier(tmp_path), reading.read_proposals(tmp_path)) == ([], [])
    assert reading.candidate_ids(tmp_path) == []


def test_a_damaged_file_is_named(root: Path) -> None:
    (root / "frontier.json").write_text("{")
    with pytest.raises(reading.HistoryError, match=r"frontier\.json: not valid JSON"):
        reading.read_frontier(root)
    path = next((root / "candidates" / "c0001" / "rollouts").rglob("*.json"))
    path.write_text("[]")
    with pytest.raises(reading.HistoryError, match="no trajectory"):
        reading.read_rollouts(root, "c0001")


def python39() -> str | None:
    # What pyenv puts on the PATH answers for every version, whether it is chosen or not.
    versions = sorted(Path.home().glob(".pyenv/versions/3.9.*/bin/python3.9"))
    return str(versions[-1]) if versions else shutil.which("python3.9")


@pytest.mark.parametrize("python", [sys.executable, "3.9"])
def test_it_runs_in_a_sandbox(root: Path, tmp_path: Path, python: str) -> None:
    """The runtime alone, as a sandbox has it, without site-packages."""
    found = python39() if python == "3.9" else python
    require(found is not None, "Python 3.9")
    assert found is not None
    shutil.copytree(RUNTIME, tmp_path / "lib" / "metaharness" / "runtime")
    done = subprocess.run(
        [found, "-S", "-s", "-m", "metaharness.runtime.history", str(root), "top"],
        cwd=tmp_path / "lib", env={"PYTHONPATH": str(tmp_path / "lib")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["c0002", "c0001"]
    broken = subprocess.run(
        [found, "-m", "metaharness.runtime.history", str(root), "diff", "c0009"],
        cwd=tmp_path / "lib", env={"PYTHONPATH": str(tmp_path / "lib")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert broken.returncode == 2
    assert broken.stderr == "no candidate 'c0009' (there are 3: c0000 to c0002)\n"


def test_frontier_is_json(root: Path) -> None:
    assert json.loads((root / "frontier.json").read_text())[0]["candidate"] == "c0002"
