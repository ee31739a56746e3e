"""`NativeEnvironment`: a directory with an env.toml and one JSONL file a split."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from metaharness.environments.config import EnvironmentConfig, load_config
from metaharness.environments.lines import TaskFile, read_tasks
from metaharness.environments.online import OnlineSession, Stream, deal_streams
from metaharness.environments.scorers.base import TaskScorer, judge
from metaharness.environments.text import normalise
from metaharness.errors import EnvironmentFormatError, InfraError, UnsupportedRequest
from metaharness.protocols import EnvironmentInfo, EnvironmentSession
from metaharness.score import Score
from metaharness.task import Split, Task


class NativeEnvironment:
    """Tasks from files, judged by a scorer.

    Args:
        directory: Where env.toml lies.

    Raises:
        EnvironmentFormatError: One line that names file, line and field.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._config = load_config(directory)
        self._scorer = self._config.scorer.build(directory)
        self._files: Mapping[Split, TaskFile] = {
            split: read_tasks(directory / self._config.splits.of(split), split, self._config, self._scorer)
            for split in Split
        }
        digests = self._check_distinct()
        self._tasks: dict[Split, tuple[Task, ...]] = {split: file.tasks for split, file in self._files.items()}
        self._streams: dict[str, Stream] = {}
        options = self._config.streams
        if options is not None:
            for split, tasks in list(self._tasks.items()):
                where = str(self._path(split))
                streams = deal_streams(tasks, split, self._config.name, options, where)
                self._tasks[split] = tuple(stream.task for stream in streams)
                self._streams.update({stream.task.digest: stream for stream in streams})
        self._info = EnvironmentInfo(
            name=self._config.name,
            digest=self._digest(digests),
            protocol=self._config.protocol,
            description=self._config.description,
            can_fit=options is None and all(task.answer is not None for task in self._tasks[Split.TRAIN]),
            canary=self._config.canary,
        )

    @property
    def info(self) -> EnvironmentInfo:
        """What it is."""
        return self._info

    @property
    def config(self) -> EnvironmentConfig:
        """Its env.toml."""
        return self._config

    @property
    def scorer(self) -> TaskScorer:
        """How single answers are judged."""
        return self._scorer

    @property
    def canaries(self) -> Mapping[Split, tuple[str, ...]]:
        """Canaries found in each task file."""
        return {split: file.canaries for split, file in self._files.items()}

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split in file order; an online environment's are its streams."""
        return self._tasks[split]

    def items(self, split: Split) -> Sequence[Task]:
        """Return what the task file holds: the tasks, or for an online environment what its streams are made of."""
        return self._files[split].tasks

    async def open(self, task: Task) -> EnvironmentSession:
        """Return a session for `task`; nothing needs preparing.

        Raises:
            InfraError: An online environment has no such stream.
        """
        if self._config.protocol == "offline":
            return NativeSession(task, self._scorer)
        stream = self._streams.get(task.digest)
        if stream is None:
            raise InfraError(f"environment {self._config.name!r} has no stream {task.id!r}")
        return OnlineSession(stream, self._scorer)

    def _path(self, split: Split) -> Path:
        return self._directory / self._config.splits.of(split)

    def _where(self, place: tuple[Split, int]) -> str:
        split, index = place
        return f"{self._path(split)}:{self._files[split].lines[index]}"

    def _check_distinct(self) -> dict[Split, list[str]]:
        """Check that ids are unique, no task is there twice, and no input is in two splits; return task digests."""
        ids: dict[str, tuple[Split, int]] = {}
        seen: dict[str, tuple[Split, int]] = {}
        inputs: dict[tuple[str, str, tuple[str, ...] | None], tuple[Split, int]] = {}
        digests: dict[Split, list[str]] = {split: [] for split in Split}
        for split, file in self._files.items():
            for index, task in enumerate(file.tasks):
                place = (split, index)
                if (earlier := ids.setdefault(task.id, place)) is not place:
                    raise EnvironmentFormatError(
                        f"{self._where(place)}: id: {task.id!r} is also the id of {self._where(earlier)}"
                    )
                digest = task.digest
                if (earlier := seen.setdefault(digest, place)) is not place:
                    raise EnvironmentFormatError(
                        f"{self._where(place)}: input: the same task as {self._where(earlier)} (input and answer)"
                    )
                digests[split].append(digest)
                choices = task.choices if task.choices is self._config.choices else tuple(sorted(task.choices or ()))
                earlier = inputs.setdefault((task.instruction, normalise(task.input), choices), place)
                if earlier[0] is not split:
                    raise EnvironmentFormatError(
                        f"{self._where(place)}: input: the same as {self._where(earlier)} but for case and punctuation "
                        f"at most: a task in both {earlier[0].value} and {split.value} would leak"
                    )
        return digests

    def _digest(self, digests: Mapping[Split, Sequence[str]]) -> str:
        """Digest tasks, scorer and settings; ids and descriptions do not count."""
        digest = hashlib.sha256()
        options = self._config.streams
        settings = [
            self._config.name,
            self._config.protocol,
            options.model_dump() if options is not None else None,
            self._scorer.identity,
        ]
        digest.update(json.dumps(settings, sort_keys=True).encode())
        for split, file in self._files.items():
            digest.update(f"{split.value}:{','.join(digests[split])}\n".encode())
            if self._scorer.reads_metadata:
                notes = [dict(task.metadata) for task in file.tasks]
                digest.update(json.dumps(notes, sort_keys=True).encode())
        return digest.hexdigest()


class NativeSession:
    """One rollout of one task: there is no container, only the scorer.

    Args:
        task: The task.
        scorer: Judges the answer.
    """

    stream: Sequence[Sequence[Task]] | None = None

    def __init__(self, task: Task, scorer: TaskScorer) -> None:
        self._task = task
        self._scorer = scorer

    async def shell(self, command: str, timeout_s: float) -> tuple[str, int]:  # noqa: ARG002 - fixed by the protocol
        """Refuse: there is no shell.

        Raises:
            UnsupportedRequest: Always.
        """
        raise UnsupportedRequest(f"environment {self._task.environment!r} has no shell")

    async def score(self, answer: str) -> Score:
        """Judge an answer.

        Raises:
            ScoringFailed: The scorer broke or left its declared range.
        """
        return await judge(self._scorer, self._task, answer)

    async def aclose(self) -> None:
        """Nothing is held."""
