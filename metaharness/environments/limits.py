"""A cap on the tasks of each split, over any environment."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from metaharness.protocols import Environment, EnvironmentInfo, EnvironmentSession
from metaharness.task import Split, Task


class LimitedEnvironment:
    """An environment with fewer tasks: the first ones in the order of their digests, so the same ones in every run.

    Args:
        environment: The whole environment.
        caps: Most tasks of a split, at least 1; splits that are absent keep all.
    """

    def __init__(self, environment: Environment, caps: Mapping[Split, int]) -> None:
        self._environment = environment
        self._tasks = {split: _first(environment.tasks(split), caps.get(split)) for split in Split}
        sizes = ":".join(f"{split.value}:{len(kept)}" for split, kept in self._tasks.items())
        digest = hashlib.sha256(f"{environment.info.digest}:{sizes}".encode()).hexdigest()
        self._info = replace(environment.info, digest=digest)

    @property
    def info(self) -> EnvironmentInfo:
        """The whole environment's, with a digest of its own."""
        return self._info

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks that are kept, in file order."""
        return self._tasks[split]

    async def open(self, task: Task) -> EnvironmentSession:
        """As the whole environment's."""
        return await self._environment.open(task)


def limit_tasks(environment: Environment, caps: Mapping[Split, int]) -> Environment:
    """Return the environment with its tasks capped; itself when no cap cuts anything."""
    if all(len(environment.tasks(split)) <= cap for split, cap in caps.items()):
        return environment
    return LimitedEnvironment(environment, caps)


def _first(tasks: Sequence[Task], cap: int | None) -> tuple[Task, ...]:
    if cap is None or len(tasks) <= cap:
        return tuple(tasks)
    kept = {task.digest for task in sorted(tasks, key=lambda task: task.digest)[:cap]}
    return tuple(task for task in tasks if task.digest in kept)
