"""The public Python surface: `run`, `resume`, `open_archive`, `evaluate`, `export`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metaharness.archive import Archive
    from metaharness.campaign.progress import Observer
    from metaharness.export import Exported
    from metaharness.spec import CampaignSpec

DEFAULT_ARCHIVE = Path("archive")


def run(
    spec: CampaignSpec | Path | str, *, archive: Path = DEFAULT_ARCHIVE, observe: Observer | None = None
) -> dict[str, Any]:
    """Run a campaign to its end.

    Args:
        spec: A spec, or the path of a campaign.toml.
        archive: Directory of the archive; made if absent.
        observe: Called with the live progress after every step.

    Returns:
        The campaign's summary, as `metaharness best --json` prints it.

    Raises:
        UserError: The request is wrong; one line.
        InfraError: Infrastructure failed too often in a row; `resume` goes on.
    """
    from metaharness.spec import load_spec

    path = Path(spec) if isinstance(spec, str | Path) else None
    loaded = load_spec(path) if path is not None else spec
    base = path.resolve().parent if path is not None else Path.cwd()
    return asyncio.run(_run(loaded, archive, base, observe, resuming=False))  # type: ignore[arg-type]


def resume(name: str, *, archive: Path = DEFAULT_ARCHIVE, observe: Observer | None = None) -> dict[str, Any]:
    """Go on with a campaign; nothing that was finished is run again. Returns and raises as `run`."""
    from metaharness.archive import Archive
    from metaharness.frozen import read_frozen_spec

    spec = read_frozen_spec(Archive.open(archive), name)
    return asyncio.run(_run(spec, archive, Path.cwd(), observe, resuming=True))


async def _run(
    spec: CampaignSpec, root: Path, base: Path, observe: Observer | None, *, resuming: bool
) -> dict[str, Any]:
    from metaharness.assembly import assemble
    from metaharness.campaign import Campaign
    from metaharness.report import campaign_summary

    assembly = await assemble(spec, root=root, base=base, resume=resuming)
    try:
        await Campaign(assembly, observe or (lambda _: None)).run()
        return campaign_summary(assembly.ledger, spec)
    finally:
        await assembly.aclose()


def open_archive(root: Path = DEFAULT_ARCHIVE) -> Archive:
    """Open an archive for reading.

    Raises:
        ArchiveError: There is none.
    """
    from metaharness.archive import Archive

    return Archive.open(root)


def export(candidate: str, *, to: Path, archive: Path = DEFAULT_ARCHIVE) -> Exported:
    """Write a candidate out as a directory that answers new questions; see `metaharness.export`."""
    from metaharness.export import export_directory

    return export_directory(candidate, root=archive, to=to)
