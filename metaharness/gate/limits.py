"""Which files a proposal may change.

Sizes and paths are `SourceTree`'s own rules: no tree breaks them.
"""

from __future__ import annotations

from collections.abc import Sequence

from metaharness.candidate import Finding
from metaharness.patterns import matches
from metaharness.source import HARNESS_FILE, SourceTree


def check_scope(tree: SourceTree, base: SourceTree, editable: Sequence[str]) -> list[Finding]:
    """Return a fatal finding for every changed file that may not be changed.

    Args:
        tree: Files after the change.
        base: Files before it.
        editable: Path patterns that may be changed; harness.toml never may.
    """
    findings = []
    allowed = ", ".join(editable) or "nothing"
    for path in base.changed_paths(tree):
        if path == HARNESS_FILE:
            findings.append(Finding(check="scope", path=path, message="a proposal never changes this file"))
        elif not matches(path, editable):
            verb = "removed" if path not in tree else "changed" if path in base else "added"
            findings.append(Finding(check="scope", path=path, message=f"{verb}, but only this is editable: {allowed}"))
    return findings


def check_text(tree: SourceTree) -> list[Finding]:
    """Return a flag for every file that cannot be read as text: the leak scan is blind there."""
    return [
        Finding(check="text", path=path, message="not UTF-8 text: it cannot be scanned for leaks", fatal=False)
        for path, data in tree.items()
        if not _is_text(data)
    ]


def _is_text(data: bytes) -> bool:
    if b"\0" in data:
        return False
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
