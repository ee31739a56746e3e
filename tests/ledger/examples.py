"""Values that tests of the ledger, the archive and the history write."""

from __future__ import annotations

from metaharness.budget import Usage
from metaharness.candidate import Candidate, Finding, Manifest, candidate_id
from metaharness.score import Score
from metaharness.source import SourceTree
from metaharness.task import Part
from metaharness.trajectory import RolloutStatus
from metaharness.unit import ProposalRecord, Purpose, RolloutRecord, RolloutUnit

HARNESS_TOML = b'schema_version = 1\nname = "few_shot"\nentry = "harness:Harness"\n'


def tree(text: str = "x = 1\n", **more: str) -> SourceTree:
    files = {"harness.toml": HARNESS_TOML, "harness.py": text.encode(), "prompts/ask.txt": b"Answer.\n"}
    return SourceTree({**files, **{name: content.encode() for name, content in more.items()}})


def candidate(number: int, *parents: int, **changes: object) -> Candidate:
    fields: dict[str, object] = {
        "id": candidate_id(number),
        "campaign": "support",
        "parents": tuple(candidate_id(parent) for parent in parents),
        "tree_digest": f"{number:064x}",
        "commit": f"{number:040x}",
        "proposer": "codemods" if parents else "seed",
        "name": "few_shot",
        "manifest": Manifest(hypothesis=f"Hypothesis {number}.", mechanism="graft", extra={"operator": "graft"}),
        "flags": (Finding(check="duplicate", message="much like c0000", path="harness.py", line=3, fatal=False),),
        "created_at": 1_700_000_000.25 + number,
    }
    return Candidate(**{**fields, **changes})  # type: ignore[arg-type]


def proposal(number: int, new: int | None, **changes: object) -> ProposalRecord:
    fields: dict[str, object] = {
        "number": number,
        "parents": ("c0000",),
        "proposer": "codemods",
        "mechanism": "graft",
        "candidate": candidate_id(new) if new is not None else None,
        "verdict": "accepted" if new is not None else "rejected",
        "reason": "" if new is not None else "leak: harness.py:3: holds a val input",
        "usage": Usage(model_calls=2, input_tokens=11, cost_usd=0.5),
        "seconds": 1.5,
        "finished_at": 1_700_000_100.5,
    }
    return ProposalRecord(**{**fields, **changes})  # type: ignore[arg-type]


def unit(number: int = 0, task: str = "0f3a", attempt: int = 0, part: Part = Part.PRACTICE) -> RolloutUnit:
    return RolloutUnit(
        candidate=candidate_id(number), environment="support_intents", part=part, task=task * 16, attempt=attempt
    )


def rollout(of: RolloutUnit, **changes: object) -> RolloutRecord:
    fields: dict[str, object] = {
        "unit": of,
        "purpose": Purpose.SEARCH,
        "status": RolloutStatus.SCORED,
        "score": Score(reward=0.25, components={"form": 1.0, "content": 0.0}, feedback="expected a, got b"),
        "usage": Usage(rollouts=1, model_calls=3, input_tokens=100, output_tokens=7, cached_tokens=30, cost_usd=1e-5),
        "seconds": 0.75,
        "trajectory": "trajectories/c0000/support_intents/0f3a/0.json",
        "answer_preview": "delivery",
        "finished_at": 1_700_000_050.125,
    }
    return RolloutRecord(**{**fields, **changes})  # type: ignore[arg-type]
