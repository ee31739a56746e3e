"""Read the history of a search: what a proposer may know of earlier candidates.

Used on the host and, as `python -m metaharness.runtime.history ROOT COMMAND`, in a proposer's sandbox. Standard library
only, Python 3.9 syntax. The tree is described by its own README.md.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, TextIO

LINE_CHARS = 300
DEFAULT_COUNT = 10
MAX_MATCHES = 200


class HistoryError(Exception):
    """Something that was asked for is not in the history; the message says what is."""


@dataclass(frozen=True)
class Rollout:
    """A rollout on a practice task.

    Attributes:
        environment: Environment of the task.
        task: Digest of the task.
        attempt: From 0.
        status: `scored`, `harness_error` or `infra_error`.
        reward: In [0, 1]; 0 for `harness_error`, None for `infra_error`.
        question: What the model was asked first, or empty.
        answer: What the harness answered.
        feedback: What the scorer says about it.
        error: Why it is not `scored`.
        path: File of the trajectory.
        trajectory: The trajectory (ATIF).
    """

    environment: str
    task: str
    attempt: int
    status: str
    reward: Optional[float]
    question: str
    answer: str
    feedback: str
    error: str
    path: Path
    trajectory: Dict[str, Any] = field(repr=False)

    @property
    def failed(self) -> bool:
        """True when it counts and got less than the full reward."""
        return self.reward is not None and self.reward < 1.0


def candidate_ids(root: Path) -> List[str]:
    """Return the ids of all candidates whose source is there, in the order of their numbers."""
    folder = Path(root) / "candidates"
    found = [path.name for path in folder.iterdir() if (path / "source").is_dir()] if folder.is_dir() else []
    return sorted(found, key=lambda name: (len(name), name))


def read_frontier(root: Path) -> List[Dict[str, Any]]:
    """Return the candidates worth building on, best first: `candidate`, `parts`, perhaps `best_on`."""
    entries = _read_json(Path(root) / "frontier.json")
    return list(entries) if entries is not None else []


def read_proposals(root: Path) -> List[Dict[str, Any]]:
    """Return every proposal in the order in which it ended."""
    path = Path(root) / "proposals.jsonl"
    if not path.is_file():
        return []
    # The last line may be in the making.
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return [json.loads(line) for line in whole.splitlines()]


def read_scorecard(root: Path, candidate: str) -> Optional[Dict[str, Any]]:
    """Return the scorecard of a candidate, or None before its first rollout has ended."""
    card = _read_json(_directory(root, candidate) / "scorecard.json")
    return dict(card) if card is not None else None


def read_manifest(root: Path, candidate: str) -> Dict[str, Any]:
    """Return what the proposer of a candidate expected of it."""
    return dict(_read_json(_directory(root, candidate) / "manifest.json") or {})


def read_source(root: Path, candidate: str) -> Dict[str, bytes]:
    """Return the files of a candidate: POSIX path to content."""
    source = _directory(root, candidate) / "source"
    return {
        path.relative_to(source).as_posix(): path.read_bytes()
        for path in sorted(source.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def read_diff(root: Path, candidate: str) -> str:
    """Return how a candidate differs from its base; empty for a seed."""
    path = _directory(root, candidate) / "diff.patch"
    return path.read_text("utf-8", "replace") if path.is_file() else ""


def read_rollouts(root: Path, candidate: str) -> List[Rollout]:
    """Return the practice rollouts of a candidate, sorted by environment, task and attempt."""
    folder = _directory(root, candidate) / "rollouts"
    return [_read_rollout(path) for path in sorted(folder.glob("*/*/*.json")) if not path.name.startswith(".")]


def _read_rollout(path: Path) -> Rollout:
    trajectory = _read_json(path)
    if not isinstance(trajectory, dict):
        raise HistoryError(f"{path}: no trajectory")
    ours = (trajectory.get("extra") or {}).get("metaharness") or {}
    unit, score, status = ours.get("unit") or {}, ours.get("score") or {}, str(ours.get("status", ""))
    reward = score.get("reward") if status == "scored" else 0.0 if status == "harness_error" else None
    asked = [step.get("message") for step in trajectory.get("steps", []) if step.get("source") == "user"]
    return Rollout(
        environment=str(unit.get("environment") or path.parts[-3]),
        task=str(unit.get("task") or path.parts[-2]),
        attempt=int(path.stem),
        status=status,
        reward=reward,
        question=_text(asked[0]) if asked else "",
        answer=str(ours.get("answer") or ""),
        feedback=str(score.get("feedback") or ""),
        error=str(ours.get("error") or ""),
        path=path,
        trajectory=trajectory,
    )


def _text(message: Any) -> str:
    """Return a message of ATIF (text or parts) as text."""
    if isinstance(message, list):
        return "\n".join(str(part.get("text", "")) for part in message if isinstance(part, dict))
    return str(message or "")


def _directory(root: Path, candidate: str) -> Path:
    path = Path(root) / "candidates" / candidate
    if "/" in candidate or candidate.startswith(".") or not path.is_dir():
        ids = candidate_ids(root)
        known = f"{len(ids)}: {ids[0]} to {ids[-1]}" if ids else "none"
        raise HistoryError(f"no candidate {candidate!r} (there are {known})")
    return path


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise HistoryError(f"{path}: not valid JSON: {error}") from error


# ------------------------------------------------------------------------------------------ command line


def _shown(text: str, limit: int = LINE_CHARS) -> str:
    """Return text as one line, shortened, with control characters escaped."""
    line = "".join(
        c if not unicodedata.category(c).startswith("C") else c.encode("unicode_escape").decode() for c in text
    )
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _part(card: Dict[str, Any], part: str) -> str:
    values = (card.get("parts") or {}).get(part) or {}
    if values.get("mean") is None:
        return f"{part} -"
    low, high = values.get("interval") or (None, None)
    interval = f" [{low:.3f}, {high:.3f}]" if low is not None and high is not None else ""
    return f"{part} {values['mean']:.3f}{interval} over {values.get('tasks', '?')} tasks"


def _candidate_line(root: Path, candidate: str, card: Dict[str, Any]) -> str:
    manifest = read_manifest(root, candidate)
    about = _shown(manifest.get("mechanism") or manifest.get("hypothesis") or "", 80)
    return f"{candidate}  {_part(card, 'val')}  {_part(card, 'practice')}  {about}"


def show_frontier(root: Path) -> Iterator[str]:
    """Yield one line for each candidate of the frontier."""
    entries = read_frontier(root)
    for entry in entries:
        yield _candidate_line(root, entry["candidate"], entry)
    if not entries:
        yield "The frontier is empty: nothing has been compared yet. Try `top`."


def show_top(root: Path, part: str, count: int) -> Iterator[str]:
    """Yield the candidates with the highest means on a part."""
    cards = {candidate: read_scorecard(root, candidate) or {} for candidate in candidate_ids(root)}
    means = {candidate: ((card.get("parts") or {}).get(part) or {}).get("mean") for candidate, card in cards.items()}
    ranked = [(mean, candidate) for candidate, mean in means.items() if mean is not None]
    ranked.sort(key=lambda item: -item[0])
    for _, candidate in ranked[:count]:
        yield _candidate_line(root, candidate, cards[candidate])
    if not ranked:
        yield f"No candidate has a score on {part} yet."


def show_diff(root: Path, candidate: str, other: Optional[str]) -> Iterator[str]:
    """Yield the lines of a candidate's diff from its base, or from another candidate to it."""
    if other is None:
        lines = read_diff(root, candidate).splitlines()
        yield from lines or [f"{candidate} is a seed: name a second candidate to compare it with."]
        return
    before, after = read_source(root, other), read_source(root, candidate)
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path, b""), after.get(path, b"")
        if old != new:
            first, second = (data.decode("utf-8", "replace").splitlines() for data in (old, new))
            yield from difflib.unified_diff(first, second, f"{other}/{path}", f"{candidate}/{path}", lineterm="")


