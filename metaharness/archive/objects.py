"""Loose git objects, written durably and many at a time."""

from __future__ import annotations

import hashlib
import os
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from metaharness.errors import ArchiveError

MAX_THREADS = 8
MOVE_ATTEMPTS = 10


class ObjectWriter:
    """Writes the objects of one commit; they are in the repository, durable, when its `with` block has ended.

    Their files are synced side by side, which a journalling file system turns into one or two commits of its journal:
    about a third of the time that one after the other takes. When the block fails nothing is left behind.
    """

    def __init__(self, git_dir: Path) -> None:
        self._objects = git_dir / "objects"
        self._pending: dict[Path, Path] = {}

    def write(self, kind: str, data: bytes) -> str:
        """Write an object, unfiltered, and return its id; one that is there is left alone.

        Raises:
            ArchiveError: It cannot be written.
        """
        whole = b"%s %d\0" % (kind.encode(), len(data)) + data
        digest = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
        path = self._objects / digest[:2] / digest[2:]
        if path in self._pending or path.exists():
            return digest
        try:
            # git itself removes files of this name when they are left behind.
            descriptor, temporary = tempfile.mkstemp(prefix="tmp_obj_", dir=self._objects)
            self._pending[path] = Path(temporary)
            with os.fdopen(descriptor, "wb") as handle:
                handle.write(zlib.compress(whole, 1))
                handle.flush()
                os.fchmod(descriptor, 0o444)
        except OSError as error:
            raise ArchiveError(f"{path}: cannot be written: {error.strerror}") from error
        return digest

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._pending:
                self._publish()
        finally:
            for temporary in self._pending.values():
                with suppress(FileNotFoundError):
                    temporary.unlink()

    def _publish(self) -> None:
        try:
            if len(self._pending) == 1:
                _sync(*self._pending.values())
            else:
                with ThreadPoolExecutor(min(MAX_THREADS, len(self._pending))) as pool:
                    list(pool.map(_sync, self._pending.values()))
            for path, temporary in self._pending.items():
                _move(temporary, path)
        except OSError as error:
            raise ArchiveError(f"{self._objects}: cannot be written: {error.strerror}") from error


def _move(temporary: Path, path: Path) -> None:
    for attempt in range(1, MOVE_ATTEMPTS + 1):
        path.parent.mkdir(exist_ok=True)
        try:
            temporary.rename(path)
        except FileNotFoundError:
            # Packing removes a directory when it has emptied it, which may be the one just made.
            if attempt == MOVE_ATTEMPTS:
                raise
        else:
            return


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
