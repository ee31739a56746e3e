"""`History`: the tree of files that a proposer reads.

It holds nothing of val but means, intervals and outcome counts, and nothing of test at all: a proposer cannot fit what
it cannot see. It can be rebuilt from ledger and archive, so it is written atomically, but not synced. Its readers are
in `metaharness.runtime.history`, which also runs in a proposer's sandbox.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from metaharness.candidate import Candidate
from metaharness.source import SourceTree
from metaharness.task import Part
from metaharness.unit import ProposalRecord, RolloutRecord

TASK_CHARS = 16
"""Characters of a task's digest in a path."""

MAX_SEGMENT_CHARS = 180

SCORECARD_KEYS = ("schema_version", "candidate", "status", "manifest")
FRONTIER_KEYS = frozenset({"candidate", "parts", "best_on"})
COUNTS = ("tasks", "missing")

README = """\
# History of this search

Read-only. Everything that was tried so far, and how it did on the tasks that you may see.

- `frontier.json`: the candidates worth building on, best first.
- `proposals.jsonl`: every proposal in the order in which it ended, one JSON object a line: number, parents, proposer,
  mechanism, verdict (accepted, duplicate, rejected, failed), reason, candidate, delta.
- `candidates/<id>/`
  - `candidate.json`: parents (the first is the base, a second the donor), proposer, name, flags.
  - `source/`: its files.
  - `diff.patch`: how it differs from its base; a seed has none.
  - `manifest.json`: what its proposer expected of it.
  - `scorecard.json`: mean reward with a 95% interval by part. `practice` tasks are those whose rollouts you see here.
    `val` tasks decide; of them you see the mean, the interval and how rollouts ended, and no more.
  - `rollouts/<environment>/<task>/<attempt>.json`: what happened on a practice task, as an ATIF trajectory: `steps` has
    every exchange with the model, `extra.metaharness` the status, answer, score, feedback, error and log. `<task>` is
    the beginning of the task's digest.

Rewards are in [0, 1], higher is better. `harness_error` counts as 0; `infra_error` does not count.

    python -m metaharness.runtime.history PATH frontier
    python -m metaharness.runtime.history PATH top --part val
    python -m metaharness.runtime.history PATH diff c0042 [c0007]
    python -m metaharness.runtime.history PATH failures c0042
    python -m metaharness.runtime.history PATH grep 'regular expression' [--in source|rollouts|all]
"""


