"""The library of transformations of prompts; each returns another text, or None where it does not apply."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from string import Formatter

Transform = Callable[[str], str | None]

_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_INPUT_CUES = ("Input:", "Message:", "Text:", "Question:", "Q:")
_ANSWER_CUES = ("Answer:", "Label:", "Result:", "A:", "The answer is")


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrase:
    """A transformation.

    Attributes:
        name: Short name.
        why: Why it could help, in plain words.
        transform: The transformation.
        fits: Parts of a constant's name to which it is confined; empty for any.
        weight: How promising it is, 1 is usual.
    """

    name: str
    why: str
    transform: Transform
    fits: tuple[str, ...] = ()
    weight: float = 1.0

    def apply(self, name: str, text: str) -> str | None:
        """Return the changed text of a prompt; None where the transformation changes nothing or does not apply."""
        if self.fits and not any(part in name.upper() for part in self.fits):
            return None
        changed = self.transform(text)
        return None if changed is None or changed == text else changed


def _ending(sentence: str) -> Transform:
    def transform(text: str) -> str | None:
        if sentence.lower() in text.lower() or text.rstrip().endswith(":"):
            return None
        return f"{text.rstrip()} {sentence}".strip()

    return transform


def _opening(sentence: str) -> Transform:
    def transform(text: str) -> str | None:
        return None if sentence.lower() in text.lower() else f"{sentence} {text}".strip()

    return transform


def _first_sentence(text: str) -> str | None:
    parts = _SENTENCE.split(text.strip())
    return parts[0] if len(parts) > 1 else None


def _last_first(text: str) -> str | None:
    parts = _SENTENCE.split(text.strip())
    return " ".join([parts[-1], *parts[:-1]]) if len(parts) > 1 else None


def _politeness(text: str) -> str | None:
    short = re.sub(r"\b(?:please|kindly|you should|make sure to|be sure to)\b,?\s*", "", text, flags=re.IGNORECASE)
    return short[:1].upper() + short[1:] if short.strip() else None


def _cue(cues: tuple[str, ...], new: str) -> Transform:
    def transform(text: str) -> str | None:
        for cue in cues:
            if text.startswith(cue):
                return new + text[len(cue) :]
        return None

    return transform


def _below(text: str) -> str | None:
    match = re.fullmatch(r"([^\n{}:]+:) (\{\w+\})", text)
    return f"{match.group(1)}\n{match.group(2)}" if match else None


def _quoted(text: str) -> str | None:
    match = re.fullmatch(r"([^\n{}]*)(\{\w+\})", text)
    return f'{match.group(1)}"{match.group(2)}"' if match else None


def _is(new: str) -> Transform:
    def transform(text: str) -> str | None:
        return new if text != new else None

    return transform


_OPENINGS = ("INSTRUCTION", "PROGRAM", "SYSTEM", "TASK")
_ASKING = (*_OPENINGS, "CONCLUSION", "RETRY", "FORMAT")

LIBRARY: tuple[Phrase, ...] = (
    Phrase(name="one_word", why="it keeps the reply short", transform=_ending("Answer with one word."), fits=_ASKING),
    Phrase(
        name="answer_only",
        why="it keeps remarks out of the reply",
        transform=_ending("Give the answer alone, without any explanation."),
        fits=_ASKING,
    ),
    Phrase(
        name="restate_choices",
        why="it names the allowed answers once more",
        transform=_ending("Possible answers: {choices}."),
        fits=_OPENINGS,
    ),
    Phrase(
        name="choices_alone",
        why="a small model may follow a bare list of answers better than an instruction",
        transform=_is("Answers: {choices}."),
        fits=("INSTRUCTION",),
    ),
    Phrase(
        name="role",
        why="a role can set register and care",
        transform=_opening("You are a careful expert who answers exactly."),
        fits=_OPENINGS,
    ),
    Phrase(
        name="format_line",
        why="it asks for a fixed form",
        transform=_ending("Use the form of the examples."),
        fits=_OPENINGS,
    ),
    Phrase(
        name="no_instruction",
        why="the examples may say enough, and every token costs",
        transform=_is(""),
        fits=("INSTRUCTION",),
    ),
    Phrase(name="first_sentence", why="a shorter prompt distracts less", transform=_first_sentence),
    Phrase(name="last_first", why="another order puts weight elsewhere", transform=_last_first),
    Phrase(name="plain", why="politeness costs tokens", transform=_politeness),
    *(
        Phrase(
            name=f"cue_{cue.rstrip(':').lower()}",
            why="another cue may be more familiar to the model",
            transform=_cue(_INPUT_CUES, cue),
            weight=0.5,
        )
        for cue in _INPUT_CUES
    ),
    *(
        Phrase(
            name=f"cue_{cue.rstrip(':').lower().replace(' ', '_')}",
            why="another cue may be more familiar to the model",
            transform=_cue(_ANSWER_CUES, cue),
            weight=0.5,
        )
        for cue in _ANSWER_CUES
    ),
    Phrase(
        name="below_cue", why="a line of its own sets the input apart", transform=_below, fits=("INPUT", "QUESTION")
    ),
    Phrase(name="quoted", why="quotation marks set the input apart", transform=_quoted, fits=("INPUT", "QUESTION")),
    *(
        Phrase(
            name=f"neutral_{name}",
            why="another empty input calibrates otherwise",
            transform=_is(text),
            fits=("NEUTRAL",),
        )
        for name, text in (("empty", ""), ("mask", "[MASK]"), ("dots", "..."), ("hello", "Hello."), ("na", "N/A"))
    ),
    *(
        Phrase(name=f"thinking_{name}", why="another way to think aloud", transform=_is(text), fits=("THINKING",))
        for name, text in (
            ("briefly", "Think it through in one short sentence."),
            ("facts", "First list the facts that matter."),
            ("steps", "Let's think step by step."),
        )
    ),
)
"""All transformations."""


def fields_of(text: str) -> frozenset[str] | None:
    """Return the replacement fields of a format string; None when it is none."""
    try:
        return frozenset(name for _, name, _, _ in Formatter().parse(text) if name is not None)
    except ValueError:
        return None
