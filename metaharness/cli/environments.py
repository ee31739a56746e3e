"""`env ls|check|show`: bundled environments, and checks for one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from metaharness.cli.options import JsonOption, print_json

app = typer.Typer(help="List bundled environments, check one, look into one.", no_args_is_help=True)
EnvironmentArgument = Annotated[str, typer.Argument(help="Directory, or name of a bundled environment.")]


@app.command(name="ls")
def list_(as_json: JsonOption = False) -> None:
    """List the bundled environments."""
    from rich.console import Console
    from rich.table import Table

    from metaharness.bundled import bundled_dir
    from metaharness.environments import load_environment
    from metaharness.task import Split

    rows: list[dict[str, Any]] = []
    for path in sorted(bundled_dir("envs").iterdir()):
        if (path / "env.toml").is_file():
            environment = load_environment(path.name, base=Path())
            sizes = {split.value: len(environment.tasks(split)) for split in Split}
            rows.append({"name": path.name, "description": environment.info.description, **sizes, "path": str(path)})
    if as_json:
        print_json(rows)
        return
    table = Table()
    for column in ("name", "what", *(split.value for split in Split)):
        table.add_column(column)
    for row in rows:
        table.add_row(row["name"], row["description"], *(str(row[split.value]) for split in Split))
    Console().print(table)


@app.command()
def check(environment: EnvironmentArgument, as_json: JsonOption = False) -> None:
    """Check an environment: format, splits, labels, duplicates, canary, scorer."""
    from metaharness.environments.check import check_environment

    report = check_environment(environment, base=Path.cwd())
    if as_json:
        print_json(report.to_json())
        return
    sizes = ", ".join(f"{split} {count}" for split, count in report.sizes.items())
    print(f"{report.name}: {sizes}")
    for warning in report.warnings:
        print(f"warning: {warning}")
    print(f"{report.name}: can be used{' (see the warnings)' if report.warnings else ''}")


@app.command()
def show(
    environment: EnvironmentArgument,
    count: Annotated[int, typer.Option(min=1, help="Train tasks to show.")] = 5,
    as_json: JsonOption = False,
) -> None:
    """Show what an environment asks: its sizes and some train tasks (never val or test)."""
    from metaharness.environments import load_environment
    from metaharness.task import Split

    found = load_environment(environment, base=Path.cwd())
    tasks = list(found.tasks(Split.TRAIN))[:count]
    data: dict[str, Any] = {
        "name": found.info.name,
        "description": found.info.description,
        "protocol": found.info.protocol,
        "digest": found.info.digest,
        "sizes": {split.value: len(found.tasks(split)) for split in Split},
        "tasks": [
            {"id": task.id, **task.example().to_json()} if task.answer is not None else {"id": task.id}
            for task in tasks
        ],
    }
    if as_json:
        print_json(data)
        return
    print(f"{data['name']} ({data['protocol']}): {data['description']}")
    print(", ".join(f"{split} {size}" for split, size in data["sizes"].items()))
    for task in tasks:
        print(f"\n{task.id}: {task.instruction}\n  {task.input}\n  -> {task.answer}")
