"""From splits to parts: train is divided into fit and practice, val and test are used whole."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from metaharness.errors import EnvironmentFormatError
from metaharness.exchange import canonical_json
from metaharness.protocols import Environment
from metaharness.task import FitSet, Part, Split, Task, train_part


def split_parts(environment: Environment) -> Mapping[Part, list[Task]]:
    """Return the tasks of every part, in file order.

    Where nothing can be fitted (no labels, or an online environment, whose streams bring their own), all of train is
    practice.

    Raises:
        EnvironmentFormatError: No train task is left to practise on.
    """
    parts: dict[Part, list[Task]] = {part: [] for part in Part}
    train = environment.tasks(Split.TRAIN)
    for task in train:
        parts[train_part(task.digest) if environment.info.can_fit else Part.PRACTICE].append(task)
    parts[Part.VAL].extend(environment.tasks(Split.VAL))
    parts[Part.TEST].extend(environment.tasks(Split.TEST))
    if not parts[Part.PRACTICE]:
        raise EnvironmentFormatError(
            f"environment {environment.info.name!r}: all {len(train)} train tasks fall to the fit set, and none is "
            "left to practise on; give it more train tasks (half go to each, by hash)"
        )
    return parts


def fit_set(environment: Environment) -> FitSet:
    """Return the labelled examples that `learn` receives; empty where nothing can be fitted."""
    examples = tuple(task.example() for task in split_parts(environment)[Part.FIT])
    text = canonical_json([example.to_json() for example in examples])
    return FitSet(examples=examples, digest=hashlib.sha256(text.encode()).hexdigest())
