from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaharness.environments.near import near_pairs
from metaharness.environments.text import words


def test_pairs_across_groups() -> None:
    texts = ["one two three four five", "five four three two one six", "seven eight", "one two three four five"]
    pairs = near_pairs(texts, ["train", "val", "val", "train"])
    assert [(pair.first, pair.second) for pair in pairs] == [(0, 1), (1, 3)]
    assert pairs[0].similarity == pytest.approx(5 / 6)


TEXTS = st.lists(st.tuples(st.lists(st.sampled_from("abcdef"), max_size=6).map(" ".join), st.sampled_from("xy")))


@settings(deadline=None)
@given(TEXTS, st.sampled_from([0.3, 0.5, 0.8, 1.0]))
def test_no_pair_is_missed(texts: list[tuple[str, str]], threshold: float) -> None:
    sets = [set(words(text)) for text, _ in texts]
    expected = {
        (i, j)
        for j in range(len(texts))
        for i in range(j)
        if texts[i][1] != texts[j][1]
        and sets[i]
        and sets[j]
        and len(sets[i] & sets[j]) / len(sets[i] | sets[j]) >= threshold
    }
    found = near_pairs([text for text, _ in texts], [group for _, group in texts], threshold)
    assert {(pair.first, pair.second) for pair in found} == expected
