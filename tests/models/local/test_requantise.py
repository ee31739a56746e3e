from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaharness.errors import UserError
from metaharness.models.local.requantise import from_q4_1, q8_0, requantise

F32, F16, Q4_1, Q8_0 = 0, 1, 3, 8


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf(
    tensors: list[tuple[str, tuple[int, ...], int, bytes]], *, version: int = 3, pairs: bytes | None = None
) -> bytes:
    """Return a GGUF file with a few key-value pairs of every shape."""
    if pairs is None:
        pairs = (
            text("general.architecture") + struct.pack("<I", 8) + text("llama")
            + text("general.file_type") + struct.pack("<II", 4, 3)
            + text("tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bé")
            + text("scores") + struct.pack("<IIQ3f", 9, 6, 3, 1, 2, 3)
            + text("flag") + struct.pack("<IB", 7, 1)
        )  # fmt: skip
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), 5) + pairs
    offset, body = 0, b""
    for name, shape, kind, data in tensors:
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
        body += data + bytes(-len(data) % 32)
        offset = len(body)
    return head + bytes(-len(head) % 32) + body


def q4_1(values: int, seed: int) -> bytes:
    source = np.random.default_rng(seed)
    blocks = []
    for _ in range(values // 32):
        scale, least = source.normal(size=2).astype(np.float16)
        blocks.append(scale.tobytes() + least.tobytes() + source.integers(0, 256, 16).astype(np.uint8).tobytes())
    return b"".join(blocks)


def test_four_bit_tensors_become_eight_bit_ones_and_nothing_else_changes(tmp_path: Path) -> None:
    norm = np.arange(32, dtype=np.float32).tobytes()
    kept = bytes(range(34))
    packed = q4_1(96, seed=1)
    (tmp_path / "in").write_bytes(
        gguf([("norm", (32,), F32, norm), ("w", (32, 3), Q4_1, packed), ("embd", (32, 1), Q8_0, kept)])
    )
    requantise(tmp_path / "in", tmp_path / "out")
    expected = gguf(
        [
            ("norm", (32,), F32, norm),
            ("w", (32, 3), Q8_0, q8_0(from_q4_1(np.frombuffer(packed, np.uint8)))),
            ("embd", (32, 1), Q8_0, kept),
        ]
    )
    expected = expected.replace(
        text("general.file_type") + struct.pack("<II", 4, 3), text("general.file_type") + struct.pack("<II", 4, 7)
    )
    assert (tmp_path / "out").read_bytes() == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_four_bit_values() -> None:
    block = np.float16(0.5).tobytes() + np.float16(-1).tobytes() + bytes([0x21] * 16)
    values = from_q4_1(np.frombuffer(block, np.uint8))
    assert values.shape == (1, 32)
    assert values[0].tolist() == [-0.5] * 16 + [0.0] * 16


@given(st.lists(st.floats(-1000, 1000, width=32), min_size=32, max_size=32))
def test_eight_bit_values_are_within_half_a_step(values: list[float]) -> None:
    given_values = np.array([values], dtype=np.float32)
    block = q8_0(given_values)
    assert len(block) == 34
    scale = float(np.frombuffer(block[:2], np.float16)[0])
    steps = np.frombuffer(block[2:], np.int8).astype(np.float64)
    step = float(np.abs(given_values).max()) / 127
    # Half a step of rounding, and the scale itself is rounded to 16 bits (with a floor below the normal ones).
    assert np.all(np.abs(steps * scale - given_values[0]) <= step / 2 + step * 127 * 2**-11 + 127 * 2**-24 + 1e-6)


def test_a_block_of_zeros() -> None:
    assert q8_0(np.zeros((1, 32), np.float32)) == bytes(34)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no GGUF file"),
        (b"ELF!" + bytes(60), "is no GGUF file"),
        (gguf([], version=2), "GGUF version 2, expected 3"),
        (gguf([("w", (32, 1), F16, bytes(64))]), "tensor w has type 1"),
        (gguf([("w", (32, 1), Q4_1, q4_1(32, 0))])[:60], "is cut short or damaged"),
        (gguf([], pairs=text("general.alignment") + struct.pack("<II", 4, 64) + bytes(99)), "alignment"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "in").write_bytes(content)
    with pytest.raises(UserError, match=message):
        requantise(tmp_path / "in", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
