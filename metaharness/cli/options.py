"""Options that several commands share, and where the archive is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

ArchiveOption = Annotated[
    Path,
    typer.Option(
        "--archive",
        envvar="METAHARNESS_ARCHIVE",
        readable=False,  # not checked here: our own message is one line
        help="Directory of the archive.",
        show_default="./archive",
    ),
]
DEFAULT_ARCHIVE = Path("archive")
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def print_json(data: Any) -> None:
    """Print one JSON document; NaN never occurs in our data and is refused."""
    print(json.dumps(data, ensure_ascii=False, indent=2, allow_nan=False))
