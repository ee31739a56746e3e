"""`harness ls|check|new`: bundled harnesses, and a start for one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metaharness.cli.options import JsonOption, print_json

app = typer.Typer(help="List bundled harnesses, check one, start a new one.", no_args_is_help=True)


@app.command(name="ls")
def list_(as_json: JsonOption = False) -> None:
    """List the bundled harnesses."""
    from rich.console import Console
    from rich.table import Table

    from metaharness.harnesses import bundled_harnesses, load_harness

    rows = []
    for name, path in bundled_harnesses().items():
        config = load_harness(name, base=Path()).config
        rows.append({"name": name, "description": config.description, "path": str(path)})
    if as_json:
        print_json(rows)
        return
    table = Table()
    table.add_column("name")
    table.add_column("idea")
    for row in rows:
        table.add_row(row["name"], row["description"])
    Console().print(table)


@app.command()
def check(
    harness: Annotated[str, typer.Argument(help="Directory, or name of a bundled harness.")],
    as_json: JsonOption = False,
) -> None:
    """Check a harness against its contract, without running it."""
    from metaharness.errors import HarnessError
    from metaharness.gate import check_harness
    from metaharness.harnesses import load_harness

    tree = load_harness(harness, base=Path.cwd())
    findings = check_harness(tree)
    fatal = [finding for finding in findings if finding.fatal]
    if as_json:
        print_json({"harness": harness, "ok": not fatal, "findings": [finding.to_json() for finding in findings]})
    else:
        for finding in findings:
            print(f"{'wrong' if finding.fatal else 'note'}: {finding}")
    if fatal:
        raise HarnessError(f"{harness}: {len(fatal)} findings, the first: {fatal[0]}")
    if not as_json:
        print(f"{harness}: keeps the contract ({len(tree)} files, entry {tree.config.entry or tree.config.command})")


@app.command()
def new(
    directory: Annotated[Path, typer.Argument(help="Directory to make; must not exist.", readable=False)],
    like: Annotated[str, typer.Option(help="Bundled harness to start from.")] = "direct",
) -> None:
    """Start a new harness as a copy of a bundled one."""
    from metaharness.errors import HarnessError
    from metaharness.harnesses import load_harness

    if directory.exists():
        raise HarnessError(f"{directory}: exists; name a directory that does not")
    tree = load_harness(like, base=Path())
    name = "".join(c if c.isalnum() or c in "_.-" else "_" for c in directory.resolve().name).lstrip("_.-") or "harness"
    config = tree.text("harness.toml").replace(f'name = "{tree.config.name}"', f'name = "{name[:64]}"', 1)
    try:
        tree.replace({"harness.toml": config.encode()}).write_to(directory)
    except OSError as error:
        raise HarnessError(f"{directory}: cannot be written: {error.strerror}") from error
    print(f"{directory}: a harness like {like}; edit harness.py, then: metaharness harness check {directory}")
