"""Rollouts and trajectories on a terminal. Text from a harness is printed without markup and control characters."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from metaharness.cli.options import print_json
from metaharness.trajectory import Step, Trajectory
from metaharness.unit import RolloutRecord

COLOURS = {"system": "magenta", "user": "cyan", "agent": "green"}


def plain(text: str) -> str:
    """Return text without control characters, so that it cannot move the cursor or change the terminal."""
    return "".join(c if c in "\n\t" or unicodedata.category(c)[0] != "C" else "\N{REPLACEMENT CHARACTER}" for c in text)


def print_rollouts(console: Console, name: str, rows: Sequence[RolloutRecord], *, as_json: bool) -> None:
    """Print one line a rollout."""
    if as_json:
        print_json([_row_json(row) for row in rows])
        return
    table = Table(title=f"rollouts of {name}", title_justify="left", caption="print one: --task <first characters>")
    for column in ("part", "task", "attempt", "status", "reward", "tokens", "s", "answer or error"):
        table.add_column(column)
    for row in rows:
        reward = "missing" if row.reward is None else f"{row.reward:.2f}"
        last = plain(row.error or row.answer_preview).replace("\n", " ")[:60]
        cells = [row.unit.part.value, row.unit.task[:12], str(row.unit.attempt), row.status.value, reward]
        table.add_row(*cells, str(row.usage.tokens), f"{row.seconds:.2f}", Text(last))
    console.print(table)


def _row_json(row: RolloutRecord) -> dict[str, Any]:
    return {
        "environment": row.unit.environment,
        "part": row.unit.part.value,
        "task": row.unit.task,
        "attempt": row.unit.attempt,
        "purpose": row.purpose.value,
        "status": row.status.value,
        "reward": row.reward,
        "usage": row.usage.to_json(),
        "seconds": row.seconds,
        "trajectory": row.trajectory,
        "error": row.error,
        "answer": row.answer_preview,
    }


def print_trajectory(console: Console, trajectory: Trajectory, path: Path) -> None:
    """Print a trajectory step by step, then how it ended."""
    console.print(Text(f"{path}", style="dim"))
    for step in trajectory.steps:
        _print_step(console, step)
    ours = trajectory.ours
    score = ours.get("score") or {}
    console.rule("end", align="left")
    for label, value in (
        ("status", ours.get("status")),
        ("answer", ours.get("answer")),
        ("reward", score.get("reward")),
        ("feedback", score.get("feedback")),
        ("error", ours.get("error")),
        ("harness log", ours.get("log")),
    ):
        if value not in (None, ""):
            console.print(Text(f"{label}: ", style="bold") + Text(plain(str(value))))


def _print_step(console: Console, step: Step) -> None:
    details = []
    if step.metrics is not None:
        details.append(f"{step.metrics.prompt_tokens} + {step.metrics.completion_tokens} tokens")
    seconds = (step.extra or {}).get("metaharness", {}).get("seconds")
    if seconds is not None:
        details.append(f"{seconds:.2f} s")
    console.rule(
        Text(" · ".join([f"{step.step_id} {step.source}", *details]), style=COLOURS[step.source]), align="left"
    )
    message = step.message if isinstance(step.message, str) else str(step.message)
    console.print(Text(plain(message)), soft_wrap=True)
    for call in step.tool_calls or ():
        console.print(Text(plain(f"-> {call.function_name} {call.arguments}"), style="yellow"), soft_wrap=True)
    for result in step.observation.results if step.observation else ():
        console.print(Text(plain(f"<- {result.content}"), style="blue"), soft_wrap=True)
