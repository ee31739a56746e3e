"""`check_environment`: what a person should know about an environment before they trust a number from it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metaharness.environments import bundled_environments, load_environment
from metaharness.environments.native import NativeEnvironment
from metaharness.environments.near import near_pairs
from metaharness.environments.parts import split_parts
from metaharness.environments.text import normalise, shorten
from metaharness.errors import ScoringFailed
from metaharness.protocols import Environment
from metaharness.task import Part, Split, Task

MAX_LABELS = 50
MAX_COMPARED = 3_000
MAX_LABEL_SHARE = 0.9
NEAR = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What was found.

    Attributes:
        name: Name of the environment.
        digest: Its digest.
        protocol: `offline` or `online`.
        sizes: Tasks of train, of its parts fit and practice, of val and of test.
        labels: Per split, how often each label occurs; empty where there are more than `MAX_LABELS` different ones.
        duplicates: Groups of task ids with the same input inside one split.
        near_duplicates: Pairs of task ids from two splits, with the similarity of their inputs in [0, 1].
        scored: Tasks whose label was scored against itself.
        warnings: What should be looked at, a line each.
    """

    name: str
    digest: str
    protocol: str
    sizes: Mapping[str, int]
    labels: Mapping[str, Mapping[str, int]]
    duplicates: tuple[tuple[str, ...], ...]
    near_duplicates: tuple[tuple[str, str, float], ...]
    scored: int
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "name": self.name,
            "digest": self.digest,
            "protocol": self.protocol,
            "sizes": dict(self.sizes),
            "labels": {split: dict(counts) for split, counts in self.labels.items()},
            "duplicates": [list(group) for group in self.duplicates],
            "near_duplicates": [list(pair) for pair in self.near_duplicates],
            "scored": self.scored,
            "warnings": list(self.warnings),
        }


def check_environment(ref: str, *, base: Path) -> CheckReport:
    """Load an environment and check it; not to be called from a running event loop.

    Args:
        ref: See `load_environment`.
        base: Directory that a relative path starts from.

    Raises:
        EnvironmentFormatError: It cannot be used at all.
    """
    environment = load_environment(ref, base=base)
    return asyncio.run(inspect_environment(environment, is_bundled=ref in bundled_environments()))


async def inspect_environment(environment: Environment, *, is_bundled: bool = False) -> CheckReport:
    """Check an environment: sizes, labels, duplicates, canaries, and whether its scorer does what it should.

    Args:
        environment: The environment.
        is_bundled: Demand a canary in val and test.

    Raises:
        EnvironmentFormatError: No train task is left to practise on.
    """
    native = environment if isinstance(environment, NativeEnvironment) else None
    items = {split: native.items(split) if native else environment.tasks(split) for split in Split}
    parts = split_parts(environment)
    labels = _labels(items)
    duplicates = _duplicates(items)
    near, compared = _near_duplicates(items)
    scored, failures = await _self_test(environment, label_is_answer=native.scorer.label_is_answer if native else True)
    warnings = [
        *_label_warnings(items, labels),
        *_several("inputs appear more than once in a split", [" and ".join(group) for group in duplicates]),
        *_several(
            "near duplicates between splits" + (f" (among {compared} tasks)" if compared else ""),
            [f"{first} and {second}: {similarity:.2f}" for first, second, similarity in near],
        ),
        *(_canary_warnings(native, is_bundled=is_bundled) if native else []),
        *failures,
    ]
    return CheckReport(
        name=environment.info.name,
        digest=environment.info.digest,
        protocol=environment.info.protocol,
        sizes={
            "train": len(environment.tasks(Split.TRAIN)),
            **{part.value: len(parts[part]) for part in (Part.FIT, Part.PRACTICE, Part.VAL, Part.TEST)},
        },
        labels=labels,
        duplicates=duplicates,
        near_duplicates=near,
        scored=scored,
        warnings=tuple(warnings),
    )


def _labels(items: Mapping[Split, Sequence[Task]]) -> dict[str, dict[str, int]]:
    counts = {
        split.value: Counter(task.answer for task in tasks if task.answer is not None) for split, tasks in items.items()
    }
    if len({label for counter in counts.values() for label in counter}) > MAX_LABELS:
        return {}
    return {split: dict(counter.most_common()) for split, counter in counts.items()}


