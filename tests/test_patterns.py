from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaharness.patterns import matches, narrow


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("**/*.py", ["a.py", "x/a.py", "x/y/a.py"], ["a.pyc", "a.txt", "x/py"]),
        ("prompts/**", ["prompts/a", "prompts/x/b.md"], ["prompts", "xprompts/a", "x/prompts/a"]),
        ("*.md", ["a.md"], ["x/a.md"]),
        ("src/**/t?.py", ["src/t1.py", "src/x/y/t2.py"], ["src/t.py", "src/t12.py", "t1.py"]),
        ("**", ["a", "x/y"], []),
        ("a[b].py", ["a[b].py"], ["ab.py"]),
        ("x/**/y", ["x/y", "x/1/2/y"], ["x/1/2/z"]),
    ],
)
def test_patterns(pattern: str, yes: list[str], no: list[str]) -> None:
    assert [path for path in yes if not matches(path, [pattern])] == []
    assert [path for path in no if matches(path, [pattern])] == []


@pytest.mark.parametrize(
    ("editable", "narrowed"),
    [
        (("**/*.py", "prompts/**"), ("prompts/**/*.py", "prompts/**")),
        (("harness.py", "*.md"), ()),
        (("**",), ("prompts/**",)),
        (("prompts/system.md",), ("prompts/system.md",)),
    ],
)
def test_the_scope_prompts_keeps_what_lies_below_prompts(editable: tuple[str, ...], narrowed: tuple[str, ...]) -> None:
    assert narrow(editable, "prompts") == narrowed
    assert narrow(editable, "harness") == editable


@settings(deadline=None)
@given(st.lists(st.sampled_from(["**", "*.py", "prompts", "a*", "?"]), min_size=1, max_size=4).map("/".join))
def test_narrowing_never_widens(pattern: str) -> None:
    for path in ("prompts/a.py", "prompts/x/y.py", "a.py", "x/prompts/a.py", "prompts", "prompts/a"):
        if matches(path, narrow([pattern], "prompts")):
            assert path.startswith("prompts/")
            assert matches(path, [pattern])


def test_no_pattern_is_slow() -> None:
    started = time.process_time()
    assert not matches("a" * 200 + "/b", ["*a" * 12 + "/c", "**/" * 20 + "x"])
    assert time.process_time() - started < 2
