"""The stage: host directories that sandboxes see, one a digest, written once."""

from __future__ import annotations

import functools
import os
import py_compile
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import metaharness.runtime
from metaharness.source import SourceTree

_START = """\
from metaharness.runtime.worker import main

if __name__ == "__main__":
    main()
"""


@functools.cache
def runtime_tree() -> SourceTree:
    """Return what is copied into every sandbox: `runtime/` alone, as `metaharness.runtime`, and how to start it."""
    # Read plainly: installers may have linked the package's files, which a harness's files must not be.
    source = Path(metaharness.runtime.__file__).parent
    files = {
        f"metaharness/runtime/{path.relative_to(source).as_posix()}": path.read_bytes() for path in source.rglob("*.py")
    }
    return SourceTree({"__main__.py": _START.encode(), "metaharness/__init__.py": b"", **files})


def runtime_digest() -> str:
    """Return the digest of the runtime that runs in sandboxes; part of the key of a fit."""
    return runtime_tree().digest


class Stage:
    """Writes trees below a directory, each once, whole or not at all.

    Args:
        root: The directory; its parents must let the sandboxes' user through.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def harness(self, tree: SourceTree) -> Path:
        """Return the directory that holds a harness."""
        return self._put(f"harness-{tree.digest}", tree)

    def runtime(self) -> Path:
        """Return the directory that holds the runtime, compiled for this Python (another one compiles for itself)."""
        return self._put(f"runtime-{runtime_digest()}", runtime_tree(), _compile)

    def _put(self, name: str, tree: SourceTree, finish: Callable[[Path], None] | None = None) -> Path:
        target = self._root / name
        if target.is_dir():
            return target
        self._root.mkdir(parents=True, exist_ok=True)
        self._root.chmod(0o755)
        draft = self._root / f".{name}.{uuid.uuid4().hex}"
        try:
            tree.write_to(draft)
            if finish is not None:
                finish(draft)
            _settle(draft)
            try:
                draft.rename(target)
            except OSError:
                if not target.is_dir():  # else another process was quicker, with the same content
                    raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return target


def _compile(directory: Path) -> None:
    # Unchecked: the directory is named by its digest, so a source never changes under its compiled file.
    for path in sorted((directory / "metaharness").rglob("*.py")):
        py_compile.compile(str(path), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)


def _settle(directory: Path) -> None:
    """Make a tree readable for the sandboxes' user whatever the umask, and durable before it gets its name."""
    for root, _, files in os.walk(directory):
        Path(root).chmod(0o755)
        for name in files:
            path = Path(root, name)
            path.chmod(0o644)
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
