from __future__ import annotations

import io

from rich.console import Console

from metaharness.budget import Caps, Usage
from metaharness.campaign.progress import Progress
from metaharness.cli.live import LiveView, clock_text
from metaharness.score import estimate
from metaharness.unit import ProposalRecord


def progress() -> Progress:
    return Progress(
        name="demo",
        caps=Caps(rollouts=100),
        spent=Usage(rollouts=25, input_tokens=1000, cost_usd=0.5),
        running_s=60.0,
        planned=40,
        done=25,
        best="c0003",
        best_val=estimate([1.0] * 6 + [0.0] * 6),
        seed_val=estimate([0.0] * 12),
        proposals=[
            ProposalRecord(number=0, parents=("c0000",), proposer="codemods", mechanism="graft [x]", candidate="c0001")
        ],
    )


def shown(terminal: bool) -> str:
    out = io.StringIO()
    with LiveView(Console(file=out, force_terminal=terminal, width=200, color_system=None)) as view:
        view.update(progress())
    return out.getvalue()


def test_plain_lines_say_what_matters() -> None:
    text = shown(terminal=False)
    for part in ("25/40 rollouts", "25/100 in all", "best c0003 val 0.500 [", "seed 0.000", "$0.50", "1m00s so far",
                 "at most 3m00s left", "proposal 0: accepted as c0001: graft [x]"):  # fmt: skip
        assert part in text
    assert "\x1b" not in text


def test_a_terminal_gets_a_panel_with_the_same() -> None:
    text = shown(terminal=True)
    assert "25/40 rollouts" in text
    assert "graft [x]" in text


def test_plain_lines_are_not_repeated_for_every_rollout() -> None:
    out = io.StringIO()
    with LiveView(Console(file=out, width=200)) as view:
        for _ in range(50):
            view.update(progress())
    assert len(out.getvalue().splitlines()) == 2


def test_durations() -> None:
    assert [clock_text(seconds) for seconds in (5.9, 65, 3725)] == ["5s", "1m05s", "1h02m"]
