from __future__ import annotations

import time
from pathlib import Path

import pytest

from metaharness.bundled import bundled_dir
from metaharness.environments import bundled_environments, load_environment
from metaharness.gate import Gate, normalised_digest
from metaharness.source import SourceTree
from metaharness.task import Split
from tests.gate.support import HARNESS, TOML, proposal, tree

EDITABLE = ("**/*.py", "prompts/**")


@pytest.fixture(scope="module")
def gate() -> Gate:
    found = Gate(environments=[load_environment("support_intents", base=Path())])
    found.add_known("c0000", tree())
    return found


@pytest.fixture(scope="module")
def sealed() -> str:
    """A test input that is long enough to be recognised."""
    tasks = load_environment("support_intents", base=Path()).tasks(Split.TEST)
    return max((task.input for task in tasks), key=len)


CASES = {
    "good": (tree(HARNESS.replace("Name", "Say")), None, None, []),
    "good_prompt": (tree(files={"prompts/a.md": "Say it."}), None, None, []),
    "unchanged": (tree(), "c0000", None, []),
    "renamed_local": (tree(HARNESS.replace("text =", "question =").replace("(text)", "(question)")), None, "c0000", []),
    "scope": (tree(files={"notes.md": "x"}), None, None, ["scope"]),
    "harness_toml": (tree(toml=TOML.replace("small", "large")), None, None, ["scope"]),
    "no_harness_toml": (SourceTree({"harness.py": HARNESS.encode()}), None, None, ["scope"]),
    "syntax": (tree("def f(:\n"), None, None, ["parse"]),
    "no_entry": (tree("x = 1\n"), None, None, ["contract"]),
    "signature": (tree(HARNESS.replace(", shell", "")), None, None, ["contract"]),
}


@pytest.mark.parametrize("name", CASES)
def test_verdicts(gate: Gate, name: str) -> None:
    proposed, duplicate_of, similar_to, checks = CASES[name]
    verdict = gate.inspect(proposal(proposed), tree(), EDITABLE)
    assert verdict.duplicate_of == duplicate_of
    assert verdict.similar_to == similar_to
    assert [finding.check for finding in verdict.findings] == checks
    assert verdict.passed == (not checks)


def test_leaks_are_fatal_in_a_proposal_and_in_a_seed(gate: Gate, sealed: str) -> None:
    leaking = tree(HARNESS.replace("Name the colour of the thing.", sealed.replace('"', "'")))
    for verdict in (gate.inspect(proposal(leaking), tree(), EDITABLE), gate.inspect_seed(leaking)):
        assert not verdict.passed
        assert [(finding.check, finding.path, finding.line) for finding in verdict.findings] == [
            ("leak", "harness.py", 3)
        ]


def test_cheap_checks_spare_dear_ones(gate: Gate, sealed: str) -> None:
    verdict = gate.inspect(proposal(tree("def f(:\n", files={"notes.md": sealed})), tree(), EDITABLE)
    assert [finding.check for finding in verdict.findings] == ["scope"]


def test_binary_files_are_flagged_and_pass(gate: Gate) -> None:
    verdict = gate.inspect(proposal(tree(files={"prompts/a.bin": b"\0"})), tree(), EDITABLE)
    assert verdict.passed
    assert [finding.check for finding in verdict.findings] == ["text"]


def test_seeds(gate: Gate) -> None:
    assert gate.inspect_seed(tree()).findings == ()
    assert gate.inspect_seed(tree()).duplicate_of is None
    broken = gate.inspect_seed(SourceTree({"harness.py": b""}))
    assert [finding.check for finding in broken.findings] == ["contract"]


def test_known_candidates_may_be_given() -> None:
    comment = tree(HARNESS.replace("# what", "# that which"))
    gate = Gate(environments=[], known={tree().digest: "c0003"}, known_normalised={normalised_digest(tree()): "c0003"})
    assert gate.inspect(proposal(tree()), comment, EDITABLE).duplicate_of == "c0003"
    assert gate.inspect(proposal(comment), tree(), EDITABLE).similar_to == "c0003"


def test_bundled_harnesses_hold_no_text_of_bundled_environments() -> None:
    gate = Gate(environments=[load_environment(name, base=Path()) for name in bundled_environments()])
    for path in bundled_dir("seed_harnesses").glob("*/harness.toml"):
        assert gate.inspect_seed(SourceTree.from_directory(path.parent)).findings == ()


@pytest.mark.parametrize("deep", ["x = " + "not " * 140 + "y", "x = f" + "(1)" * 140, "x = " + "[" * 140 + "]" * 140])
def test_code_that_is_nested_as_deeply_as_allowed_is_judged(gate: Gate, deep: str) -> None:
    nested = tree(f"{HARNESS}\n\ndef unused():\n    {deep}\n")
    assert gate.inspect(proposal(nested), tree(), EDITABLE).passed
    gate.add_known("c0009", nested)


def test_a_proposal_is_judged_quickly(gate: Gate) -> None:
    body = "".join(f"\n\ndef step_{n}(value):\n    return value + {n}  # a comment of some words\n" for n in range(60))
    started = time.process_time()
    assert gate.inspect(proposal(tree(HARNESS + body)), tree(), EDITABLE).passed
    assert time.process_time() - started < 2
