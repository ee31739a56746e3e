"""Scorers that compare texts: `exact`, `normalised`, `token_f1`."""

from __future__ import annotations

import re
import string
from collections import Counter
from typing import Literal

from metaharness.environments.scorers.base import PlainScorer, right_or_wrong
from metaharness.environments.text import normalise, shorten
from metaharness.score import Score
from metaharness.task import Task

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class ExactScorer(PlainScorer):
    """`exact`: equal to the label, white space around both apart."""

    kind: Literal["exact"] = "exact"

    def judge(self, task: Task, expected: str, answer: str) -> Score:
        """Compare; the feedback says when only the form differs."""
        given = answer.strip()
        if given == expected.strip():
            return Score(reward=1.0)
        if normalise(given) == normalise(expected):
            return Score(
                reward=0.0,
                feedback=f"expected exactly {shorten(expected)}, got {shorten(answer)}: only the form differs",
            )
        offered = None if task.choices is None else given in task.choices
        return right_or_wrong(False, task, expected, answer, offered=offered)


class NormalisedScorer(PlainScorer):
    """`normalised`: equal to the label but for case, white space, Unicode form, surrounding punctuation and quotes."""

    kind: Literal["normalised"] = "normalised"

    def label_problem(self, task: Task) -> str | None:
        """A label must keep something, and choices must stay different."""
        if not normalise(task.answer or ""):
            return "nothing is left of the label without punctuation, so an empty answer would be rewarded"
        if task.choices is not None and len(set(map(normalise, task.choices))) < len(task.choices):
            return "two choices differ in case or punctuation only; use the scorer `exact`"
        return None

    def judge(self, task: Task, expected: str, answer: str) -> Score:
        """Compare normal forms."""
        given = normalise(answer)
        offered = None if task.choices is None else given in set(map(normalise, task.choices))
        return right_or_wrong(given == normalise(expected), task, expected, answer, offered=offered)


class TokenF1Scorer(PlainScorer):
    """`token_f1`: harmonic mean of precision and recall over words, without case, punctuation and articles.

    Source: Rajpurkar et al. 2016 (SQuAD), section 5.1 and its evaluation script.
    """

    kind: Literal["token_f1"] = "token_f1"

    def label_problem(self, task: Task) -> str | None:
        """A label must keep at least one word."""
        return None if f1_tokens(task.answer or "") else "no word is left of the label without articles and punctuation"

    def judge(self, task: Task, expected: str, answer: str) -> Score:  # noqa: ARG002 - words alone decide
        """Count shared words."""
        gold, given = f1_tokens(expected), f1_tokens(answer)
        shared = sum((Counter(gold) & Counter(given)).values())
        if not shared:
            return Score(
                reward=0.0,
                components={"precision": 0.0, "recall": 0.0},
                feedback=f"no word in common: expected {shorten(expected)}, got {shorten(answer)}",
            )
        precision, recall = shared / len(given), shared / len(gold)
        return Score(
            reward=2 * shared / (len(given) + len(gold)),
            components={"precision": precision, "recall": recall},
            feedback=""
            if precision == recall == 1
            else f"precision {precision:.2f}, recall {recall:.2f}: expected {shorten(expected)}, got {shorten(answer)}",
        )


def f1_tokens(text: str) -> list[str]:
    """Return the words that `token_f1` compares."""
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()