def show_failures(root: Path, candidate: str, count: int) -> Iterator[str]:
    """Yield what went wrong in a candidate's practice rollouts, one paragraph each."""
    rollouts = read_rollouts(root, candidate)
    failures = [rollout for rollout in rollouts if rollout.failed]
    yield f"{len(failures)} of {len(rollouts)} practice rollouts of {candidate} failed"
    for rollout in failures[:count]:
        yield ""
        yield f"{rollout.path.relative_to(root)}  {rollout.status}, reward {rollout.reward}"
        for name in ("question", "answer", "feedback", "error"):
            value = getattr(rollout, name)
            if value:
                yield f"  {name}: {_shown(value)}"


def search(root: Path, pattern: str, where: str) -> Iterator[str]:
    """Yield `path:line: text` for lines that match a regular expression.

    Args:
        root: Root of the history.
        pattern: Regular expression.
        where: `source`, `rollouts` or `all`.
    """
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise HistoryError(f"{pattern!r} is no regular expression: {error}") from error
    below = {"source": "candidates/*/source/**/*", "rollouts": "candidates/*/rollouts/**/*", "all": "**/*"}[where]
    found = 0
    for path in sorted(Path(root).glob(below)):
        if not path.is_file() or path.is_symlink():
            continue
        with path.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                if wanted.search(line):
                    if found == MAX_MATCHES:
                        yield f"… more than {MAX_MATCHES} lines match: narrow the expression"
                        return
                    found += 1
                    yield f"{path.relative_to(root)}:{number}: {_shown(line.strip())}"
    if not found:
        yield "No line matches."


def main(arguments: Optional[Sequence[str]] = None, out: Optional[TextIO] = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="history", description="Ask the history of a search.")
    parser.add_argument("root", type=Path, help="root of the history tree")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("frontier", help="candidates worth building on")
    top = commands.add_parser("top", help="candidates with the highest means")
    top.add_argument("--part", choices=("val", "practice"), default="val")
    top.add_argument("-n", "--count", type=int, default=DEFAULT_COUNT)
    diff = commands.add_parser("diff", help="how a candidate differs from its base or from another one")
    diff.add_argument("candidate")
    diff.add_argument("other", nargs="?")
    failures = commands.add_parser("failures", help="practice rollouts that went wrong")
    failures.add_argument("candidate")
    failures.add_argument("-n", "--count", type=int, default=DEFAULT_COUNT)
    grep = commands.add_parser("grep", help="search all files with a regular expression")
    grep.add_argument("pattern")
    grep.add_argument("--in", dest="where", choices=("source", "rollouts", "all"), default="all")
    given = parser.parse_args(arguments)
    out = out if out is not None else sys.stdout
    try:
        for line in _run(given):
            out.write(line.encode("utf-8", "backslashreplace").decode() + "\n")
    except HistoryError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except BrokenPipeError:  # `… | head`
        return 0
    return 0


def _run(given: argparse.Namespace) -> Iterator[str]:
    root: Path = given.root
    if not (root / "candidates").is_dir():
        raise HistoryError(f"{root}: no history tree")
    if given.command == "frontier":
        return show_frontier(root)
    if given.command == "top":
        return show_top(root, given.part, given.count)
    if given.command == "diff":
        return show_diff(root, given.candidate, given.other)
    if given.command == "failures":
        return show_failures(root, given.candidate, given.count)
    return search(root, given.pattern, given.where)


if __name__ == "__main__":
    sys.exit(main())