class History:
    """Writes the tree below `root`. One process writes; everything is idempotent: files that are there are kept."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._candidates = root / "candidates"
        self._proposals = root / "proposals.jsonl"
        _make_directory(self._candidates)
        for left in self._candidates.glob("*/.source.tmp"):
            shutil.rmtree(left)
        _write(root / "README.md", README)
        self._numbers = self._mend_proposals()

    def _directory(self, candidate: str) -> Path:
        return self._candidates / _segment(candidate)

    def has_candidate(self, candidate: str) -> bool:
        """Return whether a candidate has been added: then its files need not be read again."""
        return (self._directory(candidate) / "source").exists()

    def add_candidate(self, candidate: Candidate, tree: SourceTree, base: tuple[str, SourceTree] | None) -> None:
        """Add a candidate's source, manifest and diff.

        Args:
            candidate: The candidate.
            tree: Its files.
            base: Id and files of the candidate that it was made from; None for a seed.
        """
        if self.has_candidate(candidate.id):
            return
        directory = self._directory(candidate.id)
        _make_directory(directory)
        about = {
            "id": candidate.id,
            "parents": list(candidate.parents),
            "base": base[0] if base is not None else None,
            "proposer": candidate.proposer,
            "name": candidate.name,
            "flags": [finding.to_json() for finding in candidate.flags],
        }
        _write_json(directory / "candidate.json", about)
        _write_json(directory / "manifest.json", candidate.manifest.model_dump(mode="json"))
        if base is not None:
            _write(directory / "diff.patch", base[1].diff(tree))
        # The source comes last: where it is, the rest is.
        scratch = directory / ".source.tmp"
        shutil.rmtree(scratch, ignore_errors=True)
        tree.write_to(scratch)
        for folder in [scratch, *(path for path in scratch.rglob("*") if path.is_dir())]:
            folder.chmod(0o755)
        scratch.rename(directory / "source")

    def add_rollout(self, record: RolloutRecord, trajectory_text: str) -> None:
        """Add the trajectory of a rollout on a practice task.

        Args:
            record: The rollout.
            trajectory_text: Its trajectory (ATIF, JSON), as the proposer may see it.

        Raises:
            ValueError: The task is none of practice.
        """
        unit = record.unit
        if unit.part is not Part.PRACTICE:
            raise ValueError(f"a rollout on {unit.part.value} must not be seen by a proposer")
        folder = self._directory(unit.candidate) / "rollouts" / _segment(unit.environment)
        path = folder / _segment(unit.task[:TASK_CHARS]) / f"{int(unit.attempt)}.json"
        if path.is_file() and path.stat().st_size:
            return
        _make_directory(path.parent)
        _write(path, trajectory_text)

    def write_scorecard(self, candidate: str, data: Mapping[str, Any]) -> None:
        """Write the scorecard of a candidate, in place of an earlier one.

        Args:
            candidate: Candidate id.
            data: As `Scorecard.to_json` gives it. Of the part `val` only mean, interval, numbers of tasks and outcome
                counts are written, whatever else is there.

        Raises:
            ValueError: It has test scores, or a part that no proposer may see.
        """
        if data.get("test") is not None:
            raise ValueError(f"the scorecard of {candidate} has test scores: no proposer may see them")
        card = {key: data[key] for key in SCORECARD_KEYS if key in data}
        directory = self._directory(candidate)
        _make_directory(directory)
        _write_json(directory / "scorecard.json", {**card, "parts": _public_parts(data.get("parts", {}))})

    def add_proposal(self, record: ProposalRecord, delta: Mapping[str, Any]) -> None:
        """Append a proposal.

        Args:
            record: The proposal; one whose number is there is not added again.
            delta: What came of it, for example the change of the mean on practice; JSON.
        """
        if record.number in self._numbers:
            return
        line = {
            "number": record.number,
            "parents": list(record.parents),
            "proposer": record.proposer,
            "mechanism": record.mechanism,
            "verdict": record.verdict,
            "reason": record.reason,
            "candidate": record.candidate,
            "delta": dict(delta),
        }
        with self._proposals.open("ab") as handle:
            handle.write(json.dumps(line).encode() + b"\n")
        self._numbers.add(record.number)

    def write_frontier(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Write the frontier, in place of an earlier one.

        Args:
            entries: Best first: `candidate`, `parts` as in a scorecard, and, if wanted, `best_on`: digests of the
                practice tasks on which no candidate does better.

        Raises:
            ValueError: An entry has another field, or a part that no proposer may see.
        """
        public = []
        for entry in entries:
            if unknown := sorted(entry.keys() - FRONTIER_KEYS):
                raise ValueError(f"a frontier entry has no field {unknown[0]!r}")
            public.append({**entry, "parts": _public_parts(entry.get("parts", {}))})
        _write_json(self.root / "frontier.json", public)

    def _mend_proposals(self) -> set[int]:
        """Cut off a line that a kill has left unfinished; return the numbers of the proposals that are there."""
        if not self._proposals.exists():
            _write(self._proposals, "")
        data = self._proposals.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) != len(data):
            os.truncate(self._proposals, len(whole))
        return {json.loads(line)["number"] for line in whole.splitlines()}


def _public_parts(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    public: dict[str, dict[str, Any]] = {}
    for name, values in parts.items():
        if name == Part.PRACTICE:
            public[name] = dict(values)
        elif name == Part.VAL:
            low, high = values.get("interval") or (None, None)
            public[name] = {
                "mean": _number(values.get("mean")),
                "interval": [_number(low), _number(high)],
                **{count: int(values[count]) for count in COUNTS if count in values},
                "outcomes": {str(status): int(count) for status, count in values.get("outcomes", {}).items()},
            }
        else:
            raise ValueError(f"scores on {name} must not be seen by a proposer")
    return public


def _number(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def _segment(name: str) -> str:
    """Return a name as one component of a path, whatever is in it."""
    quoted = quote(name, safe="")
    if not quoted or quoted.startswith("."):
        raise ValueError(f"{name!r} cannot name a file of the history")
    if len(quoted) > MAX_SEGMENT_CHARS:
        quoted = f"{quoted[:MAX_SEGMENT_CHARS]}-{hashlib.sha256(quoted.encode()).hexdigest()[:16]}"
    return quoted


def _make_directory(path: Path) -> None:
    """Make a directory and those above it readable by the user of a sandbox, whatever the umask."""
    made: Iterable[Path] = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in made:
        folder.chmod(0o755)


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    # A lone surrogate, which a harness may send, becomes the escape that JSON has for it.
    temporary.write_bytes(text.encode("utf-8", "backslashreplace"))
    temporary.chmod(0o644)
    temporary.replace(path)


def _write_json(path: Path, value: Any) -> None:
    _write(path, json.dumps(value, ensure_ascii=False, indent=1) + "\n")
