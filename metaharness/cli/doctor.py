"""`doctor`: what works on this machine, found by trying it."""

from __future__ import annotations

import asyncio
import platform
import sys
from typing import Any

import typer

from metaharness.cli.options import DEFAULT_ARCHIVE, ArchiveOption, JsonOption, print_json


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def doctor(archive: ArchiveOption = DEFAULT_ARCHIVE, as_json: JsonOption = False) -> None:
    """Try what a campaign needs: sandboxes and their limits, the local model, git, the archive."""
    from metaharness.errors import MetaharnessError

    report: dict[str, Any] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "sandboxes": asyncio.run(_sandboxes()),
        "models": _models(),
        "git": _git(),
        "archive": _archive(archive),
    }
    ok = any(found["available"] and found["engine"] != "unsafe-process" for found in report["sandboxes"])
    if as_json:
        print_json({**report, "ok": ok})
    else:
        _print(report)
    if not ok:
        raise MetaharnessError("no sandbox works here, so no campaign can run; the lines above say what to do")


async def _sandboxes() -> list[dict[str, Any]]:
    from metaharness.sandboxes import engine_registry

    registry = engine_registry()
    found = []
    for name in registry.targets():
        report = await registry.load(name)().probe()
        found.append(
            {
                "engine": report.engine,
                "available": report.available,
                "reason": report.reason,
                "limits": dict(report.limits),
                "start_ms": report.start_ms,
                "details": dict(report.details),
            }
        )
    return found


def _models() -> list[dict[str, Any]]:
    import os

    from metaharness.errors import MissingDependency
    from metaharness.models.local.catalog import CATALOG
    from metaharness.models.local.fetch import find_weights

    rows: list[dict[str, Any]] = []
    for name in CATALOG:
        try:
            rows.append({"ref": f"local/{name}", "available": True, "reason": str(find_weights(name))})
        except MissingDependency as error:
            rows.append({"ref": f"local/{name}", "available": False, "reason": str(error)})
    for provider, variable in (("anthropic", "ANTHROPIC_API_KEY"), ("openai", "OPENAI_API_KEY")):
        present = bool(os.environ.get(variable))
        rows.append(
            {"ref": f"{provider}/…", "available": present, "reason": f"{variable} is {'set' if present else 'not set'}"}
        )
    return rows


def _git() -> dict[str, Any]:
    import subprocess

    try:
        done = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return {"available": False, "reason": f"git cannot be run ({error}); install it (Debian: apt-get install git)"}
    return {"available": True, "reason": done.stdout.strip()}


def _archive(root: Any) -> dict[str, Any]:
    from metaharness.archive import Archive
    from metaharness.errors import ArchiveError

    try:
        opened = Archive.open(root)
    except ArchiveError as error:
        return {"available": False, "reason": str(error)}
    return {"available": True, "reason": f"{root}: {len(opened.campaigns())} campaigns"}


def _print(report: dict[str, Any]) -> None:
    print(f"python {report['python']} ({sys.executable}) on {report['platform']}")
    for engine in report["sandboxes"]:
        state = f"works, starts in {engine['start_ms']:.0f} ms" if engine["available"] else f"no: {engine['reason']}"
        print(f"sandbox {engine['engine']}: {state}")
        for limit, held in engine["limits"].items():
            print(f"    {limit}: {held}")
    for model in report["models"]:
        print(f"model {model['ref']}: {'yes' if model['available'] else 'no'}, {model['reason']}")
    for name in ("git", "archive"):
        print(f"{name}: {'yes' if report[name]['available'] else 'no'}, {report[name]['reason']}")
