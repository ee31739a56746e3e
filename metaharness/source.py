"""`SourceTree`: the files of a harness as a value, and `HarnessConfig`: its harness.toml."""

from __future__ import annotations

import difflib
import hashlib
import os
import stat
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from metaharness.errors import HarnessError
from metaharness.validation import first_error

MAX_FILE_BYTES = 1024 * 1024
MAX_TREE_BYTES = 8 * 1024 * 1024
MAX_FILES = 500
HARNESS_FILE = "harness.toml"
IGNORED_NAMES = frozenset(
    {".git", ".hg", ".svn", "__pycache__", ".venv", "venv", ".mypy_cache", ".ruff_cache", ".pytest_cache",
     "node_modules", ".DS_Store", ".env", ".idea", ".vscode"}
)  # fmt: skip
IGNORED_SUFFIXES = (".pyc", ".pyo", ".swp")


class HarnessConfig(BaseModel):
    """harness.toml (DESIGN of the harness contract: entry or command, what may be edited, requirements)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1]
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    description: str = Field(default="", max_length=500)
    entry: str | None = Field(default=None, pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
    command: tuple[str, ...] | None = Field(default=None, min_length=1)
    editable: tuple[str, ...] = ("**/*.py", "prompts/**")
    requirements: tuple[str, ...] = ()
    place: Literal["harness", "task"] = "harness"

    @model_validator(mode="after")
    def _one_way_in(self) -> HarnessConfig:
        if (self.entry is None) == (self.command is None):
            raise ValueError("give exactly one of entry and command")
        return self


def path_problem(path: str) -> str | None:
    """Return why `path` must not enter a tree, or None when it may.

    Refused: absolute paths, `.` and `..`, back slashes, control characters, invalid UTF-8, names over 200 bytes,
    every spelling of `.git` (any case, NTFS short names and streams, HFS ignorable characters).
    """
    if not path or len(path.encode("utf-8", "surrogatepass")) > 1000:
        return "empty or too long"
    if any("\ud800" <= c <= "\udfff" for c in path):
        return "not valid UTF-8"
    if "\\" in path or any(unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") for c in path):
        return "control or invisible characters, or a back slash"
    if path.startswith("/") or path != str(PurePosixPath(path)):
        return "not a plain relative path"
    for part in path.split("/"):
        if part in (".", ".."):
            return "not a plain relative path"
        if len(part.encode()) > 200:
            return "a name is too long"
        folded = part.casefold().rstrip(". ").split(":")[0].rstrip(". ")
        if folded == ".git" or folded.startswith("git~"):
            return "spells .git"
    return None


class SourceTree(Mapping[str, bytes]):
    """An immutable map from POSIX path to file content.

    Raises:
        HarnessError: A path or size breaks the limits.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        if len(files) > MAX_FILES:
            raise HarnessError(f"{len(files)} files: a harness has at most {MAX_FILES}")
        for path, data in files.items():
            if problem := path_problem(path):
                raise HarnessError(f"path {path[:80]!r}: {problem}")
            if len(data) > MAX_FILE_BYTES:
                raise HarnessError(f"{path}: {len(data)} bytes, at most {MAX_FILE_BYTES}")
        if sum(map(len, files.values())) > MAX_TREE_BYTES:
            raise HarnessError(f"the files have over {MAX_TREE_BYTES} bytes together")
        self._files = dict(sorted(files.items()))
        for path in self._files:
            for parent in PurePosixPath(path).parents:
                if str(parent) in self._files:
                    raise HarnessError(f"path {path!r}: {str(parent)!r} is a file and a directory")

    def __getitem__(self, path: str) -> bytes:
        return self._files[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SourceTree) and self._files == other._files

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"SourceTree({len(self)} files, {self.digest[:12]})"

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) over paths and contents."""
        digest = hashlib.sha256()
        for path, data in self._files.items():
            digest.update(f"{len(path.encode())}:{path}:{len(data)}:".encode())
            digest.update(data)
        return digest.hexdigest()

    @cached_property
    def config(self) -> HarnessConfig:
        """The parsed harness.toml.

        Raises:
            HarnessError: It is absent or not valid.
        """
        raw = self._files.get(HARNESS_FILE)
        if raw is None:
            raise HarnessError(f"no {HARNESS_FILE}: a harness needs one (`metaharness harness new` writes it)")
        try:
            return HarnessConfig.model_validate(tomllib.loads(raw.decode()))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise HarnessError(f"{HARNESS_FILE}: not valid TOML: {error}") from error
        except ValidationError as error:
            raise HarnessError(f"{HARNESS_FILE}: {first_error(error, HarnessConfig)}") from error

    def text(self, path: str) -> str:
        """Return a file as text, undecodable bytes replaced."""
        return self._files[path].decode("utf-8", "replace")

    def replace(self, changes: Mapping[str, bytes | None]) -> SourceTree:
        """Return a tree with files changed or added; None removes one."""
        merged: dict[str, bytes | None] = {**self._files, **changes}
        return SourceTree({path: data for path, data in merged.items() if data is not None})

    def changed_paths(self, other: SourceTree) -> list[str]:
        """Return the paths that differ between this tree and `other`, sorted."""
        return sorted(p for p in self._files.keys() | other.keys() if self._files.get(p) != other._files.get(p))

    def diff(self, other: SourceTree, context_lines: int = 3) -> str:
        """Return a unified diff from this tree to `other`."""
        chunks: list[str] = []
        for path in self.changed_paths(other):
            before, after = self._files.get(path), other._files.get(path)
            if any(b"\0" in data for data in (before or b"", after or b"")):
                chunks.append(f"Binary file {path} differs\n")
                continue
            lines = difflib.unified_diff(
                (before or b"").decode("utf-8", "replace").splitlines(keepends=True),
                (after or b"").decode("utf-8", "replace").splitlines(keepends=True),
                f"a/{path}" if before is not None else "/dev/null",
                f"b/{path}" if after is not None else "/dev/null",
                n=context_lines,
            )
            chunks.extend(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
        return "".join(chunks)

    def write_to(self, directory: Path) -> None:
        """Write all files below `directory` (made if absent) with mode 0644, directories 0755."""
        directory.mkdir(parents=True, exist_ok=True, mode=0o755)
        for path, data in self._files.items():
            target = directory / path
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            target.write_bytes(data)
            target.chmod(0o644)

    @classmethod
    def from_directory(cls, directory: Path, *, ignore: bool = True) -> SourceTree:
        """Read a directory without following links.

        Args:
            directory: Root of the harness.
            ignore: Leave out caches, editors' files, virtual environments, `.env` and `.git`.

        Raises:
            HarnessError: It is no directory, cannot be read, breaks a limit, or holds a link or special file.
        """
        return cls(dict(_read_files(directory, ignore=ignore)))


def _read_files(directory: Path, *, ignore: bool) -> Iterable[tuple[str, bytes]]:
    if not directory.is_dir():
        raise HarnessError(f"{directory}: not a directory")
    count = 0
    try:
        for root, names, files in os.walk(directory, followlinks=False):
            if ignore:
                names[:] = [n for n in names if n not in IGNORED_NAMES]
                files = [n for n in files if n not in IGNORED_NAMES and not n.endswith(IGNORED_SUFFIXES)]
            for name in [*names, *files]:
                path = Path(root, name)
                relative = path.relative_to(directory).as_posix()
                # One open file decides and is read: a swap between check and read gains nothing.
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
                try:
                    descriptor = os.open(path, flags)
                except OSError as error:
                    raise HarnessError(f"{relative!r}: a link or unreadable ({error.strerror})") from error
                with os.fdopen(descriptor, "rb") if name in files else _closing(descriptor) as handle:
                    status = os.fstat(descriptor)
                    if stat.S_ISDIR(status.st_mode):
                        continue
                    if not stat.S_ISREG(status.st_mode) or handle is None:
                        raise HarnessError(f"{relative!r}: neither a file nor a directory")
                    if status.st_nlink > 1:
                        raise HarnessError(f"{relative!r}: a hard link")
                    count += 1
                    if count > MAX_FILES:
                        raise HarnessError(f"more than {MAX_FILES} files")
                    yield relative, handle.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise HarnessError(f"{directory}: cannot be read: {error.strerror}") from error


class _closing:  # noqa: N801 - reads as a context manager function
    """Close a bare descriptor (of a directory) on exit."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: Any) -> None:
        os.close(self._descriptor)
