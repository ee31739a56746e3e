"""`run`, `resume`, `demo`: start a campaign or go on with one."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metaharness.cli.options import DEFAULT_ARCHIVE, ArchiveOption, JsonOption, print_json

if TYPE_CHECKING:
    from metaharness.spec import CampaignSpec


INTERRUPTED = 130
"""Exit code of a command that was stopped by a signal, as shells have it."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(run)
    app.command()(resume)
    app.command()(demo)


def run(
    spec: Annotated[Path, typer.Argument(help="The campaign.toml.", readable=False)],
    archive: ArchiveOption = DEFAULT_ARCHIVE,
    as_json: JsonOption = False,
) -> None:
    """Run a campaign from its spec to its end. Ctrl-C once drains and saves, twice stops now."""
    from metaharness.spec import load_spec

    _execute(load_spec(spec), root=archive, base=spec.resolve().parent, resuming=False, as_json=as_json)


def resume(
    campaign: Annotated[str, typer.Argument(help="Name of the campaign, or its campaign.toml.")],
    archive: ArchiveOption = DEFAULT_ARCHIVE,
    as_json: JsonOption = False,
) -> None:
    """Go on with a campaign that was stopped or killed. Nothing that was finished is run again."""
    from metaharness.archive import Archive
    from metaharness.errors import SpecError
    from metaharness.frozen import first_difference, read_frozen_spec, resolve_spec
    from metaharness.spec import load_spec

    path = Path(campaign)
    given = load_spec(path) if path.suffix == ".toml" else None
    opened = Archive.open(archive)
    frozen = read_frozen_spec(opened, given.name if given is not None else campaign)
    if given is not None and (changed := first_difference(frozen, resolve_spec(given, path.resolve().parent))):
        raise SpecError(
            f"{path}: {changed} since the campaign began; a resume goes on under the same spec: undo the change, or "
            "start a campaign under another name"
        )
    _execute(frozen, root=archive, base=Path.cwd(), resuming=True, as_json=as_json)


def demo(
    archive: ArchiveOption = DEFAULT_ARCHIVE,
    as_json: JsonOption = False,
    spec_only: Annotated[bool, typer.Option("--spec-only", help="Print the demo's campaign.toml and stop.")] = False,
) -> None:
    """Run the bundled campaign: a small local model, support messages, about ten minutes. Resumes when it exists."""
    from metaharness.archive import Archive
    from metaharness.errors import ArchiveError
    from metaharness.frozen import read_frozen_spec
    from metaharness.spec import parse_spec

    text = (Path(__file__).parent / "demo.toml").read_text("utf-8")
    if spec_only:
        print(text, end="")
        return
    spec = parse_spec(text, "demo campaign")
    try:
        frozen = read_frozen_spec(Archive.open(archive), spec.name)
    except ArchiveError:
        _execute(spec, root=archive, base=Path.cwd(), resuming=False, as_json=as_json)
    else:
        _execute(frozen, root=archive, base=Path.cwd(), resuming=True, as_json=as_json)


def _execute(spec: CampaignSpec, *, root: Path, base: Path, resuming: bool, as_json: bool) -> None:
    from rich.console import Console

    from metaharness.campaign import Result
    from metaharness.cli.live import LiveView

    console = Console(stderr=as_json)

    async def go() -> tuple[Result, dict[str, Any]]:
        from metaharness.assembly import assemble
        from metaharness.campaign import Campaign
        from metaharness.report import campaign_summary

        assembly = await assemble(spec, root=root, base=base, resume=resuming)
        try:
            with LiveView(console) as view:
                campaign = Campaign(assembly, view.update)
                _handle_signals(campaign)
                console.print(f"campaign {spec.name}: sandbox {assembly.engine.name}, model {spec.model.ref}")
                result = await campaign.run()
            return result, campaign_summary(assembly.ledger, spec)
        finally:
            await assembly.aclose()

    try:
        result, summary = asyncio.run(go())
    except asyncio.CancelledError:
        print(f"stopped; go on with: metaharness resume {spec.name}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json(summary)
    elif result.finished:
        from metaharness.cli.verdict import print_verdict

        print_verdict(console, summary)
    else:
        console.print(f"stopped ({result.search_end}); go on with: metaharness resume {spec.name}", highlight=False)


def _handle_signals(campaign: Any) -> None:
    """Ctrl-C and SIGTERM once: drain and save. A second time: stop now; what was committed stays."""
    loop = asyncio.get_running_loop()
    asked = False

    def on_signal() -> None:
        nonlocal asked
        if asked:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            return
        asked = True
        print("stopping: what is under way ends and is saved (again to stop now)", file=sys.stderr)
        campaign.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
