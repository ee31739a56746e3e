from __future__ import annotations

import json
from pathlib import Path

import pytest

from metaharness.errors import ArchiveError
from metaharness.trajectory import Trajectory, read_trajectory, write_durably

GOOD = json.loads((Path(__file__).parent / "golden" / "trajectory.json").read_text())


@pytest.mark.parametrize("version", [f"ATIF-v1.{minor}" for minor in range(9)])
def test_versions_that_are_read(version: str) -> None:
    assert Trajectory.model_validate({**GOOD, "schema_version": version})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": "ATIF-v1.9"}, "is not ATIF-v1.0 to ATIF-v1.8"),
        ({"schema_version": "1.7"}, "is not ATIF-v1.0 to ATIF-v1.8"),
        ({"steps": []}, "steps"),
        ({"surprise": 1}, "surprise: unknown field"),
        ({"steps": [{**GOOD["steps"][0], "step_id": 2}]}, "step_id must count 1, 2"),
        ({"steps": [{**GOOD["steps"][0], "model_name": "m"}]}, "model_name is only allowed in agent steps"),
        (
            {"steps": [{**GOOD["steps"][0], "observation": {"results": [{"source_call_id": "c1"}]}}]},
            "names no tool call of this step",
        ),
    ],
)
def test_what_is_no_atif_is_named(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({**GOOD, **change}))
    with pytest.raises(ArchiveError) as caught:
        read_trajectory(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="cannot be read"):
        read_trajectory(tmp_path / "absent.json")
    (tmp_path / "torn.json").write_text('{"schema_ver')
    with pytest.raises(ArchiveError, match="not an ATIF trajectory"):
        read_trajectory(tmp_path / "torn.json")


def test_durable_writes_replace_whole_files(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file.json"
    write_durably(target, b"one")
    write_durably(target, b"two")
    assert target.read_bytes() == b"two"
    assert [path.name for path in target.parent.iterdir()] == ["file.json"]
