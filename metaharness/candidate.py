"""Candidates and what leads to them: manifest, proposal, verdict."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from metaharness.budget import Usage
from metaharness.source import SourceTree

CANDIDATE_ID = re.compile(r"c\d{4,}")


def candidate_id(number: int) -> str:
    """Return the id of the candidate with this number (from 0): `c0042`."""
    return f"c{number:04d}"


def candidate_number(identifier: str) -> int:
    """Return the number of a candidate id.

    Raises:
        ValueError: It is no candidate id.
    """
    if not CANDIDATE_ID.fullmatch(identifier):
        raise ValueError(f"{identifier!r} is no candidate id (c0000, c0001, …)")
    return int(identifier[1:])


class Manifest(BaseModel):
    """What a proposer says about its change; checked against what happened.

    Attributes:
        hypothesis: One sentence: why the change should help.
        mechanism: What was changed, in a few words; for `codemods`, the operator's name.
        expected_flips: Practice task digests expected to turn from wrong to right.
        at_risk: Practice task digests that may turn from right to wrong.
        extra: Free-form details of the proposer.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = 1
    hypothesis: str = Field(min_length=1, max_length=2000)
    mechanism: str = Field(default="", max_length=2000)
    expected_flips: tuple[str, ...] = ()
    at_risk: tuple[str, ...] = ()
    extra: dict[str, Any] = Field(default_factory=dict)


class CandidateStatus(StrEnum):
    """`active`: may be evaluated; `broken`: every rollout of its first look failed."""

    ACTIVE = "active"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What a proposer returns: a changed source tree and its manifest.

    Attributes:
        parents: Candidate ids; the first is the base of the diff, a second the donor of a crossover.
        tree: Files after the change.
        manifest: The proposer's statement.
        proposer: Name of the proposer.
        usage: What making it has cost.
    """

    parents: tuple[str, ...]
    tree: SourceTree
    manifest: Manifest
    proposer: str
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding of the gate. `fatal` findings reject the proposal, others only flag it."""

    check: str
    message: str
    path: str = ""
    line: int | None = None
    fatal: bool = True

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}: " if self.path and self.line else f"{self.path}: " if self.path else ""
        return f"{self.check}: {where}{self.message}"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "check": self.check,
            "message": self.message,
            "path": self.path,
            "line": self.line,
            "fatal": self.fatal,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the gate decided.

    Attributes:
        findings: All findings, fatal or not.
        duplicate_of: Candidate whose tree is exactly the same, if any.
        similar_to: Candidate that is the same up to comments, white space and local names, if any.
    """

    findings: tuple[Finding, ...] = ()
    duplicate_of: str | None = None
    similar_to: str | None = None

    @property
    def passed(self) -> bool:
        """True when no finding is fatal."""
        return not any(finding.fatal for finding in self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One version of a harness in the archive.

    Attributes:
        id: `c0042`, unique within its campaign.
        campaign: Name of the campaign.
        parents: Lineage parents; empty for a seed.
        tree_digest: `SourceTree.digest`.
        commit: Git commit, 40 hex digits.
        proposer: Name of the proposer; `seed` for a seed.
        name: Name in harness.toml, for display.
        manifest: Statement of the proposer.
        status: See `CandidateStatus`.
        flags: Gate findings that did not reject it.
        created_at: Unix time in seconds.
    """

    id: str
    campaign: str
    parents: tuple[str, ...]
    tree_digest: str
    commit: str
    proposer: str
    name: str
    manifest: Manifest
    status: CandidateStatus = CandidateStatus.ACTIVE
    flags: tuple[Finding, ...] = ()
    created_at: float = 0.0

    @property
    def full_id(self) -> str:
        """`<campaign>/<id>`."""
        return f"{self.campaign}/{self.id}"

    @property
    def is_seed(self) -> bool:
        """True for a candidate that was there before the search."""
        return not self.parents and self.proposer == "seed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorecard:
    """Search-time scores of one candidate, as written to its git note.

    Attributes:
        candidate: Full id.
        status: Status of the candidate.
        parts: By part (practice, val): mean reward, interval, tasks, missing, usage a task. Never test before the
            campaign has ended.
        test: The final reading, once the campaign has ended; None before and for everybody else.
        manifest: Verdict on each prediction of the manifest.
    """

    candidate: str
    status: str
    parts: Mapping[str, Mapping[str, Any]]
    test: Mapping[str, Any] | None = None
    manifest: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of the note."""
        return {
            "schema_version": 1,
            "candidate": self.candidate,
            "status": self.status,
            "parts": {name: dict(part) for name, part in self.parts.items()},
            "test": dict(self.test) if self.test is not None else None,
            "manifest": dict(self.manifest),
        }
