"""`ls`, `show`, `diff`, `lineage`, `trace`, `best`: read an archive. None of them takes a lock or writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metaharness.cli.options import DEFAULT_ARCHIVE, ArchiveOption, JsonOption, print_json

if TYPE_CHECKING:
    from metaharness.archive import Archive
    from metaharness.ledger import Ledger
    from metaharness.spec import CampaignSpec

CandidateArgument = Annotated[str, typer.Argument(help="Candidate: campaign/c0042, or c0042 if there is one campaign.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(name="ls")(list_)
    for command in (show, diff, lineage, trace, best):
        app.command()(command)


def list_(
    campaign: Annotated[str | None, typer.Argument(help="Campaign; without one, all campaigns are listed.")] = None,
    archive: ArchiveOption = DEFAULT_ARCHIVE,
    as_json: JsonOption = False,
) -> None:
    """List campaigns, or the candidates of one."""
    from metaharness.archive import Archive

    opened = Archive.open(archive)
    if campaign is None:
        _list_campaigns(opened, as_json)
    else:
        _list_candidates(opened, campaign, as_json)


def _list_campaigns(archive: Archive, as_json: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from metaharness.report import campaign_summary

    summaries = []
    for name in archive.campaigns():
        with _opened(archive, name) as (ledger, spec):
            summaries.append(campaign_summary(ledger, spec))
    if as_json:
        print_json(summaries)
        return
    table = Table()
    for column in ("campaign", "phase", "model", "candidates", "rollouts", "best", "verdict on test"):
        table.add_column(column)
    for item in summaries:
        verdict = item["test"]["verdict"] if item["test"] else ""
        cells = [item["campaign"], item["phase"], item["model"], item["candidates"], sum(item["rollouts"].values())]
        table.add_row(*map(str, cells), item["best"] or "", verdict)
    Console().print(table)


def _list_candidates(archive: Archive, name: str, as_json: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from metaharness.report import campaign_weights, candidate_row

    with _opened(archive, name) as (ledger, _):
        weights = campaign_weights(ledger)
        rows = [candidate_row(ledger, candidate, weights) for candidate in ledger.candidates()]
    if as_json:
        print_json(rows)
        return
    table = Table(caption="val: mean [95% interval], exploratory: candidates were selected on it")
    for column in ("id", "parents", "mechanism", "val", "tasks", "rollouts", "status"):
        table.add_column(column)
    for row in rows:
        cells = [row["id"], " ".join(row["parents"]), row["mechanism"], interval_text(row["val"])]
        table.add_row(*cells, str(row["val"]["tasks"]), str(row["rollouts"]), row["status"])
    Console().print(table)


def show(candidate: CandidateArgument, archive: ArchiveOption = DEFAULT_ARCHIVE, as_json: JsonOption = False) -> None:
    """Show one candidate: where it comes from, what it claims, how it scored, its files."""
    from rich.console import Console
    from rich.syntax import Syntax

    from metaharness.archive import Archive
    from metaharness.report import campaign_weights, candidate_row, scorecard

    opened = Archive.open(archive)
    campaign, identifier, commit = opened.resolve(candidate, None)
    with _opened(opened, campaign) as (ledger, _):
        found = ledger.candidate(identifier)
        weights = campaign_weights(ledger)
        rows = ledger.rollouts(candidate=identifier)
        parent = ledger.rollouts(candidate=found.parents[0]) if found.parents else []
        data = {
            **candidate_row(ledger, found, weights),
            "campaign": campaign,
            "scorecard": scorecard(found, rows, weights, parent=parent).to_json(),
            "manifest": found.manifest.model_dump(mode="json"),
            "failures": _failures(rows),
        }
    tree = opened.read_tree(commit)
    data["files"] = {path: len(content) for path, content in tree.items()}
    if as_json:
        print_json(data)
        return
    console = Console()
    parents = ", ".join(data["parents"]) or "none (seed)"
    for label, value in (
        ("candidate", f"{campaign}/{identifier} ({data['name']}, {data['status']})"),
        ("commit", commit),
        ("parents", parents),
        ("proposer", f"{data['proposer']}: {data['mechanism']}"),
        ("hypothesis", data["hypothesis"]),
        ("practice", f"{interval_text(data['practice'])} over {data['practice']['tasks']} tasks"),
        ("val", f"{interval_text(data['val'])} over {data['val']['tasks']} tasks (exploratory)"),
        ("spent", f"{data['tokens']:,} tokens, ${data['cost_usd']:.4f}, {data['seconds']:.1f} s"),
        ("predictions", _predictions(data["scorecard"]["manifest"])),
        ("flags", "; ".join(data["flags"]) or "none"),
        ("failures", "; ".join(data["failures"]) or "none"),
    ):
        console.print(f"{label:>12}  {value}", markup=False, highlight=False, soft_wrap=True)
    for path in tree:
        console.rule(path, align="left")
        console.print(Syntax(tree.text(path), _language(path), background_color="default"))


def diff(
    first: CandidateArgument,
    second: Annotated[
        str | None, typer.Argument(help="Candidate to compare with; default: the first's parent.")
    ] = None,
    archive: ArchiveOption = DEFAULT_ARCHIVE,
    as_json: JsonOption = False,
) -> None:
    """Show how the source of two candidates differs; with one, what it changed in its parent."""
    from rich.console import Console
    from rich.syntax import Syntax

    from metaharness.archive import Archive
    from metaharness.errors import ArchiveError

    opened = Archive.open(archive)
    campaign, identifier, commit = opened.resolve(first, None)
    if second is None:
        with _opened(opened, campaign) as (ledger, _):
            found = ledger.candidate(identifier)
        if not found.parents:
            raise ArchiveError(f"{campaign}/{identifier} is a seed and has no parent: name a second candidate")
        before_id, after_id = f"{campaign}/{found.parents[0]}", f"{campaign}/{identifier}"
        before, after = opened.resolve(before_id, None)[2], commit
    else:
        other, other_id, after = opened.resolve(second, campaign)
        before_id, after_id, before = f"{campaign}/{identifier}", f"{other}/{other_id}", commit
    text = opened.read_tree(before).diff(opened.read_tree(after))
    if as_json:
        print_json({"before": before_id, "after": after_id, "diff": text})
        return
    console = Console()
    console.print(f"{before_id} -> {after_id}", markup=False, highlight=False)
    console.print(Syntax(text, "diff", background_color="default") if text else "no difference")


def lineage(
    campaign: Annotated[str, typer.Argument(help="Campaign.")],
    archive: ArchiveOption = DEFAULT_ARCHIVE,
    as_json: JsonOption = False,
) -> None:
    """Show who descends from whom, as a tree; a crossover hangs under its first parent."""
    from rich.console import Console
    from rich.markup import escape
    from rich.tree import Tree

    from metaharness.archive import Archive
    from metaharness.report import campaign_weights, candidate_row

    opened = Archive.open(archive)
    with _opened(opened, campaign) as (ledger, _):
        weights = campaign_weights(ledger)
        rows = {found.id: candidate_row(ledger, found, weights) for found in ledger.candidates()}
        winner = next((decision.data["candidate"] for decision in ledger.decisions("winner")), None)
    graph = opened.lineage(campaign)
    if as_json:
        print_json(
            {
                "nodes": [{"id": node, "val": rows[node]["val"], "winner": node == winner} for node in graph.nodes],
                "edges": [{"parent": parent, "child": child} for parent, child in graph.edges],
            }
        )
        return
    root = Tree(f"[bold]{escape(campaign)}[/bold]")
    branches: dict[str, Tree] = {}
    for node, row in rows.items():
        second = f" x {' '.join(row['parents'][1:])}" if len(row["parents"]) > 1 else ""
        text = f"{node}{second}  val {interval_text(row['val'])}  {row['mechanism']}"
        label = f"[bold green]{escape(text)}  (winner)[/bold green]" if node == winner else escape(text)
        above = branches[row["parents"][0]] if row["parents"] else root
        branches[node] = above.add(label)
    Console().print(root)


def best(
    campaign: Annotated[str | None, typer.Argument(help="Campaign; not needed when there is one.")] = None,
    archive: ArchiveOption = DEFAULT_ARCHIVE,
    as_json: JsonOption = False,
) -> None:
    """Show the winner of a campaign and the reading of the test split."""
    from rich.console import Console

    from metaharness.archive import Archive
    from metaharness.cli.verdict import print_verdict
    from metaharness.errors import ArchiveError
    from metaharness.report import campaign_summary

    opened = Archive.open(archive)
    names = opened.campaigns()
    if campaign is None:
        if len(names) != 1:
            raise ArchiveError(f"name the campaign (known: {', '.join(names) or 'none'})")
        campaign = names[0]
    with _opened(opened, campaign) as (ledger, spec):
        summary = campaign_summary(ledger, spec)
    if as_json:
        print_json(summary)
    elif summary["test"] is not None:
        print_verdict(Console(), summary)
    else:
        Console().print(
            f"{campaign}: in phase {summary['phase']}, no verdict yet; best so far on val (exploratory): "
            f"{summary['best'] or 'none'}"
        )


def trace(
    candidate: CandidateArgument,
    task: Annotated[str | None, typer.Option(help="First characters of a task digest: print that trajectory.")] = None,
    status: Annotated[str | None, typer.Option(help="Only rollouts that ended so, for example harness_error.")] = None,
    archive: ArchiveOption = DEFAULT_ARCHIVE,
    as_json: JsonOption = False,
) -> None:
    """List the rollouts of a candidate, or print one trajectory. Those of the test split stay sealed."""
    from rich.console import Console

    from metaharness.archive import Archive
    from metaharness.cli.trajectories import print_rollouts, print_trajectory
    from metaharness.errors import ArchiveError, unknown_name
    from metaharness.task import Part
    from metaharness.trajectory import RolloutStatus, read_trajectory

    if status is not None and status not in list(RolloutStatus):
        raise ArchiveError(unknown_name("status", status, [found.value for found in RolloutStatus]))
    opened = Archive.open(archive)
    campaign, identifier, _ = opened.resolve(candidate, None)
    with _opened(opened, campaign) as (ledger, _spec):
        rows = [row for row in ledger.rollouts(candidate=identifier) if row.unit.part is not Part.TEST]
    rows = [row for row in rows if status is None or row.status.value == status]
    if task is None:
        print_rollouts(Console(), f"{campaign}/{identifier}", rows, as_json=as_json)
        return
    chosen = [row for row in rows if row.unit.task.startswith(task) and row.trajectory]
    if not chosen:
        raise ArchiveError(
            f"{campaign}/{identifier} has no trajectory of a task {task!r}: `trace` without --task lists them"
        )
    path = opened.campaign_dir(campaign) / chosen[0].trajectory
    if as_json:
        print(path.read_text("utf-8"), end="")
    else:
        print_trajectory(Console(), read_trajectory(path), path)


@contextmanager
def _opened(archive: Archive, name: str) -> Iterator[tuple[Ledger, CampaignSpec]]:
    from metaharness.frozen import read_frozen_spec
    from metaharness.ledger import Ledger

    spec = read_frozen_spec(archive, name)
    with Ledger.open(archive.campaign_dir(name), read_only=True) as ledger:
        yield ledger, spec


def interval_text(part: dict[str, Any]) -> str:
    """Return `0.512 [0.410, 0.613]` for an estimate as JSON."""
    if part["mean"] is None:
        return "not evaluated"
    return f"{part['mean']:.3f} [{part['interval'][0]:.3f}, {part['interval'][1]:.3f}]"


def _failures(rows: list[Any]) -> list[str]:
    from collections import Counter

    counts = Counter(row.error for row in rows if row.error)
    return [f"{count} x {error}" for error, count in counts.most_common(3)]


def _predictions(manifest: dict[str, Any]) -> str:
    flips, risks = manifest["expected_flips"], manifest["at_risk"]
    return (
        f"{flips['hit']} of {flips['of']} expected flips came, {risks['lost']} of {risks['of']} at risk were lost; "
        f"{manifest['flipped']} flipped and {manifest['broke']} broke in all"
    )


def _language(path: str) -> str:
    return {".py": "python", ".toml": "toml", ".md": "markdown", ".json": "json"}.get(Path(path).suffix, "text")
