"""What the README says is true: its commands exist, its spec and its harness are valid, its files are there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from metaharness.gate import check_harness
from metaharness.source import SourceTree
from metaharness.spec import parse_spec
from tests.cli.support import Cli

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands(program: str) -> list[list[str]]:
    found = []
    for text in (README, CONTRIBUTING):
        for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
            lines = [line for line in block.splitlines() if line.startswith(f"$ {program} ")]
            found += [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
    return found


@pytest.mark.parametrize("command", commands("metaharness"), ids=" ".join)
def test_commands_exist_with_their_options(cli: Cli, command: list[str]) -> None:
    words = command[1:3] if command[1] in ("harness", "env", "models") else command[1:2]
    done = cli(*words, "--help")
    assert done.code == 0, done.err
    for option in (word for word in command if word.startswith("--")):
        assert option in done.out


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = commands("make")
    assert {target for _, target in targets} >= {"demo", "test", "check", "bench"}
    for _, target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_spec_is_valid() -> None:
    (text,) = blocks("toml")
    assert parse_spec(text).budget.usd == 30


def test_the_harness_keeps_the_contract() -> None:
    (text,) = blocks("python")
    config = 'schema_version = 1\nname = "readme"\nentry = "harness:Harness"\n'
    tree = SourceTree({"harness.toml": config.encode(), "harness.py": text.encode()})
    assert [finding for finding in check_harness(tree) if finding.fatal] == []


def test_the_file_map_is_complete() -> None:
    for name in ("metaharness", "seed_harnesses", "envs", "archive", "tests", "CONTRIBUTING.md", "LICENSE"):
        assert name in README
        assert (ROOT / name).exists()