def _label_warnings(items: Mapping[Split, Sequence[Task]], labels: Mapping[str, Mapping[str, int]]) -> Iterable[str]:
    declared = {choice for tasks in items.values() for task in tasks for choice in task.choices or ()}
    for split, counts in labels.items():
        total = sum(counts.values())
        label, most = max(counts.items(), key=lambda item: item[1], default=("", 0))
        if total > 1 and most / total > MAX_LABEL_SHARE:
            yield f"{split}: {most} of {total} tasks have the label {shorten(label)}; answering nothing else wins"
        absent = sorted(declared - counts.keys())
        if declared and len(declared) <= MAX_LABELS and absent:
            yield f"{split}: no task has the label {', '.join(map(shorten, absent))}"


def _duplicates(items: Mapping[Split, Sequence[Task]]) -> tuple[tuple[str, ...], ...]:
    groups: list[tuple[str, ...]] = []
    for tasks in items.values():
        same: dict[tuple[str, str, tuple[str, ...]], list[str]] = defaultdict(list)
        for task in tasks:
            same[normalise(task.instruction), normalise(task.input), task.choices or ()].append(task.id)
        groups.extend(tuple(ids) for ids in same.values() if len(ids) > 1)
    return tuple(groups)


def _near_duplicates(items: Mapping[Split, Sequence[Task]]) -> tuple[tuple[tuple[str, str, float], ...], int]:
    """Return pairs, and the number of tasks compared when these are not all."""
    tasks = [task for tasks in items.values() for task in tasks]
    total = len(tasks)
    if total > MAX_COMPARED:
        tasks = sorted(tasks, key=lambda task: task.digest)[:MAX_COMPARED]
    pairs = near_pairs([task.input for task in tasks], [task.split.value for task in tasks], NEAR)
    found = tuple((tasks[pair.first].id, tasks[pair.second].id, round(pair.similarity, 3)) for pair in pairs)
    return found, len(tasks) if total > MAX_COMPARED else 0


def _canary_warnings(environment: NativeEnvironment, *, is_bundled: bool) -> Iterable[str]:
    canary = environment.config.canary
    if not canary and is_bundled:
        yield "env.toml: no canary; bundled environments have one, in their val and test files too"
    for split in (Split.VAL, Split.TEST):
        if canary and canary not in environment.canaries[split]:
            file = environment.config.splits.of(split)
            yield f"{file}: lacks the canary of env.toml; add the line {json.dumps({'canary': canary})}"


async def _self_test(environment: Environment, *, label_is_answer: bool) -> tuple[int, list[str]]:
    """Score each label against itself, and an empty answer: 1 and 0 are due."""
    if environment.info.has_shell:
        return 0, []  # a container for every task is more than a check should cost
    broken: list[str] = []
    unfair: list[str] = []
    failing: list[str] = []
    scored = 0
    for split in Split:
        for task in environment.tasks(split):
            session = await environment.open(task)
            try:
                nothing = "" if session.stream is None else json.dumps([""] * sum(map(len, session.stream)))
                if (reward := (await session.score(nothing)).reward) > 0:
                    unfair.append(f"{task.id}: {reward:g}")
                if task.answer is not None and label_is_answer:
                    scored += 1
                    if (reward := (await session.score(task.answer)).reward) < 1:
                        broken.append(f"{task.id}: {reward:g}")
            except ScoringFailed as error:
                failing.append(f"{task.id}: {error}")
            finally:
                await session.aclose()
    return scored, [
        *_several("labels do not earn the full reward when given as the answer", broken),
        *_several("tasks reward an empty answer", unfair),
        *_several("tasks on which the scorer fails", failing),
    ]


def _several(what: str, cases: Sequence[str]) -> list[str]:
    """Return one line with the number of cases and the first three."""
    if not cases:
        return []
    shown = "; ".join(cases[:3]) + ("; …" if len(cases) > 3 else "")
    return [f"{len(cases)} {what}: {shown}"]
