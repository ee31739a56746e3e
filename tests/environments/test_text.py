from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaharness.environments.text import normalise, parse_number, shorten, words


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("42", 42), (" 42. ", 42), ("**42**", 42), ('"42"', 42), ("-$5", -5), ("$-5", -5), ("\u22123", -3), ("+7", 7),
        ("€1,234.50", Fraction("1234.5")), ("1,234,567", 1234567), (".5", Fraction(1, 2)), ("5.", 5),
        ("3/4", Fraction(3, 4)), ("1e3", 1000), ("5%", 5), ("5 %", 5), ("12 km/h", 12), ("5 m²", 5), ("5 m^2", 5),
        ("42 apples.", 42), ("42 red apples", 42), ("US$ 3", 3), ("3 USD", 3), ("20°C", 20),
    ],
)  # fmt: skip
def test_numbers_as_people_write_them(text: str, number: int | Fraction) -> None:
    assert parse_number(text) == number


@pytest.mark.parametrize(
    "text",
    [
        "", "five", "The answer is 42", "42 because it is", "5 million", "5k", "5 or six", "5 - 3", "5 = 5", "--5",
        "-$-5", "1,23", "1.2.3", "5²", "1½", "½", "1/0", "1e9999", "12:30", "2024-01-05", "5/", "$", "nan", "inf",
        "9" * 201, "5 minus", "5 dozen", "0x10", "1_000",
    ],
)  # fmt: skip
def test_what_is_not_just_a_number(text: str) -> None:
    assert parse_number(text) is None


@settings(deadline=None)
@given(st.text())
def test_any_text_can_be_read_as_a_number_or_not(text: str) -> None:
    parse_number(text)


@settings(deadline=None)
@given(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**12), max_value=10**12))
def test_decimals_are_exact(value: object) -> None:
    assert parse_number(f"{value:f}") == Fraction(str(value))


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ('"Billing."', "billing"), ("  two\n words ", "two words"), ("\uff26\uff35\uff2c\uff2c", "full"),
        ("**x**", "x"), ("(a)", "a"), ("-5", "-5"), ("- item", "item"), (".5", ".5"), ("5%", "5%"), ("C++", "c++"),
        ("#12", "#12"), ("…", ""), ("Straße", "strasse"), ("«oui»", "oui"), ("it's", "it's"),
    ],
)  # fmt: skip
def test_normal_forms(text: str, form: str) -> None:
    assert normalise(text) == form


@settings(deadline=None)
@given(st.text())
def test_the_normal_form_of_a_normal_form_is_itself(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once


def test_words() -> None:
    assert words("Where_is my `parcel`?\n中文") == ["where", "is", "my", "parcel", "中", "文"]


def test_shorten_stays_on_one_line() -> None:
    assert shorten("a\nb") == "'a\\nb'"
    assert len(shorten("x" * 1000)) <= 82
