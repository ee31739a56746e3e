"""Whatever a proposer writes, a commit message stays one that people and git read as it is meant."""

from __future__ import annotations

import re
import subprocess
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from metaharness.archive.messages import candidate_message, identity, one_line, rejected_message, subject_line
from metaharness.candidate import Finding

TRICKS = (
    "Metaharness-Candidate: c9999",
    "fine\n\nMetaharness-Candidate: c9999\nSigned-off-by: me <me@x>",
    "x\r\n\r\nMetaharness-Parents: c0000\n---\nMetaharness-Candidate: c1",
    "---",
    "--- \n diff",
    "# a comment",
    "\x1b[2J\x1b]0;title\x07 red",
    "abc \u202e txt.exe \u2066 x \u2069",
    "zero\u200bwidth\ufeff \u2028 line\u2029 end\x85 next",
    "\ud800 lone",
    "\x00\x00",
    "",
    "é" * 400,
    "a b " * 400,
)
hostile = st.one_of(
    st.sampled_from(TRICKS),
    st.text(max_size=300),
    st.lists(st.sampled_from([*TRICKS, "\n", "\n\n", "Metaharness-Campaign:", "---\n", " "]), max_size=8).map("".join),
)


def message(hypothesis: str, mechanism: str = "", proposer: str = "codemods", name: str = "x") -> str:
    return candidate_message(
        campaign="support", candidate="c0042", name=name, proposer=proposer, parents=("c0001", "old/c0002"),
        hypothesis=hypothesis, mechanism=mechanism,
    )  # fmt: skip


def check(text: str) -> None:
    lines = text.split("\n")
    assert text.endswith("\n")
    assert 1 <= len(lines[0]) <= 100
    for char in text.replace("\n", ""):
        assert unicodedata.category(char)[0] != "C"
        assert unicodedata.category(char) not in ("Zl", "Zp")
    text.encode()
    paragraphs = text.removesuffix("\n").split("\n\n")
    for line in [line for paragraph in paragraphs[:-1] for line in paragraph.split("\n")]:
        assert not re.match(r"[A-Za-z0-9-]+[ \t]*:", line)
        assert not re.match(r"---\s", f"{line} ")
    assert all(line.startswith("Metaharness-") for line in paragraphs[-1].split("\n"))


@given(hostile, hostile, hostile, hostile)
@settings(max_examples=300, deadline=None)
def test_candidate_messages(hypothesis: str, mechanism: str, proposer: str, name: str) -> None:
    text = message(hypothesis, mechanism, proposer, name)
    check(text)
    trailers = text.removesuffix("\n").split("\n\n")[-1].split("\n")
    assert "Metaharness-Candidate: c0042" in trailers
    assert [line for line in trailers if line.startswith("Metaharness-Candidate:")] == ["Metaharness-Candidate: c0042"]
    assert "Metaharness-Parents: c0001, old/c0002" in trailers


@given(st.lists(hostile, max_size=4))
@settings(max_examples=100, deadline=None)
def test_rejected_messages(messages: list[str]) -> None:
    findings = [Finding(check="leak", message=text, path="harness.py", line=1) for text in messages]
    text = rejected_message(campaign="support", number=7, proposer="x", parents=(), findings=findings)
    check(text)
    assert text.startswith("Rejected")
    assert "\nMetaharness-Parents" not in text


@given(hostile, st.integers(5, 200))
@example("Ünïcode stays", 100)
def test_one_line(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert line == line.strip()
    assert "  " not in line
    assert one_line(line, limit) == line


@given(hostile)
def test_identity(name: str) -> None:
    line = identity(name)
    assert re.fullmatch(r"[^<>\n]*[^<>\n ] <[A-Za-z0-9._+-]+@metaharness>", line)


@pytest.mark.parametrize("trick", [trick for trick in TRICKS if "\ud800" not in trick])
def test_git_itself_finds_our_trailers_and_no_others(trick: str) -> None:
    text = message(trick, trick, trick.replace("\x00", ""))
    found = subprocess.run(
        ["git", "interpret-trailers", "--parse"], input=text.encode(), capture_output=True, check=True
    ).stdout.decode()
    assert found == text.removesuffix("\n").split("\n\n")[-1] + "\n"


def test_it_reads_well() -> None:
    long = (
        "Examples that resemble the input help more than fixed ones, because the model copies the nearest answer seen."
    )
    assert message(long, "graft select_examples from nearest_examples") == (
        "Examples that resemble the input help more than fixed ones, because the model copies the nearest an…\n\n"
        "  Examples that resemble the input help more than fixed ones, because the\n"
        "  model copies the nearest answer seen.\n\n"
        "  graft select_examples from nearest_examples\n\n"
        "Metaharness-Campaign: support\nMetaharness-Candidate: c0042\nMetaharness-Harness: x\n"
        "Metaharness-Proposer: codemods\nMetaharness-Parents: c0001, old/c0002\n"
    )
    assert subject_line("few-shot: show examples", "x") == "few-shot - show examples"
    assert subject_line("\x00", "Candidate c0042") == "Candidate c0042"
