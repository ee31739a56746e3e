"""Log-probabilities of texts that continue one prompt, with as few evaluations of the model as possible.

A choice is scored over the canonical tokenisation of prompt and choice together. Where its first token would merge with
the end of the prompt (a prompt that ends in a space is the usual case), tokens at the end of the prompt are taken back
for all choices alike, and scored with the choice: the value is then the log-probability of all the text after the last
token boundary that prompt and choices share. So values always compare the same thing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

Evaluate = Callable[[tuple[int, ...], tuple[int, ...]], Awaitable[Mapping[int, float]]]
"""Gets the tokens after the base, and tokens that may follow; returns the natural-log probability of each of those."""


@dataclass(slots=True)
class _Node:
    children: dict[int, _Node] = field(default_factory=dict)
    logprob: float = 0.0


def shared_base(prompt: Sequence[int], wholes: Sequence[Sequence[int]]) -> int:
    """Return how many tokens the prompt and all wholes (prompt and choice) begin with in common."""
    length = len(prompt)
    for whole in wholes:
        length = next((i for i in range(min(length, len(whole))) if prompt[i] != whole[i]), min(length, len(whole)))
    return length


async def score(sequences: Sequence[Sequence[int]], evaluate: Evaluate) -> list[float]:
    """Return the natural-log probability of each sequence of tokens after the base, in order.

    The sequences form a tree, and each inner node is evaluated once, in depth-first order, so that the cached prompt
    of one evaluation is the beginning of the next. An empty sequence has log-probability 0.

    Args:
        sequences: Tokens after the base; none needs to be distinct from others.
        evaluate: Asks the model.
    """
    root = _Node()
    for sequence in sequences:
        node = root
        for token in sequence:
            node = node.children.setdefault(token, _Node())
    pending: list[tuple[tuple[int, ...], _Node]] = [((), root)]
    while pending:
        path, node = pending.pop()
        if not node.children:
            continue
        found = await evaluate(path, tuple(node.children))
        for token, child in node.children.items():
            child.logprob = node.logprob + found[token]
        pending += [((*path, token), child) for token, child in reversed(node.children.items())]
    return [_end(root, sequence).logprob for sequence in sequences]


def _end(root: _Node, sequence: Sequence[int]) -> _Node:
    node = root
    for token in sequence:
        node = node.children[token]
    return node
