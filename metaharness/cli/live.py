"""Live progress of a campaign: a panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from metaharness.campaign.progress import Progress

PLAIN_EVERY_S = 10.0


class LiveView:
    """Shows `Progress`. Use as a context manager; `update` is the campaign's observer."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._last_line_at = 0.0
        self._last_phase = ""
        self._last_proposal = -1

    def __enter__(self) -> LiveView:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, progress: Progress) -> None:
        """Show the state of things."""
        if self._live is not None:
            self._live.update(_panel(progress))
        else:
            self._plain(progress)

    def _plain(self, progress: Progress) -> None:
        for proposal in progress.proposals:
            if proposal.number > self._last_proposal:
                self._last_proposal = proposal.number
                self._line(f"proposal {proposal.number}: {_verdict(proposal.verdict, proposal.candidate)} "
                           f"{proposal.mechanism} {proposal.reason}".rstrip())  # fmt: skip
        now = time.monotonic()
        if progress.phase == self._last_phase and now - self._last_line_at < PLAIN_EVERY_S:
            return
        self._last_line_at, self._last_phase = now, progress.phase
        self._line(" · ".join(status_parts(progress)))

    def _line(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True, highlight=False)


def status_parts(progress: Progress) -> list[str]:
    """Return the pieces of the status line."""
    parts = [progress.phase]
    planned = f"/{progress.planned}" if progress.planned is not None else ""
    cap = f"/{progress.caps.rollouts}" if progress.caps.rollouts else ""
    parts.append(f"{progress.done}{planned} rollouts here, {progress.spent.rollouts}{cap} in all")
    if progress.best is not None and progress.best_val is not None:
        parts.append(f"best {progress.best} val {progress.best_val} (exploratory)")
    if progress.seed_val is not None:
        parts.append(f"seed {progress.seed_val.mean:.3f}")
    parts.append(f"{progress.spent.tokens:,} tokens, ${progress.spent.cost_usd:.2f}")
    parts.append(f"{clock_text(progress.running_s)} so far")
    if progress.seconds_left is not None and progress.phase != "done":
        parts.append(f"at most {clock_text(progress.seconds_left)} left")
    if progress.missing:
        parts.append(f"{progress.missing} missing (infrastructure)")
    return parts


def clock_text(seconds: float) -> str:
    """Return `1h02m`, `3m05s` or `12s`."""
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 60}m{whole % 60:02d}s" if whole >= 60 else f"{whole}s"


def _verdict(verdict: str, candidate: str | None) -> str:
    return f"accepted as {candidate}:" if verdict == "accepted" and candidate else f"{verdict}:"


def _panel(progress: Progress) -> Group:
    table = Table.grid(padding=(0, 1))
    table.add_row(f"[bold]{escape(progress.name)}[/bold]", " · ".join(escape(part) for part in status_parts(progress)))
    bar = ProgressBar(total=1.0, completed=progress.fraction, width=40)
    rows = Table.grid(padding=(0, 1))
    for proposal in progress.proposals:
        text = f"{_verdict(proposal.verdict, proposal.candidate)} {proposal.mechanism} {proposal.reason}"
        rows.add_row(f"[dim]#{proposal.number}[/dim]", escape(text))
    return Group(table, bar, rows)
