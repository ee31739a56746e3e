"""Values to rows and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from metaharness.budget import Usage
from metaharness.candidate import Candidate, CandidateStatus, Finding, Manifest
from metaharness.score import Score
from metaharness.task import Part
from metaharness.trajectory import RolloutStatus
from metaharness.unit import ProposalRecord, Purpose, RolloutRecord, RolloutUnit

USAGE_COLUMNS = tuple(field.name for field in fields(Usage))

CANDIDATE_COLUMNS = (
    "seq, id, campaign, parents, tree_digest, commit_id, proposer, name, manifest, status, flags, created_at"
)
PROPOSAL_COLUMNS = "seq, number, parents, proposer, mechanism, candidate, verdict, reason, usage, seconds, finished_at"
ROLLOUT_COLUMNS = (
    "r.seq, h.id, t.environment, t.part, t.digest, r.attempt, r.purpose, r.status, r.reward, r.components, "
    "r.feedback, r.seconds, r.trajectory, r.error, r.answer_preview, r.inherited_from, r.finished_at, "
    + ", ".join(f"r.{name}" for name in USAGE_COLUMNS)
)
ROLLOUT_TABLES = "rollouts r JOIN harnesses h ON h.number = r.harness JOIN tasks t ON t.number = r.task"

_NO_COMPONENTS: Mapping[str, float] = {}
# Looking a member up costs a tenth of calling its class, which counts where a resume reads 200,000 rows.
_PARTS = {part.value: part for part in Part}
_PURPOSES = {purpose.value: purpose for purpose in Purpose}
_STATUSES = {status.value: status for status in RolloutStatus}


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRecord:
    """What a fit gave.

    Attributes:
        key: What it depends on: tree, environment, fit set, model and settings, runtime, seed.
        status: `scored` when it worked, else how it failed.
        state: What `save` returned; None when the fit failed.
        error: One line when it failed.
        seconds: Wall-clock seconds.
    """

    key: str
    status: RolloutStatus
    state: bytes | None = None
    error: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecord:
    """A decision of the campaign.

    Attributes:
        kind: For example `winner`.
        data: JSON object.
        at: Unix time in seconds.
    """

    kind: str
    data: Mapping[str, Any]
    at: float


def text(value: str) -> str:
    """Return text that SQLite can keep: lone surrogates, which a harness may send, become escapes."""
    return value.encode("utf-8", "backslashreplace").decode()


def to_json(value: Any) -> str:
    """Return compact JSON in ASCII, so that any text survives."""
    return json.dumps(value, separators=(",", ":"))


def candidate_row(seq: int, candidate: Candidate, proposal: int | None) -> tuple[Any, ...]:
    """Return the row of a candidate, in the order of the table."""
    return (
        seq,
        candidate.id,
        candidate.campaign,
        to_json(candidate.parents),
        candidate.tree_digest,
        candidate.commit,
        text(candidate.proposer),
        text(candidate.name),
        to_json(candidate.manifest.model_dump(mode="json")),
        candidate.status.value,
        to_json([finding.to_json() for finding in candidate.flags]),
        candidate.created_at,
        proposal,
    )


def read_candidate(row: Sequence[Any]) -> Candidate:
    """Read `CANDIDATE_COLUMNS`."""
    _, id_, campaign, parents, digest, commit, proposer, name, manifest, status, flags, created_at = row
    return Candidate(
        id=id_,
        campaign=campaign,
        parents=tuple(json.loads(parents)),
        tree_digest=digest,
        commit=commit,
        proposer=proposer,
        name=name,
        manifest=Manifest.model_validate_json(manifest),
        status=CandidateStatus(status),
        flags=tuple(Finding(**finding) for finding in json.loads(flags)),
        created_at=created_at,
    )


def proposal_row(seq: int, record: ProposalRecord) -> tuple[Any, ...]:
    """Return the row of a proposal, in the order of the table."""
    return (
        seq,
        record.number,
        to_json(record.parents),
        text(record.proposer),
        text(record.mechanism),
        record.candidate,
        record.verdict,
        text(record.reason),
        to_json(record.usage.to_json()),
        record.seconds,
        record.finished_at,
    )


def read_proposal(row: Sequence[Any]) -> ProposalRecord:
    """Read `PROPOSAL_COLUMNS`."""
    _, number, parents, proposer, mechanism, candidate, verdict, reason, usage, seconds, finished_at = row
    return ProposalRecord(
        number=number,
        parents=tuple(json.loads(parents)),
        proposer=proposer,
        mechanism=mechanism,
        candidate=candidate,
        verdict=verdict,
        reason=reason,
        usage=Usage.from_json(json.loads(usage)),
        seconds=seconds,
        finished_at=finished_at,
    )


def rollout_values(record: RolloutRecord) -> dict[str, Any]:
    """Return the columns of a rollout other than `seq`, `harness` and `task`."""
    score = record.score
    return {
        "attempt": record.unit.attempt,
        "purpose": record.purpose.value,
        "status": record.status.value,
        "reward": float(score.reward) if score is not None else None,
        "components": to_json(dict(score.components)) if score is not None and score.components else None,
        "feedback": text(score.feedback) if score is not None and score.feedback else None,
        "seconds": record.seconds,
        "trajectory": text(record.trajectory),
        "error": text(record.error),
        "answer_preview": text(record.answer_preview),
        "inherited_from": record.inherited_from,
        "finished_at": record.finished_at,
        **record.usage.to_json(),
    }


def read_rollout(row: Sequence[Any]) -> RolloutRecord:
    """Read `ROLLOUT_COLUMNS`."""
    reward, components = row[8], row[9]
    score = None
    if reward is not None:
        score = Score(
            reward=reward,
            components=json.loads(components) if components is not None else _NO_COMPONENTS,
            feedback=row[10] or "",
        )
    return RolloutRecord(
        unit=RolloutUnit(candidate=row[1], environment=row[2], part=_PARTS[row[3]], task=row[4], attempt=row[5]),
        purpose=_PURPOSES[row[6]],
        status=_STATUSES[row[7]],
        score=score,
        usage=Usage(
            rollouts=row[17],
            proposals=row[18],
            model_calls=row[19],
            input_tokens=row[20],
            output_tokens=row[21],
            cached_tokens=row[22],
            cost_usd=row[23],
        ),
        seconds=row[11],
        trajectory=row[12],
        error=row[13],
        answer_preview=row[14],
        inherited_from=row[15],
        finished_at=row[16],
    )
