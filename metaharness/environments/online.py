"""Online environments: the tasks of a split are dealt into streams, and a rollout is one whole stream."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from metaharness.environments.config import OnlineOptions
from metaharness.environments.scorers.base import TaskScorer, judge
from metaharness.environments.text import shorten
from metaharness.errors import EnvironmentFormatError, ScoringFailed, UnsupportedRequest
from metaharness.score import Score
from metaharness.task import Split, Task

MAX_WRONG_SHOWN = 20
"""Wrong answers of a stream that its feedback spells out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A stream.

    Attributes:
        task: Stands for the whole stream: its input is all inputs in order, its answer the JSON array of the labels.
        batches: The tasks as they are shown.
    """

    task: Task
    batches: tuple[tuple[Task, ...], ...]

    @property
    def items(self) -> tuple[Task, ...]:
        """All tasks in order."""
        return tuple(item for batch in self.batches for item in batch)


def deal_streams(
    items: Sequence[Task], split: Split, environment: str, options: OnlineOptions, where: str
) -> tuple[Stream, ...]:
    """Deal the tasks of a split into streams, each task into exactly one, in a seeded order.

    The order follows from seed and task digests alone, not from the order of the file.

    Args:
        items: The tasks.
        split: Their split.
        environment: Name of the environment.
        options: [online].
        where: File name for messages.

    Raises:
        EnvironmentFormatError: There are fewer tasks than streams.
    """
    count = options.streams_per_split
    if len(items) < count:
        raise EnvironmentFormatError(f"{where}: {len(items)} tasks cannot fill {count} streams (streams_per_split)")

    def position(item: Task) -> str:
        return hashlib.sha256(f"stream-order:{options.seed}:{item.digest}".encode()).hexdigest()

    ordered = sorted(items, key=position)
    streams = []
    for number in range(count):
        own = ordered[number::count]
        batches = tuple(tuple(own[start : start + options.batch]) for start in range(0, len(own), options.batch))
        task = Task(
            id=f"{split.value}-stream-{number}",
            environment=environment,
            split=split,
            input="\n".join(item.input for item in own),
            answer=json.dumps([item.answer for item in own], ensure_ascii=False),
            instruction=own[0].instruction if len({item.instruction for item in own}) == 1 else "",
            metadata={"tasks": len(own), "batch": options.batch, "items": [item.id for item in own]},
        )
        streams.append(Stream(task=task, batches=batches))
    return tuple(streams)


class OnlineSession:
    """One rollout of one stream.

    Args:
        stream: The stream.
        scorer: Judges single answers.
    """

    def __init__(self, stream: Stream, scorer: TaskScorer) -> None:
        self._stream = stream
        self._scorer = scorer

    @property
    def stream(self) -> Sequence[Sequence[Task]] | None:
        """The batches, in order."""
        return self._stream.batches

    async def shell(self, command: str, timeout_s: float) -> tuple[str, int]:  # noqa: ARG002 - fixed by the protocol
        """Refuse: there is no shell.

        Raises:
            UnsupportedRequest: Always.
        """
        raise UnsupportedRequest(f"environment {self._stream.task.environment!r} has no shell")

    async def score(self, answer: str) -> Score:
        """Judge a whole stream: the mean reward over its tasks.

        Args:
            answer: JSON array of all answers, in the order of the stream.

        Raises:
            ScoringFailed: It is no such array, or the scorer broke.
        """
        items = self._stream.items
        answers = _answers(answer, len(items))
        scores = [await judge(self._scorer, item, given) for item, given in zip(items, answers, strict=True)]
        rewards = [score.reward for score in scores]
        half = max(1, len(rewards) // 2)
        wrong = [
            f"item {number} of {len(items)} ({shorten(item.input, 60)}): {score.feedback}"
            for number, (item, score) in enumerate(zip(items, scores, strict=True), 1)
            if score.reward < 1
        ]
        more = [f"and {len(wrong) - MAX_WRONG_SHOWN} more"] if len(wrong) > MAX_WRONG_SHOWN else []
        return Score(
            reward=_mean(rewards),
            # Whether the harness has learned along the stream shows in the difference of the two.
            components={"first_half": _mean(rewards[:half]), "second_half": _mean(rewards[-half:])},
            feedback="\n".join([*wrong[:MAX_WRONG_SHOWN], *more]),
        )

    async def aclose(self) -> None:
        """Nothing is held."""


def _answers(text: str, count: int) -> list[str]:
    try:
        answers = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ScoringFailed(f"the answers of a stream must be a JSON array: {error}") from error
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise ScoringFailed("the answers of a stream must be a JSON array of texts")
    if len(answers) != count:
        raise ScoringFailed(f"{len(answers)} answers for a stream of {count} tasks")
    return answers


def _mean(values: Sequence[float]) -> float:
    return min(1.0, sum(values) / len(values))
