"""Path patterns of harness.toml's `editable`, and how a campaign's scope narrows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

PROMPTS = "prompts"


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Return whether a path matches one of the patterns.

    `**` stands for any number of directories (at the end: for everything below), `*` for characters of one name, `?`
    for one of them. Case counts.

    Args:
        path: POSIX path inside a tree.
        patterns: Patterns such as `**/*.py` or `prompts/**`.
    """
    parts = path.split("/")
    return any(_matches(parts, pattern.split("/")) for pattern in patterns)


def narrow(editable: Iterable[str], scope: Literal["harness", "prompts"]) -> tuple[str, ...]:
    """Return the patterns that may be edited under a scope; empty when the scope leaves nothing.

    `prompts` keeps what lies below `prompts/`: patterns that start there, and those for any directory (`**/*.md`) with
    `prompts/` put before them.

    Args:
        editable: `editable` of harness.toml.
        scope: `scope` of the campaign.
    """
    if scope == "harness":
        return tuple(editable)
    kept = (
        pattern if pattern.startswith(f"{PROMPTS}/") else f"{PROMPTS}/{pattern}" if pattern.startswith("**") else ""
        for pattern in editable
    )
    return tuple(dict.fromkeys(pattern for pattern in kept if pattern))


def _matches(parts: list[str], pattern: list[str]) -> bool:
    """Match name by name, keeping every number of names that the pattern may have used up so far."""
    reached = {0}
    for position, segment in enumerate(pattern):
        if segment == "**":
            # At the end it must stand for something; before that it may stand for nothing.
            least = 1 if position == len(pattern) - 1 else 0
            reached = set(range(min(reached) + least, len(parts) + 1)) if reached else set()
        else:
            reached = {at + 1 for at in reached if at < len(parts) and _name_matches(parts[at], segment)}
    return len(parts) in reached


def _name_matches(name: str, pattern: str) -> bool:
    """Match one name; on a mismatch only the last star can take more, so that the time is at most their product."""
    at = position = 0
    star = resume = -1
    while at < len(name):
        if position < len(pattern) and pattern[position] == "*":
            star, resume = position, at
            position += 1
        elif position < len(pattern) and pattern[position] in ("?", name[at]):
            at += 1
            position += 1
        elif star >= 0:
            resume += 1
            at, position = resume, star + 1
        else:
            return False
    return not pattern[position:].strip("*")
