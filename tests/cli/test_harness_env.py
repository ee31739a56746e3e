from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.support import Cli


def test_bundled_harnesses_are_listed_and_keep_the_contract(cli: Cli) -> None:
    rows = json.loads(cli("harness", "ls", "--json").out)
    names = {row["name"] for row in rows}
    assert {
        "direct", "few_shot", "nearest_examples", "label_scoring", "chain_of_thought", "vote", "program_of_thought",
        "json_repair",
    } <= names  # fmt: skip
    for name in names:
        done = cli("harness", "check", name)
        assert done.code == 0, done.err
        assert "keeps the contract" in done.out


def test_new_makes_a_harness_that_keeps_the_contract(cli: Cli, tmp_path: Path) -> None:
    directory = tmp_path / "my agent"
    assert cli("harness", "new", directory).code == 0
    assert 'name = "my_agent"' in (directory / "harness.toml").read_text()
    assert cli("harness", "check", directory).code == 0
    again = cli("harness", "new", directory)
    assert again.code == 2
    assert "exists" in again.err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("class Harness", "class Other"), "Harness"),
        (("def solve(self, task", "def solve(self, whatever, more, task"), "solve"),
        (("def solve", "def resolve"), "solve"),
        (("import", "imp ort"), "harness.py"),
    ],
)
def test_a_broken_harness_is_named_with_its_place(
    cli: Cli, tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    directory = tmp_path / "mine"
    cli("harness", "new", directory)
    source = (directory / "harness.py").read_text()
    assert change[0] in source
    (directory / "harness.py").write_text(source.replace(change[0], change[1], 1))
    done = cli("harness", "check", directory)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err


def test_bundled_environments_are_listed_shown_and_checked(cli: Cli) -> None:
    rows = json.loads(cli("env", "ls", "--json").out)
    sizes = {row["name"]: (row["train"], row["val"], row["test"]) for row in rows}
    assert sizes["support_intents"] == (240, 160, 240)
    assert len(sizes) >= 3
    for name in sizes:
        assert cli("env", "check", name).code == 0
        shown = json.loads(cli("env", "show", name, "--json").out)
        assert len(shown["tasks"]) == 5


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("val.jsonl", "", "val"),
        ("val.jsonl", '{"id": "a", "input": "x", "answer": "X"}\n{"id": "a", "input": "y", "answer": "Y"}\n', "a"),
        ("val.jsonl", '{"id": "a", "input"\n', "val.jsonl"),
        ("env.toml", 'schema_version = 1\nname = "e"\n[scorer]\nkind = "exakt"\n', "exact"),
        (
            "env.toml",
            'schema_version = 1\nname = "e"\nchoices = ["A"]\n[scorer]\nkind = "exact"\n',
            "choices",
        ),
    ],
)
def test_a_broken_environment_is_named_with_its_place(
    cli: Cli, tmp_path: Path, file: str, text: str, message: str
) -> None:
    (tmp_path / "env.toml").write_text('schema_version = 1\nname = "e"\n[scorer]\nkind = "exact"\n')
    for split in ("train", "val", "test"):
        lines = [f'{{"id": "{split}{n}", "input": "{split} {n}", "answer": "{n}"}}' for n in range(8)]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    assert cli("env", "check", tmp_path).code == 0
    (tmp_path / file).write_text(text)
    done = cli("env", "check", tmp_path)
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1
    assert "Traceback" not in done.err


def test_doctor_reports_what_holds(cli: Cli, tmp_path: Path) -> None:
    done = cli("doctor", "--json", "--archive", tmp_path / "none")
    report = json.loads(done.out)
    assert done.code == 0
    assert report["ok"]
    engines = {engine["engine"]: engine for engine in report["sandboxes"]}
    assert engines["bubblewrap"]["available"]
    assert engines["bubblewrap"]["limits"]
    assert "there is none" in report["archive"]["reason"]
    text = cli("doctor", "--archive", tmp_path / "none")
    assert "sandbox bubblewrap: works" in text.out


def test_the_demo_spec_is_printed(cli: Cli) -> None:
    from metaharness.spec import parse_spec

    done = cli("demo", "--spec-only")
    assert parse_spec(done.out).name == "demo"
