from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import os
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaharness.runtime.frames import (
    MAX_FRAME_BYTES,
    MAX_FRAME_ITEMS,
    AsyncFrameReader,
    FrameDecoder,
    FrameError,
    FrameReader,
    decode,
    encode,
    valid_json,
    valid_text,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)
messages = st.dictionaries(st.text(max_size=8), json_values, max_size=5)
any_text = st.text(st.characters(exclude_categories=()))


def framed(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(ends)]


@given(st.lists(messages, max_size=5), st.lists(st.integers(0, 10_000), max_size=10))
def test_messages_survive_however_the_stream_is_cut(sent: list[dict[str, Any]], places: list[int]) -> None:
    decoder = FrameDecoder()
    received = [message for part in cut(b"".join(map(encode, sent)), places) for message in decoder.feed(part)]
    assert received == sent
    assert decoder.pending_bytes == 0
    decoder.finish()


@given(st.binary(max_size=200))
def test_any_bytes_are_messages_or_a_frame_error(data: bytes) -> None:
    decoder = FrameDecoder()
    with contextlib.suppress(FrameError):
        for message in decoder.feed(data):
            assert isinstance(message, dict)
        decoder.finish()
        assert decoder.pending_bytes == 0


@given(any_text)
def test_what_is_encoded_is_always_valid_utf8(text: str) -> None:
    message = decode(encode({"text": text})[4:])
    assert message["text"] == valid_text(text)
    assert message["text"].encode().decode() == message["text"]
    assert valid_text(valid_text(text)) == valid_text(text)


def test_lone_surrogates_are_replaced_and_pairs_are_joined() -> None:
    assert decode(rb'{"a\ud800": ["x\udfffy", {"b": "\ud83d\ude00"}]}') == {
        "a\ufffd": ["x\ufffdy", {"b": "\U0001f600"}]
    }
    assert valid_json(["\ud83d\ude00", 1, None]) == ["\U0001f600", 1, None]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"[1]", "not an object but list"),
        (b"null", "not an object but NoneType"),
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"a": NaN}', "NaN is not allowed"),
        (b'{"a": -Infinity}', "-Infinity is not allowed"),
        (b'{"a": ' + b"1" * 5000 + b"}", "not JSON"),
        (b"\xff\xfe", "not UTF-8: invalid start byte at byte 0"),
        (b"[" * 200_000, "nested too deeply"),
        (b"[" + b"0," * MAX_FRAME_ITEMS + b"0]", f"at most {MAX_FRAME_ITEMS}"),
    ],
)
def test_a_refused_payload_says_why(payload: bytes, reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        list(FrameDecoder().feed(framed(payload)))


def test_a_frame_that_announces_too_much_is_refused_before_it_comes() -> None:
    with pytest.raises(FrameError, match=f"{MAX_FRAME_BYTES + 1} bytes: at most {MAX_FRAME_BYTES}"):
        list(FrameDecoder().feed(struct.pack(">I", MAX_FRAME_BYTES + 1)))


def test_the_largest_frame_passes() -> None:
    frame = framed(json.dumps({"a": "x" * (MAX_FRAME_BYTES - 9)}).encode())
    assert len(frame) == MAX_FRAME_BYTES + 4
    decoder = FrameDecoder()
    received = [m for start in range(0, len(frame), 65536) for m in decoder.feed(frame[start : start + 65536])]
    assert len(received[0]["a"]) == MAX_FRAME_BYTES - 9


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"a": object()}, "not JSON: Object of type object"),
        ({"a": float("nan")}, "not JSON"),
        ({"a": {1, 2}}, "not JSON"),
        ({"a": "x" * MAX_FRAME_BYTES}, f"at most {MAX_FRAME_BYTES}"),
        ({"a": [0] * (MAX_FRAME_ITEMS + 1)}, f"at most {MAX_FRAME_ITEMS}"),
    ],
)
def test_what_cannot_become_a_frame_is_refused(message: dict[str, Any], reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        encode(message)


def test_a_circle_cannot_become_a_frame() -> None:
    circle: dict[str, Any] = {}
    circle["self"] = circle
    with pytest.raises(FrameError, match="not JSON"):
        encode(circle)


def test_the_blocking_reader_reads_a_pipe_to_its_end() -> None:
    read_fd, write_fd = os.pipe()
    os.write(write_fd, encode({"n": 1}) + encode({"n": 2}) + encode({"n": 3})[:6])
    os.close(write_fd)
    reader = FrameReader(functools.partial(os.read, read_fd))
    assert reader.next() == {"n": 1}
    assert reader.next() == {"n": 2}
    with pytest.raises(FrameError, match="ended inside a frame: 6 bytes"):
        reader.next()
    os.close(read_fd)


async def test_the_asyncio_reader_gives_whole_messages_before_a_broken_one() -> None:
    stream = asyncio.StreamReader()
    stream.feed_data(encode({"n": 1}) + encode({"n": 2}) + framed(b"[]"))
    stream.feed_eof()
    reader = AsyncFrameReader(stream.read)
    assert await reader.next() == {"n": 1}
    assert await reader.next() == {"n": 2}
    with pytest.raises(FrameError, match="not an object"):
        await reader.next()


async def test_the_end_between_frames_is_the_end() -> None:
    stream = asyncio.StreamReader()
    stream.feed_data(encode({}))
    stream.feed_eof()
    reader = AsyncFrameReader(stream.read)
    assert await reader.next() == {}
    assert await reader.next() is None
