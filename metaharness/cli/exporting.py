"""`export`: a candidate into production."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from metaharness.cli.options import DEFAULT_ARCHIVE, ArchiveOption


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(export)


def export(
    candidate: Annotated[str, typer.Argument(help="Candidate: campaign/c0042, or campaign/best for its winner.")],
    to: Annotated[Path, typer.Option(help="Directory to make; must not exist.", readable=False)],
    as_: Annotated[Literal["directory"], typer.Option("--as", help="What to make of it.")] = "directory",
    archive: ArchiveOption = DEFAULT_ARCHIVE,
) -> None:
    """Write a candidate out as a directory that runs by itself: source, learned state, runtime, score card."""
    from metaharness.export import export_directory

    written = export_directory(candidate, root=archive, to=to)
    print(f"{written.directory}: {candidate} with {written.files} files; as {as_}; try:")
    print(f"  {written.command}")
