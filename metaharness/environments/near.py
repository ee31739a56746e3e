"""Near duplicates between groups of texts, exact for a threshold, without comparing all pairs."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from metaharness.environments.text import words


@dataclass(frozen=True, slots=True, kw_only=True)
class NearPair:
    """Two texts of different groups; `similarity` is the Jaccard index of their words, in [0, 1]."""

    first: int
    second: int
    similarity: float


def near_pairs(texts: Sequence[str], groups: Sequence[str], threshold: float = 0.8) -> list[NearPair]:
    """Return all pairs of texts in different groups with a similarity of at least `threshold`, most similar first.

    Two sets that similar share a word among the rarest few of each, so that only those are looked up.

    Source: Bayardo, Ma, Srikant 2007 ("Scaling up all pairs similarity search"), prefix filtering.

    Args:
        texts: The texts.
        groups: The group of each.
        threshold: In (0, 1].
    """
    sets = [frozenset(words(text)) for text in texts]
    frequency = Counter(word for found in sets for word in found)
    index: dict[str, list[int]] = defaultdict(list)
    pairs: list[NearPair] = []
    for number, found in enumerate(sets):
        rare = sorted(found, key=lambda word: (frequency[word], word))
        prefix = rare[: len(rare) - math.ceil(threshold * len(rare)) + 1]
        for other in {candidate for word in prefix for candidate in index[word]}:
            if groups[other] != groups[number]:
                shared = len(found & sets[other])
                similarity = shared / (len(found) + len(sets[other]) - shared)
                if similarity >= threshold:
                    pairs.append(NearPair(first=other, second=number, similarity=similarity))
        for word in prefix:
            index[word].append(number)
    return sorted(pairs, key=lambda pair: (-pair.similarity, pair.first, pair.second))
