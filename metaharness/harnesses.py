"""Harnesses by reference: bundled names, directories, archived candidates."""

from __future__ import annotations

from pathlib import Path

from metaharness.archive import Archive
from metaharness.bundled import bundled_dir
from metaharness.errors import ArchiveError, HarnessError, unknown_name
from metaharness.patterns import matches, narrow
from metaharness.source import SourceTree
from metaharness.spec import CampaignSpec


def bundled_harnesses() -> dict[str, Path]:
    """Return the bundled harnesses: name to directory."""
    root = bundled_dir("seed_harnesses")
    return {path.name: path for path in sorted(root.iterdir()) if (path / "harness.toml").is_file()}


def load_harness(ref: str, *, base: Path, archive: Archive | None = None) -> SourceTree:
    """Return the source of a harness.

    Args:
        ref: Bundled name, directory (relative to `base`), or `archive:<campaign>/<candidate>`.
        base: Directory that relative paths start from.
        archive: Where `archive:` references are looked up.

    Raises:
        UserError: It is unknown, or breaks the harness contract; one line.
    """
    known = bundled_harnesses()
    if ref.startswith("archive:"):
        if archive is None:
            raise ArchiveError(f"seed {ref!r}: there is no archive to look it up in")
        _, _, commit = archive.resolve(ref.removeprefix("archive:"), None)
        tree = archive.read_tree(commit)
    elif ref in known:
        tree = SourceTree.from_directory(known[ref])
    elif (base / ref).is_dir():
        tree = SourceTree.from_directory(base / ref)
    elif "/" in ref:
        raise HarnessError(f"seed {ref!r}: no such directory ({base / ref})")
    else:
        raise HarnessError(unknown_name("seed", ref, known))
    try:
        _ = tree.config
    except HarnessError as error:
        raise HarnessError(f"seed {ref!r}: {error}") from error
    return tree


def refuse_impossible(spec: CampaignSpec, ref: str, tree: SourceTree) -> None:
    """Refuse what no rollout or proposal of this version could work with, before anything is spent."""
    config = tree.config
    if config.command is not None:
        raise HarnessError(f"seed {ref!r}: harness.toml: command: only harnesses with an entry can be run: give entry")
    if config.requirements:
        raise HarnessError(
            f"seed {ref!r}: harness.toml: requirements: sandboxes have the standard library alone: put the source of "
            f"{config.requirements[0]!r} into the harness"
        )
    if config.place != "harness":
        raise HarnessError(f'seed {ref!r}: harness.toml: place: only "harness" can be run')
    editable = narrow(config.editable, spec.scope)
    if not any(matches(path, editable) for path in tree):
        raise HarnessError(
            f"seed {ref!r}: none of its files may be changed in scope {spec.scope!r} (harness.toml: editable = "
            f'{list(config.editable)}); put its prompts into prompts/, or set scope = "harness"'
        )
