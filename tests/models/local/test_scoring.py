from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from metaharness.models.local.scoring import score, shared_base

VOCABULARY = 5
Sequences = st.lists(st.lists(st.integers(0, VOCABULARY - 1), max_size=5), max_size=8)


class ToyModel:
    """A language model over five tokens: every context has probabilities of its own, drawn from its hash."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def distribution(self, context: Sequence[int]) -> list[float]:
        source = random.Random(str(list(context)))
        weights = [source.random() + 0.01 for _ in range(VOCABULARY)]
        return [math.log(weight / sum(weights)) for weight in weights]

    async def evaluate(self, path: tuple[int, ...], children: tuple[int, ...]) -> Mapping[int, float]:
        self.calls.append((path, children))
        logprobs = self.distribution(path)
        return {token: logprobs[token] for token in children}

    def logprob(self, sequence: Sequence[int]) -> float:
        return sum(self.distribution(sequence[:at])[token] for at, token in enumerate(sequence))


@given(Sequences)
async def test_scores_are_those_of_each_sequence_by_itself(sequences: list[list[int]]) -> None:
    model = ToyModel()
    found = await score(sequences, model.evaluate)
    assert found == [model.logprob(sequence) for sequence in sequences]


@given(Sequences)
async def test_each_inner_node_is_evaluated_once_and_in_depth_first_order(sequences: list[list[int]]) -> None:
    model = ToyModel()
    await score(sequences, model.evaluate)
    paths = [path for path, _ in model.calls]
    inner = {tuple(sequence[:at]) for sequence in sequences for at in range(len(sequence))}
    assert len(paths) == len(set(paths))
    assert set(paths) == inner
    # What was evaluated before a path includes its parent, and nothing outside the parent's tree comes between.
    for at, path in enumerate(paths):
        if path:
            parent = paths.index(path[:-1])
            assert parent < at
            assert all(between[: len(path) - 1] == path[:-1] for between in paths[parent:at])


def test_shared_base() -> None:
    assert shared_base([1, 2, 3], [[1, 2, 3, 4], [1, 2, 3, 5, 6]]) == 3
    # The last token of the prompt merges with one of the choices: it is taken back for all.
    assert shared_base([1, 2, 3], [[1, 2, 9], [1, 2, 3, 4]]) == 2
    assert shared_base([1, 2, 3], [[1, 2, 3]]) == 3
    assert shared_base([1], [[2]]) == 0
    assert shared_base([], [[1]]) == 0


@given(st.lists(st.integers(0, 3), max_size=6), st.lists(st.lists(st.integers(0, 3), max_size=6), max_size=5))
def test_shared_base_is_the_longest_common_beginning(prompt: list[int], wholes: list[list[int]]) -> None:
    length = shared_base(prompt, wholes)
    assert all(whole[:length] == prompt[:length] for whole in wholes)
    if length < len(prompt):
        assert any(whole[: length + 1] != prompt[: length + 1] for whole in wholes)
