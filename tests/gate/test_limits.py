from __future__ import annotations

from metaharness.gate.limits import check_scope, check_text
from tests.gate.support import TOML, tree


def test_only_editable_files_may_change() -> None:
    base = tree(files={"notes.md": "old", "data.csv": "1"})
    changed = tree("x = 1\n", files={"notes.md": "new", "prompts/a.md": "p", "extra.csv": "2"})
    findings = check_scope(changed, base, ["**/*.py", "prompts/**"])
    assert [str(finding) for finding in findings] == [
        "scope: data.csv: removed, but only this is editable: **/*.py, prompts/**",
        "scope: extra.csv: added, but only this is editable: **/*.py, prompts/**",
        "scope: notes.md: changed, but only this is editable: **/*.py, prompts/**",
    ]
    assert all(finding.fatal for finding in findings)


def test_harness_toml_never_may() -> None:
    (finding,) = check_scope(tree(toml=TOML + "# x\n"), tree(), ["**"])
    assert str(finding) == "scope: harness.toml: a proposal never changes this file"


def test_nothing_editable() -> None:
    (finding,) = check_scope(tree("x = 1\n"), tree(), [])
    assert finding.message.endswith("editable: nothing")


def test_binary_files_are_flagged() -> None:
    findings = check_text(tree(files={"prompts/a.bin": b"\0\1", "prompts/b.txt": b"\xff", "prompts/c.txt": "é"}))
    assert [(finding.path, finding.fatal) for finding in findings] == [
        ("prompts/a.bin", False),
        ("prompts/b.txt", False),
    ]
