from __future__ import annotations

import threading
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaharness.gate.parse import MAX_PYTHON_BYTES, parse_tree
from tests.gate.support import HARNESS, tree


def test_all_python_files_are_parsed() -> None:
    parsed = parse_tree(tree(files={"lib/a.py": "x = 1\n", "notes.txt": "(("}))
    assert sorted(parsed.modules) == ["harness.py", "lib/a.py"]
    assert parsed.findings == ()


@pytest.mark.parametrize(
    ("source", "line", "message"),
    [
        ("x = 1\ndef f(:\n", 2, "syntax error: invalid syntax"),
        ("if True:\nx = 1\n", 2, "syntax error: expected an indented block after 'if' statement on line 1"),
        ("x = '\0'\n", None, "source code"),
        (b"x = 1\ny = '\xff'\n", 2, "not UTF-8"),
        (b"# coding: latin-1\nx = '\xe9'\n", 1, "declares the encoding iso-8859-1; use UTF-8"),
        (b"# coding: utf-7\nx = 1\n", 1, "declares the encoding utf-7; use UTF-8"),
        (b"# coding: klingon\nx = 1\n", 1, "declares no known encoding: unknown encoding: klingon; use UTF-8"),
        ("x = " + "-" * 300 + "1\n", 1, "nested over 150 levels deep"),
        ("x = a" + ".b" * 100_000 + "\n", None, "cannot be parsed: "),
        ("x = " + "(" * 5000 + ")" * 5000, 1, "syntax error: too many nested parentheses"),
        ("#" * (MAX_PYTHON_BYTES + 1), None, f"{MAX_PYTHON_BYTES + 1} bytes; a Python file has at most"),
        ("x = 1" + "0" * 5000 + "\n", 1, "Exceeds the limit"),
    ],
)
def test_what_does_not_parse_names_file_and_line(source: str | bytes, line: int | None, message: str) -> None:
    parsed = parse_tree(tree(files={"lib/a.py": source}))
    (finding,) = parsed.findings
    assert (finding.check, finding.path, finding.line, finding.fatal) == ("parse", "lib/a.py", line, True)
    assert message in finding.message
    assert "lib/a.py" not in parsed.modules


def test_a_byte_order_mark_is_fine() -> None:
    assert parse_tree(tree(files={"a.py": b"\xef\xbb\xbfx = 1\n"})).findings == ()


def test_no_warning_reaches_anybody_and_filters_stay() -> None:
    odd = tree(HARNESS + '\nPATTERN = "\\d"\nodd = 1 is 1\n')
    before = list(warnings.filters)
    threads = [threading.Thread(target=parse_tree, args=(odd,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert warnings.filters == before
    assert parse_tree(odd).findings == ()


@settings(deadline=None)
@given(st.binary() | st.text(alphabet="ab=():\n \t'\"\\#-.*[]{},", max_size=60).map(str.encode))
def test_any_bytes_parse_or_give_a_finding(source: bytes) -> None:
    parsed = parse_tree(tree(files={"lib/a.py": source}))
    assert ("lib/a.py" in parsed.modules) != bool(parsed.findings)
