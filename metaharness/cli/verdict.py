"""The verdict of a campaign, on a screen."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

CONTROL_NAMES = {
    "bundled": "best bundled harness, unevolved",
    "neighbours": "nearest-neighbour vote, no model",
}


def print_verdict(console: Console, summary: dict[str, Any]) -> None:
    """Print the final reading: each harness with its interval, the paired differences, and what to type next."""
    test = summary["test"]
    name = summary["campaign"]
    winner = test["winner_id"]
    console.print(f"\n[bold]{escape(name)}[/bold]: {summary['search_end']}", highlight=False)
    spent = summary["spent"]
    console.print(
        f"{summary['candidates']} candidates, {spent['rollouts']} rollouts, "
        f"{spent['input_tokens'] + spent['output_tokens']:,} tokens, ${spent['cost_usd']:.2f}, "
        f"{summary['running_s'] / 60:.1f} minutes",
        highlight=False,
    )
    if "winner" not in test:
        console.print(f"[bold]{escape(test['verdict'])}[/bold]: {winner}; the test split was not read")
    else:
        console.print(_table(test))
        low, high = test["paired_interval"]
        console.print(
            f"verdict on test: [bold]{test['verdict']}[/bold]: winner minus seed "
            f"{test['paired_difference']:+.3f} [{low:+.3f}, {high:+.3f}], paired over {test['paired']['tasks']} tasks "
            f"({test['paired']['gained']} gained, {test['paired']['lost']} lost)",
            highlight=False,
        )
        console.print(
            f"optimism gap (selection minus test): {test['optimism_gap']:+.3f}"
            + ("" if test["complete"] else "; the reading is incomplete: the budget ran out"),
            highlight=False,
        )
    console.print("\nnext:")
    for command in next_commands(name, winner):
        console.print(f"  {command}", highlight=False, soft_wrap=True)


def next_commands(campaign: str, winner: str) -> list[str]:
    """Return the commands that a reader may want now."""
    differs = [f"metaharness diff {campaign}/c0000 {campaign}/{winner}"] if winner != "c0000" else []
    return [
        f"metaharness ls {campaign}",
        f"metaharness show {campaign}/{winner}",
        f"metaharness lineage {campaign}",
        *differs,
        f"metaharness trace {campaign}/{winner}",
        f"metaharness export {campaign}/{winner} --as directory --to ./winner",
    ]


def _table(test: dict[str, Any]) -> Table:
    table = Table(title="test split, read once", title_justify="left")
    for column in ("harness", "id"):
        table.add_column(column)
    for column in ("reward [95%]", "winner minus it [95%]", "tokens/task", "s/task"):
        table.add_column(column, justify="right")
    _row(table, "winner", test["winner_id"], test["winner"], None)
    _row(table, "seed", test["seed_id"], test["seed"], test["paired"])
    for label, control in test["controls"].items():
        _row(table, CONTROL_NAMES[label], control["id"], control, control["winner_minus_control"])
    return table


def _row(table: Table, name: str, identifier: str, part: dict[str, Any], paired: dict[str, Any] | None) -> None:
    low, high = part["interval"]
    cells = [name, identifier, "missing" if part["mean"] is None else f"{part['mean']:.3f} [{low:.3f}, {high:.3f}]"]
    if paired is None or paired["difference"] is None:
        cells.append("")
    else:
        cells.append(f"{paired['difference']:+.3f} [{paired['interval'][0]:+.3f}, {paired['interval'][1]:+.3f}]")
    cells += [f"{part['tokens_per_rollout']:.0f}", f"{part['seconds_per_rollout']:.2f}"]
    table.add_row(*cells)
