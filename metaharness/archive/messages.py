"""Commit messages, for people to read: what a proposer wrote is made harmless first.

They are display alone; ledger and notes hold the truth.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence

from metaharness.candidate import Finding

SUBJECT_CHARS = 100
VALUE_CHARS = 200
LONGEST = 10_000
WIDTH = 76
TRAILER = re.compile(r"^([A-Za-z0-9-]+)[ \t]*:")
"""What git takes for a trailer at the start of a line."""


def one_line(text: str, limit: int) -> str:
    """Return text as one plain line of at most `limit` characters.

    White space and line ends of every kind become single spaces. Control, bidirectional, invisible and unassigned
    characters and surrogates are left out: none can move a terminal's cursor or turn a reader's text around.
    """
    kept = []
    for char in text:
        category = unicodedata.category(char)
        if char.isspace() or category in ("Zl", "Zp", "Zs"):
            kept.append(" ")
        elif not category.startswith("C"):
            kept.append(char)
    line = " ".join("".join(kept).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def subject_line(text: str, otherwise: str) -> str:
    """Return the first line of a message: at most 100 characters; never a trailer, a comment or a divider.

    Args:
        text: What it should say.
        otherwise: What it says when nothing of `text` is left.
    """
    # A leading dash or hash would be taken for a divider (`---`) or a comment.
    line = one_line(text, SUBJECT_CHARS).lstrip("-# ")
    line = TRAILER.sub(r"\1 -", line) or otherwise
    return one_line(line, SUBJECT_CHARS)


def body_text(paragraphs: Iterable[str]) -> str:
    """Return paragraphs, wrapped; every line is indented, so that none is a trailer or a divider."""
    return "\n\n".join(
        textwrap.fill(line, WIDTH, initial_indent="  ", subsequent_indent="  ", break_long_words=False)
        for paragraph in paragraphs
        if (line := one_line(paragraph, LONGEST))
    )


def build_message(subject: str, paragraphs: Iterable[str], trailers: Sequence[tuple[str, str]]) -> str:
    """Put a message together; trailers with an empty value are left out."""
    body = body_text(paragraphs)
    lines = [f"Metaharness-{name}: {line}" for name, value in trailers if (line := one_line(value, VALUE_CHARS))]
    return "\n\n".join(part for part in (subject, body, "\n".join(lines)) if part) + "\n"


def candidate_message(
    *,
    campaign: str,
    candidate: str,
    name: str,
    proposer: str,
    parents: Sequence[str],
    hypothesis: str,
    mechanism: str,
) -> str:
    """Return the message of a candidate's commit.

    Args:
        campaign: Name of the campaign.
        candidate: Candidate id.
        name: Name of the harness.
        proposer: Name of the proposer.
        parents: Ids of the lineage parents.
        hypothesis: Becomes the subject; stands in the body too when it is longer than that.
        mechanism: Stands in the body.
    """
    subject = subject_line(hypothesis, otherwise=f"Candidate {candidate}")
    whole = one_line(hypothesis, LONGEST)
    paragraphs = [mechanism] if len(whole) <= SUBJECT_CHARS else [whole, mechanism]
    trailers = [
        ("Campaign", campaign),
        ("Candidate", candidate),
        ("Harness", name),
        ("Proposer", proposer),
        ("Parents", ", ".join(parents)),
    ]
    return build_message(subject, paragraphs, trailers)


def rejected_message(
    *, campaign: str, number: int, proposer: str, parents: Sequence[str], findings: Sequence[Finding]
) -> str:
    """Return the message of a rejected proposal's commit: the first finding, then the others."""
    lines = [one_line(str(finding), LONGEST) for finding in findings]
    first = f"Rejected - {lines[0]}" if lines else "Rejected"
    subject = subject_line(first, otherwise="Rejected")
    paragraphs = lines[1:] if len(first) <= SUBJECT_CHARS else lines
    trailers = [
        ("Campaign", campaign),
        ("Proposal", str(number)),
        ("Proposer", proposer),
        ("Parents", ", ".join(parents)),
    ]
    return build_message(subject, paragraphs, trailers)


def identity(name: str) -> str:
    """Return `name <name@metaharness>` as a commit's author line wants it."""
    plain = re.sub(r"[<>]", "", one_line(name, 60)).strip(" .,:;\"'") or "unknown"
    mail = re.sub(r"[^A-Za-z0-9._+-]", "-", plain).strip(".") or "unknown"
    return f"{plain} <{mail}@metaharness>"
