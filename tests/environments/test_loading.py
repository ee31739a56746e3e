from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaharness.environments import bundled_environments, load_environment
from metaharness.environments.native import NativeEnvironment
from metaharness.errors import EnvironmentFormatError, UserError
from metaharness.protocols import Environment
from metaharness.task import Split
from tests.environments.support import check_one_line, write_environment


def test_bundled_environments_load() -> None:
    names = bundled_environments()
    assert "support_intents" in names
    for name in names:
        assert load_environment(name, base=Path("/nowhere")).info.name == name


def test_paths(tmp_path: Path) -> None:
    write_environment(tmp_path / "mine")
    for ref, base in (
        ("mine", tmp_path),
        ("./mine", tmp_path),
        (str(tmp_path / "mine"), Path()),
        ("native:mine", tmp_path),
    ):
        assert load_environment(ref, base=base).info.name == "colours"


def test_a_class() -> None:
    environment = load_environment("tests.environments.support:ToyEnvironment", base=Path())
    assert environment.info.name == "toy"


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        ("support_intent", "unknown environment 'support_intent'; did you mean 'support_intents'? (known: "),
        ("habor:tasks", "unknown environment 'habor:tasks'"),
        ("./absent", "absent/env.toml: no such file"),
        ("absent/dir", "absent/dir/env.toml: no such file"),
        ("native:absent", "absent/env.toml: no such file"),
        ("~no-such-user-here/x", "environment '~no-such-user-here/x': "),
        ("tests.environments.support:NoEnvironment", "has not the methods of an environment (info, tasks, open)"),
        ("tests.environments.support:BrokenEnvironment", "cannot be made: RuntimeError: no luck"),
        ("tests.environments.support:Absent", "cannot be loaded: module 'tests.environments.support' has no attribute"),
        ("x" * 5000, "unknown environment"),
        ("a\0b", "unknown environment"),
    ],
)
def test_errors(tmp_path: Path, ref: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        load_environment(ref, base=tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@settings(deadline=None)
@given(st.text(min_size=1, max_size=30))
def test_any_reference_gives_an_environment_or_one_line(ref: str) -> None:
    try:
        load_environment(ref, base=Path("/nowhere"))
    except UserError as error:
        check_one_line(error)


def load(directory: Path, *limits: int | None) -> Environment:
    train, val, test = limits
    return load_environment(str(directory), base=Path(), limits=(train, val, test))


def test_limits_keep_the_same_tasks_in_file_order(tmp_path: Path) -> None:
    write_environment(tmp_path)
    whole = load_environment(str(tmp_path), base=Path())
    some = load(tmp_path, 3, None, 1)
    kept = [task.id for task in some.tasks(Split.TRAIN)]
    assert len(kept) == 3
    assert kept == [task.id for task in whole.tasks(Split.TRAIN) if task.id in kept]
    assert kept == [task.id for task in load(tmp_path, 3, 1, None).tasks(Split.TRAIN)]
    assert set(kept) < {task.id for task in load(tmp_path, 4, None, None).tasks(Split.TRAIN)}
    assert (len(some.tasks(Split.VAL)), len(some.tasks(Split.TEST))) == (2, 1)


async def test_limits_change_the_digest_only_where_they_cut(tmp_path: Path) -> None:
    write_environment(tmp_path)
    whole = load_environment(str(tmp_path), base=Path())
    uncut = load(tmp_path, 8, 100, None)
    assert isinstance(uncut, NativeEnvironment)
    assert uncut.info.digest == whole.info.digest
    digests = {load(tmp_path, *limits).info.digest for limits in ((3, None, None), (4, None, None), (None, 1, None))}
    assert len(digests | {whole.info.digest}) == 4
    cut = load(tmp_path, 3, None, None)
    assert cut.info.name == "colours"
    session = await cut.open(cut.tasks(Split.VAL)[0])
    assert (await session.score("red")).reward == 1


def test_a_broken_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "env.toml").write_text("x")
    with pytest.raises(EnvironmentFormatError, match=r"env\.toml: not valid TOML"):
        load_environment(str(tmp_path), base=Path())
