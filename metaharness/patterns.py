"""Path patterns of harness.toml's `editable`, and how a campaign's scope narrows them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
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
    return any(_compiled(pattern).fullmatch(path) for pattern in patterns)


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


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = []
    segments = pattern.split("/")
    for position, segment in enumerate(segments):
        last = position == len(segments) - 1
        if segment == "**":
            parts.append(".+" if last else "(?:[^/]+/)*")
            continue
        # Repeated stars say nothing more, and would make matching slow.
        name = "".join(
            {"*": "[^/]*", "?": "[^/]"}.get(char) or re.escape(char) for char in re.sub(r"\*+", "*", segment)
        )
        parts.append(name if last else f"{name}/")
    return re.compile("".join(parts), re.DOTALL)
