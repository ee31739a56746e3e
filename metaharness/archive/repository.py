"""A bare git repository, reached by plumbing alone and shielded from the user's git configuration."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from git import Git
from git.exc import GitCommandError

from metaharness.archive.objects import ObjectWriter
from metaharness.errors import ArchiveError, MissingDependency

OLDEST_GIT = (2, 32)
PACK_ABOVE_OBJECTS = 2_000

SETTINGS = {
    "core.hooksPath": os.devnull,
    "core.logAllRefUpdates": "false",
    "core.fsmonitor": "false",
    "core.attributesFile": os.devnull,
    "core.filesRefLockTimeout": "10000",
    "core.packedRefsTimeout": "10000",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "safe.directory": "*",
}
"""Settings that win over those of the repository; the user's and the system's are not read at all."""


class _Shielded(Git):
    """GitPython's command wrapper, without any `GIT_*` variable but ours (as inside a hook of the user's)."""

    def execute(self, command: Sequence[Any], **options: Any) -> Any:  # type: ignore[override]
        """Run a git command."""
        ours = self.environment()
        foreign = [name for name in os.environ if name.startswith("GIT_") and name not in ours]
        if foreign:
            command = ["env", *(word for name in foreign for word in ("-u", name)), *command]
        return super().execute(command, **options)


class Repository:
    """Objects and refs of one bare repository. To be used from one thread."""

    def __init__(self, git_dir: Path, *, pack_above_objects: int = PACK_ABOVE_OBJECTS) -> None:
        """Open a repository that is there.

        Args:
            git_dir: Its directory.
            pack_above_objects: Loose objects above which `pack_if_needed` packs them.
        """
        self.git_dir = git_dir.resolve()
        self._git = _Shielded(str(self.git_dir.parent))
        self._packing: subprocess.Popen[bytes] | None = None
        self._pack_above = pack_above_objects
        settings = {}
        for number, (name, value) in enumerate(SETTINGS.items()):
            settings[f"GIT_CONFIG_KEY_{number}"] = name
            settings[f"GIT_CONFIG_VALUE_{number}"] = value
        self._git.update_environment(
            GIT_DIR=str(self.git_dir),
            GIT_CONFIG_NOSYSTEM="1",
            GIT_CONFIG_SYSTEM=os.devnull,
            GIT_CONFIG_GLOBAL=os.devnull,
            GIT_ATTR_NOSYSTEM="1",
            GIT_NO_REPLACE_OBJECTS="1",
            GIT_TERMINAL_PROMPT="0",
            GIT_CONFIG_COUNT=str(len(SETTINGS)),
            **settings,
        )

    @classmethod
    def create(cls, git_dir: Path) -> Self:
        """Make an empty bare repository: whole or, when killed, not at all."""
        version = Git().version_info[:2]
        if version < OLDEST_GIT:
            raise MissingDependency(f"git {'.'.join(map(str, version))} is too old: install git 2.32 or newer")
        with tempfile.TemporaryDirectory(prefix=f".{git_dir.name}.", dir=git_dir.parent) as scratch:
            made = cls(Path(scratch) / "repository.git")
            made.run("init", "--bare", "--quiet", "--template=", "--object-format=sha1", "--initial-branch=main")
            Path(made.git_dir).rename(git_dir)
        return cls(git_dir)

    def run(self, *arguments: str, stdin: bytes | None = None) -> str:
        """Run `git` with arguments and return what it prints.

        Raises:
            ArchiveError: It failed; one line.
        """
        try:
            process = self._git.execute(["git", *arguments], as_process=True, istream=subprocess.PIPE)
            output, errors = process.proc.communicate(stdin or b"")
        except (GitCommandError, OSError) as error:
            raise ArchiveError(f"{self.git_dir}: git {arguments[0]}: {error}") from error
        if process.proc.returncode != 0:
            lines = errors.decode("utf-8", "replace").strip().splitlines() or [f"exit code {process.proc.returncode}"]
            raise ArchiveError(f"{self.git_dir}: git {arguments[0]}: {lines[-1].removeprefix('fatal: ')}")
        return str(output.decode("utf-8", "surrogateescape"))

    def find(self, name: str) -> str | None:
        """Return the id of the object that a ref or any other object name stands for, or None."""
        try:
            return _text(self._git.get_object_header(name)[0])
        except ValueError:
            return None

    def read(self, name: str, kind: str) -> bytes:
        """Return the content of an object.

        Raises:
            ArchiveError: There is none, or it is of another kind.
        """
        try:
            _, found, _, data = self._git.get_object_data(name)
        except ValueError as error:
            raise ArchiveError(f"{self.git_dir}: {name}: no such object") from error
        if _text(found) != kind:
            raise ArchiveError(f"{self.git_dir}: {name}: a {_text(found)}, not a {kind}")
        return bytes(data)

    def writer(self) -> ObjectWriter:
        """Return what writes objects; to be used in a `with` block."""
        return ObjectWriter(self.git_dir)

    def refs(self, prefix: str) -> dict[str, str]:
        """Return the refs below a prefix (or that match it, where it has a `*`): full name to object id."""
        lines = self.run("for-each-ref", "--format=%(refname) %(objectname)", prefix).splitlines()
        return dict(line.split(" ") for line in lines)

    def update_refs(self, changes: Mapping[str, tuple[str, str | None]]) -> None:
        """Set refs, all or none, durably.

        Args:
            changes: Ref to its new id and the id that it must have had (None: it must not have existed).

        Raises:
            ArchiveError: One has changed meanwhile, or cannot be written.
        """
        zero = "0" * 40
        lines = [f"update {ref} {new} {old or zero}\n" for ref, (new, old) in changes.items()]
        self.run("update-ref", "--no-deref", "--stdin", stdin="".join(lines).encode())

    def pack_if_needed(self) -> bool:
        """Start packing loose refs and objects when there are many; says whether it did.

        It is done by a process of its own, because removing thousands of files takes seconds on a busy disk. Reading
        and writing go on meanwhile; killed half-way, it leaves a repository that is whole.
        """
        if self._packing is not None:
            if self._packing.poll() is None:
                return False
            if self._packing.returncode != 0:
                # Packing only saves time and space: try again, but ever more rarely.
                self._pack_above *= 2
            self._packing = None
        # Object ids are evenly spread: one directory of the 256 tells how full the others are.
        sample = self.git_dir / "objects" / "17"
        if not sample.is_dir() or sum(1 for _ in sample.iterdir()) * 256 <= self._pack_above:
            return False
        ours = self._git.environment()
        self._packing = subprocess.Popen(
            ["sh", "-c", "git pack-refs --all && exec git repack -d -q --geometric=2"],
            env={**{name: value for name, value in os.environ.items() if not name.startswith("GIT_")}, **ours},
            cwd=self.git_dir,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return True

    def close(self) -> None:
        """End the reading processes, and wait for packing to end."""
        self._git.clear_cache()
        if self._packing is not None:
            self._packing.wait()
            self._packing = None


def _text(word: str | bytes) -> str:
    """GitPython promises text for the words of an object's header, but gives bytes."""
    return word.decode() if isinstance(word, bytes) else word
