"""The verdict of a campaign, on a screen."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from metaharness.unit import CONTROL_PREFIX

CONTROL_NAMES = {
    "bundled": "unevolved",
    "neighbours": "no model",
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
    table = Table(title="test split, read once", title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.add_column("harness", no_wrap=True)
    for column in ("reward [95%]", "winner minus it", "tokens", "s"):
        table.add_column(column, justify="right", no_wrap=True)
    _row(table, f"winner {test['winner_id']}", test["winner"], None)
    _row(table, f"seed {test['seed_id']}", test["seed"], test["paired"])
    for label, control in test["controls"].items():
        name = control["id"].removeprefix(CONTROL_PREFIX)
        _row(table, f"{CONTROL_NAMES[label]} {name}", control, control["winner_minus_control"])
    return table


def _row(table: Table, name: str, part: dict[str, Any], paired: dict[str, Any] | None) -> None:
    cells = [name, "missing" if part["mean"] is None else f"{part['mean']:.2f} {_ends(part['interval'], '.2f')}"]
    if paired is None or paired["difference"] is None:
        cells.append("")
    else:
        cells.append(f"{paired['difference']:+.2f} {_ends(paired['interval'], '+.2f')}")
    table.add_row(*map(Text, cells), f"{part['tokens_per_rollout']:.0f}", f"{part['seconds_per_rollout']:.2f}")


def _ends(interval: list[float], form: str) -> str:
    return f"[{interval[0]:{form}}, {interval[1]:{form}}]"
