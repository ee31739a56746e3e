from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from metaharness.errors import UserError
from metaharness.models.local.settings import LocalSettings, default_workers, server_directory


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory with a path short enough for a socket, which pytest's own is not."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="mh-") as path:
        yield Path(path)


def test_the_directory_is_private_and_the_same_for_all(short: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": str(short)}
    first = server_directory({"weights": "a"}, environ)
    assert first == server_directory({"weights": "a"}, environ)
    assert first != server_directory({"weights": "b"}, environ)
    assert first.parent == short / "metaharness"
    for directory in (first, first.parent):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_open_permissions_are_closed(short: Path) -> None:
    (short / "metaharness").mkdir()
    (short / "metaharness").chmod(0o755)
    server_directory({}, {"XDG_RUNTIME_DIR": str(short)})
    assert stat.S_IMODE((short / "metaharness").stat().st_mode) == 0o700


@pytest.mark.parametrize("bad", ["", "relative", "/absent/directory"])
def test_without_a_runtime_directory_the_temporary_one_serves(short: Path, bad: str) -> None:
    found = server_directory({}, {"XDG_RUNTIME_DIR": bad, "TMPDIR": str(short)})
    assert found.parent == short / f"metaharness-{os.getuid()}"


def test_a_directory_that_is_not_ours_is_refused(short: Path) -> None:
    (short / "elsewhere").mkdir()
    (short / f"metaharness-{os.getuid()}").symlink_to(short / "elsewhere")
    with pytest.raises(UserError, match=r"belongs to another user, or is no directory.*XDG_RUNTIME_DIR"):
        server_directory({}, {"TMPDIR": str(short)})
    assert not list((short / "elsewhere").iterdir())


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(short: Path) -> None:
    squatted = short / f"metaharness-{os.getuid()}"
    squatted.mkdir()
    os.chown(squatted, 65534, 65534)
    with pytest.raises(UserError, match="another user"):
        server_directory({}, {"TMPDIR": str(short)})


def test_a_path_too_long_for_a_socket_is_passed_over(short: Path) -> None:
    long = short / ("x" * 80)
    long.mkdir()
    found = server_directory({}, {"XDG_RUNTIME_DIR": str(long), "TMPDIR": str(short)})
    assert found.parent == short / f"metaharness-{os.getuid()}"
    with pytest.raises(UserError, match="too long for a socket"):
        server_directory({}, {"TMPDIR": str(long)})


def test_settings_are_checked() -> None:
    with pytest.raises(UserError, match="slots must be at least 1"):
        LocalSettings(slots=0)
    assert 1 <= default_workers() <= 4


def test_the_layout_is_no_part_of_the_identity() -> None:
    few, many = LocalSettings(workers=1, slots=1), LocalSettings(workers=2, slots=4)
    assert few.identity() == many.identity()
    assert few.layout() != many.layout()
    assert LocalSettings(context_tokens=512).identity() != few.identity()
