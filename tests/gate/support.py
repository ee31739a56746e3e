"""Small harness trees."""

from __future__ import annotations

from collections.abc import Mapping

from metaharness.candidate import Manifest, Proposal
from metaharness.source import SourceTree

TOML = 'schema_version = 1\nname = "small"\nentry = "harness:Harness"\n'
HARNESS = '''\
"""Ask once."""

PROMPT = "Name the colour of the thing."


class Harness:
    """One question."""

    def __init__(self, model):
        self.model = model

    def solve(self, task, shell):
        text = PROMPT + task.input  # what is asked
        return self.model.complete(text).text
'''


def tree(harness: str = HARNESS, toml: str = TOML, files: Mapping[str, str | bytes] | None = None) -> SourceTree:
    """Return a harness tree; `files` adds others, or takes the place of these two."""
    given: dict[str, str | bytes] = {"harness.toml": toml, "harness.py": harness, **(files or {})}
    return SourceTree({path: data.encode() if isinstance(data, str) else data for path, data in given.items()})


def proposal(changed: SourceTree) -> Proposal:
    """Return a proposal of a tree."""
    return Proposal(parents=("c0000",), tree=changed, manifest=Manifest(hypothesis="It helps."), proposer="test")
