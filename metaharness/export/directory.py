"""`--as directory`: source, learned state, settings and score card, run by `python -m`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metaharness.archive import Archive
from metaharness.candidate import Candidate
from metaharness.environments import load_environment
from metaharness.errors import ArchiveError, UserError
from metaharness.evaluator import fit_key
from metaharness.frozen import read_frozen_spec
from metaharness.ledger import Ledger
from metaharness.report import campaign_summary, campaign_weights, candidate_row
from metaharness.rollout import runtime_digest
from metaharness.source import SourceTree
from metaharness.spec import CampaignSpec
from metaharness.task import Split

MAIN = '''\
"""Run the exported harness: `python -m {package} "a new question"`; needs the metaharness package for the model."""

import sys
from pathlib import Path

from metaharness.export.standalone import main

sys.exit(main(Path(__file__).resolve().parent, sys.argv[1:]))
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written.

    Attributes:
        directory: Where.
        files: Number of files.
        command: A command that tries it out.
    """

    directory: Path
    files: int
    command: str


def export_directory(candidate: str, *, root: Path, to: Path) -> Exported:
    """Write a candidate out as a directory that answers new questions.

    Args:
        candidate: `campaign/c0042`, or `campaign/best` for the campaign's winner.
        root: Directory of the archive.
        to: Directory to make.

    Raises:
        ArchiveError: There is no such candidate, or it has no learned state although it learns.
        UserError: `to` exists or cannot be written.
    """
    if to.exists():
        raise UserError(f"{to}: exists; name a directory that does not")
    archive = Archive.open(root)
    campaign, identifier, commit = _resolve(archive, candidate)
    spec = read_frozen_spec(archive, campaign)
    tree = archive.read_tree(commit)
    with Ledger.open(archive.campaign_dir(campaign), read_only=True) as ledger:
        found = ledger.candidate(identifier)
        states = _states(ledger, spec, tree)
        card = _card(ledger, spec, found)
    files: dict[str, bytes] = {f"harness/{path}": data for path, data in tree.items()}
    files |= {f"state/{name}.bin": state for name, state in states.items()}
    files["environments.json"] = _json(_environments(spec))
    files["model.json"] = _json(spec.model.model_dump(mode="json"))
    files["card.json"] = _json(card)
    package = to.resolve().name
    files["__main__.py"] = MAIN.format(package=package).encode()
    files["README.md"] = _readme(package, card).encode()
    try:
        for path, data in files.items():
            target = to / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    except OSError as error:
        raise UserError(f"{to}: cannot be written: {error.strerror}") from error
    parent = to.resolve().parent
    where = "" if parent == Path.cwd() else f"cd {parent} && "
    return Exported(directory=to, files=len(files), command=f'{where}python -m {package} "a new question"')


def _resolve(archive: Archive, candidate: str) -> tuple[str, str, str]:
    campaign, _, name = candidate.rpartition("/")
    if name != "best":
        return archive.resolve(candidate, None)
    with Ledger.open(archive.campaign_dir(campaign), read_only=True) as ledger:
        winners = ledger.decisions("winner")
    if not winners:
        raise ArchiveError(f"campaign {campaign!r} has no winner yet: name a candidate")
    return archive.resolve(f"{campaign}/{winners[-1].data['candidate']}", None)


def _states(ledger: Ledger, spec: CampaignSpec, tree: SourceTree) -> dict[str, bytes]:
    """Return what the harness has learned on each environment, from the ledger."""
    states = {}
    environments = ledger.get_meta("environments")
    for name, digest in (ledger.get_meta("fit_sets") or {}).items():
        key = fit_key(
            tree=tree.digest,
            environment=environments[name],
            fit_set=digest,
            model=ledger.get_meta("model")["digest"],
            runtime=ledger.get_meta("runtime"),
            random_seed=spec.random_seed,
        )
        fit = ledger.get_fit(key)
        if fit is not None and fit.state is not None:
            states[name] = fit.state
        elif fit is None and tree.config.entry is not None:
            raise ArchiveError(f"the candidate was never fitted on {name!r}: it was stopped before its first rollout")
    return states


def _environments(spec: CampaignSpec) -> list[dict[str, Any]]:
    """Return what a new question needs to look like a task: instruction and choices where all tasks share them."""
    found = []
    for item in spec.environments:
        environment = load_environment(item.ref, base=Path())
        tasks = environment.tasks(Split.TRAIN)
        instructions = {task.instruction for task in tasks}
        choices = {task.choices for task in tasks}
        shared = next(iter(choices)) if len(choices) == 1 else None
        found.append(
            {
                "name": environment.info.name,
                "digest": environment.info.digest,
                "instruction": next(iter(instructions)) if len(instructions) == 1 else "",
                "choices": list(shared) if shared is not None else None,
            }
        )
    return found


def _card(ledger: Ledger, spec: CampaignSpec, candidate: Candidate) -> dict[str, Any]:
    """Return where the harness comes from and how it scored; the test reading only if it is of this harness."""
    summary = campaign_summary(ledger, spec)
    test = summary["test"]
    read = test is not None and candidate.id in (test["winner_id"], test["seed_id"])
    return {
        "schema_version": 1,
        "candidate": candidate_row(ledger, candidate, campaign_weights(ledger)),
        "campaign": {key: summary[key] for key in ("campaign", "model", "sandbox", "environments", "spent")},
        "model": ledger.get_meta("model"),
        "runtime": {"recorded": ledger.get_meta("runtime"), "exported_with": runtime_digest()},
        "test": test if read else None,
    }


def _readme(package: str, card: dict[str, Any]) -> str:
    candidate, campaign = card["candidate"], card["campaign"]
    test = card["test"]
    lines = [
        f"# {package}",
        "",
        f"The harness {campaign['campaign']}/{candidate['id']} ({candidate['name']}), as archived in commit",
        f"`{candidate['commit']}`, with the model {campaign['model']}.",
        "",
        "```",
        f'python -m {package} "a new question"          # from the directory above; or: python {package} "…"',
        f"python -m {package} --help",
        "```",
        "",
        f"Hypothesis: {candidate['hypothesis']}",
        "",
    ]
    if test is not None and "winner" in test:
        part = test["winner"] if candidate["id"] == test["winner_id"] else test["seed"]
        low, high = part["interval"]
        lines.append(f"Reward on the test split: {part['mean']:.3f}, 95% interval [{low:.3f}, {high:.3f}].")
    else:
        lines.append("Its reward on the test split was not read.")
    lines += ["", "`card.json` holds the rest: scores, costs, digests.", ""]
    return "\n".join(lines)


def _json(data: Any) -> bytes:
    return (json.dumps(data, ensure_ascii=False, indent=2) + "\n").encode()
