from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from metaharness.sandboxes.labels import Owner, is_leftover, label_of, labelled_processes, owner_of

NUMBERS = st.integers(0, 2**40)


@given(namespace=NUMBERS, pid=NUMBERS, start=NUMBERS)
def test_a_label_states_its_owner(namespace: int, pid: int, start: int) -> None:
    owner = Owner(pid_namespace=namespace, pid=pid, start_ticks=start)
    labels = owner.labels()
    first, second = next(labels), next(labels)
    assert first != second
    assert owner_of(first) == owner_of(second) == owner


@given(st.text(max_size=60))
def test_other_names_have_no_owner(name: str) -> None:
    if not name.startswith("metaharness-"):
        assert owner_of(name) is None
    assert owner_of(f"x{name}") is None


def test_names_that_only_look_similar_have_no_owner() -> None:
    for numbers in ("", "-1-2-3", "-1-2-3-4-5", "-1-2-3-4\n", "-a-2-3-4"):
        assert owner_of(f"metaharness{numbers}") is None


def test_we_are_alive_and_others_are_not() -> None:
    owner = Owner.current()
    assert not owner.is_dead()
    assert replace(owner, start_ticks=owner.start_ticks + 1).is_dead()  # the pid was reused
    assert replace(owner, pid=2**22 + 1).is_dead()
    elsewhere = replace(owner, pid=2**22 + 1, pid_namespace=owner.pid_namespace + 1)
    assert not elsewhere.is_dead()  # who could know
    assert not is_leftover("something-else")
    assert is_leftover(next(replace(owner, start_ticks=1).labels()))


def test_processes_are_found_by_their_label() -> None:
    label = next(Owner.current().labels())
    child = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()", "x", label], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"\n"
        assert label_of(child.pid) == label
        assert child.pid in set(labelled_processes())
        assert label_of(os.getpid()) == ""
    finally:
        child.communicate(b"\n")
    assert label_of(child.pid) == ""
