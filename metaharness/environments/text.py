"""Comparing texts: normal forms, words, and numbers as people write them."""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

MAX_NUMBER_CHARS = 200

# Scripts without spaces between words: each character counts as one.
_CHARS = r"\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"[{_CHARS}]|[^\W_{_CHARS}]+")
_SPACE = re.compile(r"\s+")
# What may stand around a number: space, quotes of any kind, emphasis.
_WRAPPING = " \"'`*\u201c\u201d\u2018\u2019"
# Punctuation that carries meaning at the edge of an answer: `5%`, `#12`, `@name`, `a/b`.
_KEPT = frozenset("%#@&/\\")
_NUMBER = re.compile(
    r"""
    (?P<sign>[-+]?) \s* (?:US\$|[$€£¥₹]|(?:USD|EUR|GBP|CHF|JPY)\b)? \s* (?P<inner>[-+]?)
    (?P<digits> (?: [0-9]{1,3}(?:,[0-9]{3})+ | [0-9]+ ) (?:\.[0-9]*)? | \.[0-9]+ )
    (?P<exponent> [eE][-+]?[0-9]{1,3} )?
    (?: \s* [/\u2044] \s* (?P<denominator>[0-9]{1,18}) )?
    (?P<unit> .*)
    """,
    re.VERBOSE,
)
# Words after a number that change its value or deny it: what follows is then no unit.
_NO_UNIT = frozenset(
    {"hundred", "thousand", "million", "billion", "trillion", "dozen", "k", "mn", "bn", "percentage"}
    | {"and", "or", "to", "plus", "minus", "times", "not", "point", "over", "by"}
)
_UNIT = re.compile(r"(?:[%°$€£¥₹]\s?)?(?:[^\W\d_]+(?:[/·][^\W\d_]+)*(?:\^?[23²³])?)?(?:\s[^\W\d_]+)?")


def normalise(text: str) -> str:
    """Return the normal form: Unicode NFKC, no case, single spaces, no punctuation or quotes around it.

    A sign or decimal point before a digit stays, and so do `%`, `#`, `@`, `&` and slashes: they carry meaning.
    """
    if text.isascii():
        folded = text.lower()
    else:
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    folded = " ".join(folded.split())
    start, end = 0, len(folded)
    while start < end and _is_edge(folded[start]):
        if folded[start] in "-.\u2212" and start + 1 < end and folded[start + 1].isdigit():
            break
        start += 1
    while end > start and _is_edge(folded[end - 1]):
        end -= 1
    return folded[start:end]


def _is_edge(char: str) -> bool:
    return char.isspace() or char in "`\u00b4" or (unicodedata.category(char)[0] == "P" and char not in _KEPT)


def words(text: str) -> list[str]:
    """Return the words: runs of letters and digits, NFKC, without case."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def parse_number(text: str) -> Fraction | None:
    """Return the number that a text is, exactly, or None when it is not just a number.

    Allowed around it: white space, quotes, `*` and backticks, a currency sign or code, thousands commas, one or two
    words of unit, a full stop. Decimals, exponents of up to three digits and fractions `3/4` are read; sums, sentences
    and number words (`5 million`, `five`) are not numbers.
    """
    if len(text) > MAX_NUMBER_CHARS:
        return None
    bare = _SPACE.sub(" ", text.replace("\u2212", "-")).strip(_WRAPPING)
    found = _NUMBER.fullmatch(bare)
    if found is None or (found["sign"] and found["inner"]) or not _is_unit(found["unit"]):
        return None
    value = Fraction(found["digits"].replace(",", "").rstrip(".") + (found["exponent"] or ""))
    if found["denominator"]:
        if int(found["denominator"]) == 0:
            return None
        value /= int(found["denominator"])
    return -value if "-" in (found["sign"], found["inner"]) else value


def _is_unit(rest: str) -> bool:
    unit = rest.removesuffix(".").strip(_WRAPPING)
    if not unit:
        return True
    if not (unit[0].isalpha() or unit[0] in "%°$€£¥₹") or any(c.isnumeric() and not c.isdigit() for c in unit):
        return False  # `5²` and `1½` are other numbers
    return _UNIT.fullmatch(unit) is not None and not _NO_UNIT & set(unit.casefold().split())


def shorten(text: str, limit: int = 80) -> str:
    """Return the text quoted, on one line, and cut in its middle when it is longer than `limit` characters."""
    if len(text) > limit:
        half = (limit - 3) // 2
        text = f"{text[:half]}...{text[-half:]}"
    return repr(text)
