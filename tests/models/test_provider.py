"""What HTTP backends share."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaharness.models.provider import ApiKey, cut_at_stop, one_line, retry_after_s, shown_url


def test_a_key_never_shows_itself() -> None:
    key = ApiKey("MY_KEY", "sk-secret")
    assert "secret" not in f"{key} {key!r} {[key]}"
    assert key.scrub("bad key sk-secret!") == "bad key ***!"
    assert ApiKey("MY_KEY", "").scrub("text") == "text"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
    ],
)
def test_retry_after(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after_s(headers) == expected


def test_retry_after_as_a_date() -> None:
    found = retry_after_s({"retry-after": formatdate(time.time() + 60, usegmt=True)})
    assert found is not None
    assert 50 < found <= 60


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://api.example/v1/", "https://api.example/v1"),
        ("https://user:pass@api.example:8443/v1?key=x#y", "https://api.example:8443/v1"),
        ("http://[::1]:8080/v1", "http://[::1]:8080/v1"),
    ],
)
def test_urls_are_shown_without_secrets(url: str, expected: str) -> None:
    assert shown_url(url) == expected


@given(st.text(), st.lists(st.text(max_size=3), max_size=5))
def test_nothing_that_stops_is_left(text: str, stop: list[str]) -> None:
    cut, found = cut_at_stop(text, stop)
    assert text.startswith(cut)
    assert found == any(mark and mark in text for mark in stop)
    assert found == (cut != text)
    if found:
        assert any(mark and text[len(cut) :].startswith(mark) for mark in stop)


@given(st.text(), st.integers(1, 50))
def test_one_line(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert len(line.splitlines()) <= 1
