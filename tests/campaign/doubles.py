"""A whole campaign in seconds: an environment, a harness, a scripted model and a proposer of which all is known.

A harness with SKILL k asks the model on the tasks whose hash is below k tenths and answers nonsense on the others; the
model always knows. So the true score of a harness is about k tenths, and each proposal adds one to k.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from metaharness.candidate import Manifest, Proposal
from metaharness.errors import ProposalFailed
from metaharness.exchange import CompleteRequest, Request
from metaharness.protocols import ProposalContext
from metaharness.source import SourceTree

HARNESS = '''\
"""Answer as far as SKILL goes."""

import hashlib

from metaharness.runtime import Model, Task

SKILL = {skill}


class Harness:
    def __init__(self, model: Model) -> None:
        self.model = model

    def solve(self, task: Task, shell: object = None) -> str:
        if hashlib.sha256(task.input.encode()).digest()[0] % 10 >= SKILL:
            return "no idea"
        return self.model.complete(task.input, max_tokens=8).text
'''
CONFIG = """\
schema_version = 1
name = "ladder"
description = "Answers as far as its skill goes."
entry = "harness:Harness"
"""

SPEC = """\
schema_version = 1
name = "climb"
seeds = ["./seed"]
concurrency = {concurrency}
[model]
ref = "scripted/tests.campaign.doubles:know"
[[environments]]
ref = "./env"
[[proposers]]
kind = "tests.campaign.doubles:Ladder"
[strategy]
kind = "{strategy}"
options = {{ practice = 4, rungs = [8, 16] }}
[budget]
rollouts = {rollouts}
[sandbox]
engine = "{engine}"
timeout_s = 30
[final]
finalists = 3
"""


def know(request: Request, seed: int) -> str:
    """The model: it always knows. Each call is noted in a file, when the environment names one."""
    assert isinstance(request, CompleteRequest)
    if path := os.environ.get("CAMPAIGN_CALLS"):
        with Path(path).open("a") as log:
            log.write(f"{request.messages[-1]['content']}\n")
    if pause := os.environ.get("CAMPAIGN_PAUSE_S"):
        time.sleep(float(pause))
    return str(request.messages[-1]["content"]).upper()


class Ladder:
    """Adds one to SKILL; every fourth proposal does not parse, every fifth is lost."""

    def __init__(self, *, donors: Mapping[str, SourceTree]) -> None:
        self.donors = donors

    @property
    def name(self) -> str:
        return "ladder"

    async def propose(self, context: ProposalContext) -> Sequence[Proposal]:
        if context.number % 5 == 4:
            raise ProposalFailed("lost the thread")
        source = context.base.text("harness.py")
        skill = int(re.search(r"SKILL = (\d+)", source)[1])  # type: ignore[index]
        changed = source.replace(f"SKILL = {skill}", f"SKILL = {skill + 1}" if context.number % 4 != 3 else "SKILL = (")
        return [
            Proposal(
                parents=tuple(parent.id for parent in context.parents),
                tree=context.base.replace({"harness.py": changed.encode()}),
                manifest=Manifest(hypothesis=f"Skill {skill + 1} answers more than {skill}.", mechanism="one more"),
                proposer=self.name,
            )
        ]


def write_world(
    directory: Path,
    *,
    skill: int = 3,
    concurrency: int = 1,
    strategy: str = "greedy",
    rollouts: int = 260,
    engine: str = "bubblewrap",
    tasks: int = 40,
) -> Path:
    """Write environment, seed and spec below `directory`; return the spec's path."""
    seed = directory / "seed"
    SourceTree({"harness.toml": CONFIG.encode(), "harness.py": HARNESS.format(skill=skill).encode()}).write_to(seed)
    env = directory / "env"
    env.mkdir()
    (env / "env.toml").write_text(
        'schema_version = 1\nname = "shout"\ndescription = "Say it in capitals."\n[scorer]\nkind = "exact"\n'
    )
    for split in ("train", "val", "test"):
        lines = [
            json.dumps({"id": f"{split}-{n}", "input": f"{split} word {n}", "answer": f"{split} word {n}".upper()})
            for n in range(tasks)
        ]
        (env / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    spec = directory / "campaign.toml"
    spec.write_text(SPEC.format(concurrency=concurrency, strategy=strategy, rollouts=rollouts, engine=engine))
    return spec
