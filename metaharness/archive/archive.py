"""`Archive`: candidates ↔ git, and where campaigns lie."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from metaharness.archive import notes, readings
from metaharness.archive.messages import candidate_message, identity, rejected_message
from metaharness.archive.readings import ReadingRecord
from metaharness.archive.trees import read_source, write_source
from metaharness.candidate import CANDIDATE_ID, Finding, candidate_number
from metaharness.errors import ArchiveError, MissingDependency, unknown_name
from metaharness.locking import FileLock
from metaharness.source import SourceTree

if TYPE_CHECKING:
    import networkx as nx

    from metaharness.archive.repository import Repository

REPOSITORY_NAME = "harnesses.git"
CAMPAIGNS_NAME = "campaigns"
LOCK_NAME = "lock"
LOCK_WAIT_S = 60.0
CAMPAIGN = re.compile(r"(?!.*\.\.)(?!.*\.lock$)[a-z0-9][a-z0-9_.-]{0,61}[a-z0-9_-]|[a-z0-9]")
"""A campaign's name is a directory and a part of refs."""

COMMIT = re.compile(r"[0-9a-f]{40}")


class Located(NamedTuple):
    """Where a candidate was found."""

    campaign: str
    id: str
    commit: str


class Archive:
    """The directory of an archive. Also a context manager. To be used from one thread; processes may share it."""

    def __init__(self, root: Path, repository: Repository, clock: Callable[[], float], lock_wait_s: float) -> None:
        self.root = root
        self._lock_wait_s = lock_wait_s
        self._repository = repository
        self._clock = clock

    @classmethod
    def open(
        cls,
        root: Path,
        *,
        create: bool = False,
        clock: Callable[[], float] = time.time,
        lock_wait_s: float = LOCK_WAIT_S,
    ) -> Archive:
        """Open an archive.

        Args:
            root: Its directory.
            create: Make it if absent; then it must be writable.
            clock: Unix time.
            lock_wait_s: Seconds that a write waits for another process to end its own.

        Raises:
            ArchiveError: It is absent, or not writable with `create`.
            MissingDependency: There is no git, or one that is too old.
        """
        if shutil.which("git") is None:
            raise MissingDependency("git is not installed or not on PATH: install git 2.32 or newer")
        from metaharness.archive.repository import Repository

        git_dir = root / REPOSITORY_NAME
        if create:
            try:
                (root / CAMPAIGNS_NAME).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ArchiveError(f"archive {root}: cannot be made: {error.strerror}") from error
            if not os.access(root, os.W_OK | os.X_OK):
                raise ArchiveError(f"archive {root}: not writable: choose another directory (--archive)")
            with FileLock.acquire(root / LOCK_NAME, what=f"archive {root}", wait_s=lock_wait_s):
                if not git_dir.exists():
                    Repository.create(git_dir)
        if os.access(root, os.F_OK) and not os.access(root, os.R_OK):
            raise ArchiveError(f"archive {root}: not readable: choose another directory (--archive)")
        if not os.access(git_dir / "HEAD", os.R_OK):
            raise ArchiveError(
                f"archive {root}: there is none: `metaharness run` makes one, --archive or METAHARNESS_ARCHIVE names "
                "another"
            )
        return cls(root, Repository(git_dir), clock, lock_wait_s)

    def close(self) -> None:
        """End the reading processes. Harmless when that was done before."""
        self._repository.close()

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def git_dir(self) -> Path:
        """The bare repository."""
        return self._repository.git_dir

    def _lock(self) -> FileLock:
        return FileLock.acquire(self.root / LOCK_NAME, what=f"archive {self.root}", wait_s=self._lock_wait_s)

    # ------------------------------------------------------------------------------------------ campaigns

    def campaign_dir(self, name: str) -> Path:
        """Return the directory of a campaign, which need not exist.

        Raises:
            ArchiveError: No campaign can have this name.
        """
        if not CAMPAIGN.fullmatch(name):
            raise ArchiveError(
                f"campaign {name!r}: a name has up to 63 of a-z, 0-9, `_`, `.` and `-`, begins with a letter or digit, "
                "and has no `..`, no `.` at its end, no `.lock`"
            )
        return self.root / CAMPAIGNS_NAME / name

    def campaigns(self) -> list[str]:
        """Return the names of all campaigns that have a directory or candidates, sorted."""
        folder = self.root / CAMPAIGNS_NAME
        found = {path.name for path in folder.iterdir() if path.is_dir()} if folder.is_dir() else set()
        found |= {ref.split("/")[2] for ref in self._repository.refs("refs/candidates")}
        return sorted(name for name in found if CAMPAIGN.fullmatch(name))

    # ------------------------------------------------------------------------------------------- writing

    def commit_candidate(
        self,
        *,
        campaign: str,
        id: str,  # noqa: A002 - the word of the domain
        tree: SourceTree,
        parents: Sequence[str],
        hypothesis: str,
        mechanism: str,
        proposer: str,
        name: str,
        created_at: float,
    ) -> str:
        """Commit a candidate durably and return its commit.

        The same arguments give the same commit. A commit that a killed process has left under this id is adopted when
        it has the same files and parents, and replaced when not: no row of the ledger names it.

        Args:
            campaign: Name of the campaign.
            id: Candidate id that the ledger does not have yet.
            tree: Files.
            parents: Commits of the lineage parents; the first is the base, a second the donor.
            hypothesis: For the message.
            mechanism: For the message.
            proposer: Name of the proposer; becomes the author.
            name: Name of the harness.
            created_at: Unix time in seconds.

        Raises:
            ArchiveError: A parent is absent, or the archive cannot be written.
        """
        self.campaign_dir(campaign)
        candidate_number(id)
        message = candidate_message(
            campaign=campaign,
            candidate=id,
            name=name,
            proposer=proposer,
            parents=self._parent_ids(campaign, parents),
            hypothesis=hypothesis,
            mechanism=mechanism,
        )
        return self._commit(f"refs/candidates/{campaign}/{id}", tree, parents, message, proposer, created_at)

    def commit_rejected(
        self,
        *,
        campaign: str,
        number: int,
        tree: SourceTree,
        parents: Sequence[str],
        findings: Sequence[Finding],
        proposer: str,
        created_at: float,
    ) -> str:
        """Commit a proposal that the gate has stopped, with its findings, and return its commit.

        Args and errors are those of `commit_candidate`; `number` is that of the proposal.
        """
        self.campaign_dir(campaign)
        message = rejected_message(
            campaign=campaign,
            number=number,
            proposer=proposer,
            parents=self._parent_ids(campaign, parents),
            findings=findings,
        )
        return self._commit(f"refs/rejected/{campaign}/p{number:04d}", tree, parents, message, proposer, created_at)

    def _commit(
        self, ref: str, tree: SourceTree, parents: Sequence[str], message: str, proposer: str, created_at: float
    ) -> str:
        repository = self._repository
        date = f"{max(0, int(created_at))} +0000"
        with self._lock():
            before = repository.find(ref)
            with repository.writer() as writer:
                head = f"tree {write_source(writer, tree)}\n" + "".join(f"parent {parent}\n" for parent in parents)
                if before is not None and repository.read(before, "commit").startswith(f"{head}author ".encode()):
                    return before
                author = f"author {identity(proposer)} {date}\ncommitter {identity('metaharness')} {date}\n"
                commit = writer.write("commit", f"{head}{author}\n{message}".encode())
            repository.update_refs({ref: (commit, before)})
            repository.pack_if_needed()
        return commit

    def _parent_ids(self, campaign: str, parents: Sequence[str]) -> list[str]:
        found = []
        for parent in parents:
            if not COMMIT.fullmatch(parent):
                raise ArchiveError(f"archive {self.root}: parent {parent!r} is no commit (40 hex digits)")
            text = self._repository.read(parent, "commit").decode("utf-8", "replace")
            trailers = dict(re.findall(r"^Metaharness-(Campaign|Candidate): (.+)$", text, re.MULTILINE))
            where, identifier = trailers.get("Campaign", ""), trailers.get("Candidate", parent[:12])
            found.append(identifier if where in ("", campaign) else f"{where}/{identifier}")
        return found

    def set_best(self, campaign: str, commit: str) -> None:
        """Let `refs/heads/<campaign>/best` and HEAD name a commit, so that a plain clone checks it out.

        Raises:
            ArchiveError: There is no such commit, or the archive cannot be written.
        """
        self.campaign_dir(campaign)
        repository = self._repository
        repository.read(commit, "commit")
        ref = f"refs/heads/{campaign}/best"
        with self._lock():
            before = repository.find(ref)
            if before != commit:
                repository.update_refs({ref: (commit, before)})
            if (repository.git_dir / "HEAD").read_text() != f"ref: {ref}\n":
                repository.run("symbolic-ref", "HEAD", ref)

    def write_note(self, commit: str, data: Mapping[str, Any]) -> None:
        """Set the note of a commit: its scorecard. Raises as `write_notes`."""
        self.write_notes({commit: data})

    def write_notes(self, mapping: Mapping[str, Mapping[str, Any]]) -> None:
        """Set the notes of many commits at once, which costs hardly more than one.

        Raises:
            ArchiveError: There is no such commit, or the archive cannot be written.
        """
        with self._lock():
            notes.write_notes(self._repository, mapping, self._clock())
            self._repository.pack_if_needed()

    def record_test_read(
        self, *, kind: str, campaign: str, candidates: Sequence[str], tasks: Sequence[str], at: float
    ) -> None:
        """Write down that a test split is about to be read; durable on return, so call it before reading.

        Args:
            kind: `campaign`, `eval`, `transfer` or `export`.
            campaign: Campaign of the candidates, or empty.
            candidates: What is run on it.
            tasks: Digests of the test tasks.
            at: Unix time in seconds.

        Raises:
            ArchiveError: It cannot be written.
        """
        record = ReadingRecord(kind=kind, campaign=campaign, candidates=tuple(candidates), tasks=tuple(tasks), at=at)
        with self._lock():
            readings.append_reading(self.root / readings.FILE_NAME, record)

    # ------------------------------------------------------------------------------------------- reading

    def test_reads(self) -> list[ReadingRecord]:
        """Return every reading of a test split, in order."""
        return readings.list_readings(self.root / readings.FILE_NAME)

    def read_note(self, commit: str) -> dict[str, Any] | None:
        """Return the note of a commit, or None."""
        return notes.read_note(self._repository, commit)

    def read_tree(self, ref_or_commit: str) -> SourceTree:
        """Return the files of a commit.

        Raises:
            ArchiveError: There is no such commit, or its files are none of a harness.
        """
        return read_source(self._repository, ref_or_commit)

    def candidate_refs(self, campaign: str) -> dict[str, str]:
        """Return the candidates of a campaign: id to commit, in the order of their numbers."""
        self.campaign_dir(campaign)
        refs = self._repository.refs(f"refs/candidates/{campaign}")
        found = {ref.rsplit("/", 1)[1]: commit for ref, commit in refs.items()}
        return {id_: found[id_] for id_ in sorted(filter(CANDIDATE_ID.fullmatch, found), key=candidate_number)}

    def resolve(self, text: str, campaign: str | None = None) -> Located:
        """Return the candidate that a text names: `c0042` or `<campaign>/c0042`.

        Args:
            text: What a user has typed.
            campaign: Campaign that a bare id belongs to; None looks in all, and it must be in one only.

        Raises:
            ArchiveError: There is none or more than one; the message says what there is.
        """
        where, _, identifier = text.rpartition("/")
        where = where or campaign or ""
        if not CANDIDATE_ID.fullmatch(identifier):
            raise ArchiveError(f"candidate {text!r}: name it `c0042` or `<campaign>/c0042`")
        if where:
            commit = self._repository.find(f"refs/candidates/{where}/{identifier}")
            if commit is None:
                raise ArchiveError(self._no_candidate(where, identifier))
            return Located(where, identifier, commit)
        found = self._repository.refs(f"refs/candidates/*/{identifier}")
        if not found:
            names = ", ".join(self.campaigns()) or "none"
            raise ArchiveError(f"no campaign has a candidate {identifier!r} (campaigns: {names})")
        if len(found) > 1:
            options = ", ".join(ref.removeprefix("refs/candidates/") for ref in found)
            raise ArchiveError(f"candidate {identifier!r} is in {len(found)} campaigns: name one of {options}")
        ref, commit = next(iter(found.items()))
        return Located(ref.split("/")[2], identifier, commit)

    def _no_candidate(self, campaign: str, identifier: str) -> str:
        known = self.campaigns()
        if campaign not in known:
            return unknown_name("campaign", campaign, known)
        ids = list(self.candidate_refs(campaign))
        present = f"it has {len(ids)}: {ids[0]} to {ids[-1]}" if ids else "it has none yet"
        return f"campaign {campaign!r} has no candidate {identifier!r} ({present})"

    def lineage(self, campaign: str) -> nx.DiGraph[str]:
        """Return who descends from whom in a campaign.

        Nodes are candidate ids (`<campaign>/<id>` for parents in another one) with the attribute `commit`; edges go
        from parent to child with the attribute `role`, `base` or `donor`.
        """
        import networkx as nx

        ids = {commit: id_ for id_, commit in self.candidate_refs(campaign).items()}
        graph: nx.DiGraph[str] = nx.DiGraph()
        graph.add_nodes_from((id_, {"commit": commit}) for commit, id_ in ids.items())
        if not ids:
            return graph
        listing = self._repository.run(
            "rev-list", "--no-walk=unsorted", "--parents", f"--glob=refs/candidates/{campaign}/*"
        )
        others: dict[str, str] = {}
        for line in listing.splitlines():
            child, *parents = line.split()
            for number, parent in enumerate(parents):
                if parent not in ids and parent not in others:
                    others[parent] = self._parent_ids(campaign, [parent])[0]
                    graph.add_node(others[parent], commit=parent)
                source = ids.get(parent) or others[parent]
                graph.add_edge(source, ids[child], role="base" if number == 0 else "donor")
        return graph
