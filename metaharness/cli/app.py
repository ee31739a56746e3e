"""The tree of commands. Everything heavy is imported inside a command, so that `--help` stays quick."""

from __future__ import annotations

import typer

from metaharness.cli import campaigns, doctor, environments, exporting, harnesses, inspecting, models

app = typer.Typer(
    help="Search over the program around a model: evolve, inspect and ship agent harnesses.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: importing rich would double the time of --help
    context_settings={"help_option_names": ["-h", "--help"]},
)

campaigns.register(app)
inspecting.register(app)
exporting.register(app)
app.add_typer(harnesses.app, name="harness")
app.add_typer(environments.app, name="env")
app.add_typer(models.app, name="models")
doctor.register(app)
