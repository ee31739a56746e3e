from __future__ import annotations

import pytest

from metaharness.errors import UserError
from metaharness.registry import Registry

REGISTRY = Registry("scorer", "metaharness.no_such_group", {"path": "pathlib:Path", "broken": "no_such_module:X"})


def test_names_are_listed_without_importing() -> None:
    assert REGISTRY.targets() == {"path": "pathlib:Path", "broken": "no_such_module:X"}


def test_a_name_or_a_target_is_loaded() -> None:
    from pathlib import Path, PurePath

    assert REGISTRY.load("path") is Path
    assert REGISTRY.load("pathlib:PurePath") is PurePath


def test_an_unknown_name_comes_with_the_nearest_and_all_known() -> None:
    with pytest.raises(UserError, match=r"unknown scorer 'pth'; did you mean 'path'\? \(known: broken, path\)"):
        REGISTRY.load("pth")


def test_a_broken_plug_in_is_named() -> None:
    with pytest.raises(UserError, match=r"scorer 'broken' \(no_such_module:X\) cannot be loaded"):
        REGISTRY.load("broken")
    with pytest.raises(UserError, match="cannot be loaded"):
        REGISTRY.load("pathlib:Nothing")
