"""Seeds as trees, material for operators, and a history on disk as a campaign writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metaharness.candidate import Candidate, Manifest
from metaharness.history import History
from metaharness.proposers.codemods.evidence import Evidence
from metaharness.proposers.codemods.material import Material, Source
from metaharness.protocols import ProposalContext
from metaharness.score import Score
from metaharness.source import SourceTree
from metaharness.task import Part
from metaharness.trajectory import RolloutStatus
from metaharness.unit import ProposalRecord, RolloutRecord, RolloutUnit
from tests.seed_harnesses.double import NAMES, SEEDS

TREES = {name: SourceTree.from_directory(SEEDS / name) for name in NAMES}
SOURCES = {name: Source(name=name, tree=tree) for name, tree in TREES.items()}
EDITABLE = ("**/*.py", "prompts/**")


def material(
    base: str | SourceTree,
    *donors: str,
    partner: Source | None = None,
    editable: tuple[str, ...] = EDITABLE,
    evidence: Evidence | None = None,
) -> Material:
    return Material(
        base=TREES[base] if isinstance(base, str) else base,
        editable=editable,
        donors=tuple(SOURCES[name] for name in donors),
        partner=partner,
        evidence=evidence or Evidence(),
    )


def harness(code: str, **files: str) -> SourceTree:
    """Return a tree with this harness.py."""
    toml = 'schema_version = 1\nname = "mine"\nentry = "harness:Harness"\n'
    texts = {"harness.toml": toml, "harness.py": code, **files}
    return SourceTree({path: text.encode() for path, text in texts.items()})


class Campaign:
    """Writes a history, and makes contexts from it."""

    def __init__(self, root: Path) -> None:
        self.history = History(root / "history")
        self.trees: dict[str, SourceTree] = {}
        self.candidates: dict[str, Candidate] = {}
        self._work = root / "work"
        self._work.mkdir()
        self._proposals = 0

    def add(
        self,
        tree: SourceTree,
        *parents: str,
        mechanism: str = "",
        val: float | None = None,
        target: str | list[str] = "",
    ) -> str:
        identifier = f"c{len(self.trees):04d}"
        candidate = Candidate(
            id=identifier,
            campaign="test",
            parents=parents,
            tree_digest=tree.digest,
            commit="0" * 40,
            proposer="codemods" if parents else "seed",
            name=tree.config.name,
            manifest=Manifest(hypothesis="It helps.", mechanism=mechanism, extra={"target": target}),
        )
        self.history.add_candidate(candidate, tree, (parents[0], self.trees[parents[0]]) if parents else None)
        self.trees[identifier], self.candidates[identifier] = tree, candidate
        if parents:
            self.record(parents, mechanism, "accepted", identifier)
        if val is not None:
            self.score(identifier, val)
        return identifier

    def record(self, parents: tuple[str, ...], mechanism: str, verdict: str, candidate: str | None = None) -> None:
        row = ProposalRecord(
            number=self._proposals,
            parents=parents,
            proposer="codemods",
            mechanism=mechanism,
            verdict=verdict,
            candidate=candidate,
        )
        self.history.add_proposal(row, {})
        self._proposals += 1

    def score(self, candidate: str, val: float) -> None:
        parts: Mapping[str, Any] = {"val": {"mean": val, "interval": [val, val], "tasks": 9, "missing": 0}}
        self.history.write_scorecard(candidate, {"candidate": candidate, "status": "active", "parts": parts})

    def rollout(self, candidate: str, task: str, reward: float, feedback: str = "", crashed: bool = False) -> None:
        status = RolloutStatus.HARNESS_ERROR if crashed else RolloutStatus.SCORED
        unit = RolloutUnit(candidate=candidate, environment="env", part=Part.PRACTICE, task=task)
        score = None if crashed else Score(reward=reward, feedback=feedback)
        ours = {
            "unit": {"environment": "env", "task": task},
            "status": status.value,
            "answer": "x",
            "score": score.to_json() if score else None,
        }
        trajectory = {"steps": [], "extra": {"metaharness": ours}}
        self.history.add_rollout(RolloutRecord(unit=unit, status=status, score=score), json.dumps(trajectory))

    def frontier(self, *candidates: str) -> None:
        self.history.write_frontier([{"candidate": name, "parts": {}} for name in candidates])

    def context(
        self, *parents: str, seed: int = 0, editable: tuple[str, ...] = EDITABLE, number: int = 0
    ) -> ProposalContext:
        return ProposalContext(
            number=number,
            parents=tuple(self.candidates[name] for name in parents),
            base=self.trees[parents[0]],
            editable=editable,
            history=self.history.root,
            work=self._work,
            random_seed=seed,
        )
