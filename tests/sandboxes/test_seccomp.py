"""The filter, run by a small interpreter of classic BPF: what the kernel would decide on any machine."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaharness.sandboxes.seccomp import (
    ALLOWED_FAMILIES,
    ARCHITECTURES,
    DENIED,
    LAST_KNOWN,
    Architecture,
    filter_program,
)

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
MACHINES = sorted(ARCHITECTURES)


def decide(program: bytes, audit: int, number: int, *arguments: int) -> int:
    data = struct.pack("<IIQ6Q", number, audit, 0, *(*arguments, *[0] * (6 - len(arguments))))
    instructions = list(struct.iter_unpack("<HBBI", program))
    position = accumulator = 0
    while True:
        code, yes, no, value = instructions[position]
        position += 1
        if code == 0x20:
            accumulator = struct.unpack_from("<I", data, value)[0]
        elif code == 0x06:
            return int(value)
        else:
            holds = {0x15: accumulator == value, 0x25: accumulator > value, 0x45: bool(accumulator & value)}[code]
            position += yes if holds else no


def on(machine: str, number: int, *arguments: int) -> int:
    program = filter_program(machine)
    assert program is not None
    return decide(program, ARCHITECTURES[machine].audit, number, *arguments)


@pytest.mark.parametrize("machine", MACHINES)
def test_every_denied_call_is_refused(machine: str) -> None:
    column = ARCHITECTURES[machine].column
    for name, numbers in DENIED.items():
        number = numbers[column]
        if number is not None:
            assert on(machine, number) == ERRNO | errno.EPERM, name


@pytest.mark.parametrize("machine", MACHINES)
@given(audit=st.integers(0, 2**32 - 1), number=st.integers(0, 500))
def test_another_abi_is_killed(machine: str, audit: int, number: int) -> None:
    program = filter_program(machine)
    assert program is not None
    if audit != ARCHITECTURES[machine].audit:
        assert decide(program, audit, number) == KILL


@pytest.mark.parametrize("machine", MACHINES)
@given(number=st.integers(LAST_KNOWN + 1, 2**32 - 1))
def test_unknown_calls_do_not_exist(machine: str, number: int) -> None:
    assert on(machine, number) == ERRNO | errno.ENOSYS


def special(architecture: Architecture) -> set[int]:
    looked_at = ("clone", "clone3", "socket", "socketpair", "ioctl", "personality")
    return {getattr(architecture, name) for name in looked_at}


@pytest.mark.parametrize("machine", MACHINES)
@given(number=st.integers(0, LAST_KNOWN), arguments=st.lists(st.integers(0, 2**64 - 1), max_size=6))
def test_all_else_is_allowed_whatever_its_arguments(machine: str, number: int, arguments: list[int]) -> None:
    architecture = ARCHITECTURES[machine]
    denied = {numbers[architecture.column] for numbers in DENIED.values()}
    if number not in denied | special(architecture):
        assert on(machine, number, *arguments) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
@given(family=st.integers(0, 2**32 - 1), protocol=st.integers(0, 2**32 - 1), high=st.integers(0, 2**32 - 1))
def test_only_some_socket_families(machine: str, family: int, protocol: int, high: int) -> None:
    architecture = ARCHITECTURES[machine]
    allowed = family in ALLOWED_FAMILIES or (family == 16 and protocol == 0)
    # The kernel takes an int: what is in the upper half of the register must not matter.
    decision = on(machine, architecture.socket, family | high << 32, 1, protocol)
    assert decision == (ALLOW if allowed else ERRNO | errno.EAFNOSUPPORT)
    pair = on(machine, architecture.socketpair, family | high << 32, 1, protocol)
    assert pair == (ALLOW if family in ALLOWED_FAMILIES else ERRNO | errno.EAFNOSUPPORT)


@pytest.mark.parametrize("machine", MACHINES)
def test_arguments_that_are_looked_at(machine: str) -> None:
    architecture = ARCHITECTURES[machine]
    no = ERRNO | errno.EPERM
    assert on(machine, architecture.clone, 17) == ALLOW
    assert on(machine, architecture.clone, 0x3D0F00) == ALLOW  # a thread
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert on(machine, architecture.clone, 17 | flag) == no
    assert on(machine, architecture.clone3) == ERRNO | errno.ENOSYS
    assert on(machine, architecture.ioctl, 0, 0x5401) == ALLOW
    assert on(machine, architecture.ioctl, 0, 0x5412) == no
    assert on(machine, architecture.ioctl, 0, 0x5412 | 1 << 32) == no
    assert on(machine, architecture.ioctl, 0, 0x541C) == no
    assert on(machine, architecture.personality, 0) == ALLOW
    assert on(machine, architecture.personality, 0xFFFFFFFF) == ALLOW
    assert on(machine, architecture.personality, 0x0400000) == no


def test_a_machine_without_numbers_has_no_filter() -> None:
    assert filter_program("riscv64") is None


def test_a_filter_is_short_enough_for_the_kernel() -> None:
    for machine in MACHINES:
        program = filter_program(machine)
        assert program is not None
        assert len(program) // 8 < 4096
