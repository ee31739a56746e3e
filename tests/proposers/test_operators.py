"""Every operator on every seed: the code is clean, keeps the contract and solves."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metaharness.proposers.codemods import OPERATORS
from metaharness.proposers.codemods.material import Source
from metaharness.source import SourceTree
from tests.proposers.checks import lint, solves
from tests.proposers.world import EDITABLE, NAMES, TREES, material


@pytest.mark.parametrize("operator", ["move_constant", "rewrite_prompt", "wrap_retry", "wrap_vote"])
def test_every_move_on_every_seed(operator: str, tmp_path: Path) -> None:
    codes = {}
    for name in NAMES:
        moves = OPERATORS[operator].moves(material(name))
        if operator != "move_constant":
            assert moves or (operator == "wrap_vote" and name == "neighbour_vote"), name
        for number, move in enumerate(moves):
            tree = move.apply()
            assert tree is not None, move.mechanism
            assert tree != TREES[name]
            assert TREES[name].changed_paths(tree) == ["harness.py"]
            codes[f"{name}_{number}"] = tree.text("harness.py")
            solves(tree)
    lint(codes, tmp_path)


@pytest.mark.parametrize("base", NAMES)
def test_every_graft_on_every_seed(base: str, tmp_path: Path) -> None:
    codes = {}
    moves = OPERATORS["graft"].moves(material(base, *(name for name in NAMES if name != base)))
    assert moves
    for number, move in enumerate(moves):
        tree = move.apply()
        assert tree is not None, move.mechanism
        assert TREES[base].changed_paths(tree) == ["harness.py"]
        codes[f"{base}_{number}"] = tree.text("harness.py")
        solves(tree)
    lint(codes, tmp_path)


@pytest.mark.parametrize("base", NAMES)
def test_combining_every_pair_of_seeds(base: str, tmp_path: Path) -> None:
    codes = {}
    for other in NAMES:
        if other == base:
            continue
        partner = Source(name="c0007", tree=TREES[other], candidate="c0007")
        moves = OPERATORS["combine"].moves(material(base, partner=partner))
        assert moves, (base, other)
        # The largest sets are the hardest; the smallest are grafts.
        for number, move in enumerate(moves[-3:]):
            tree = move.apply()
            assert tree is not None, move.mechanism
            assert move.donor == "c0007"
            codes[f"{base}_{other}_{number}"] = tree.text("harness.py")
            solves(tree)
    lint(codes, tmp_path)


_CHAIN = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(data=st.data())
@_CHAIN
def test_chains_of_operators_stay_sound(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    _chain(data, tmp_path_factory.mktemp("chain"), steps=5)


@pytest.mark.slow
@given(data=st.data())
@settings(_CHAIN, max_examples=30)
def test_long_chains_of_operators_stay_sound(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    _chain(data, tmp_path_factory.mktemp("chain"), steps=12)


def _chain(data: st.DataObject, folder: Path, steps: int) -> None:
    """Change a harness again and again, with its own ancestors and the seeds to borrow from."""
    tree = TREES[data.draw(st.sampled_from(NAMES), label="base")]
    earlier: list[SourceTree] = [tree]
    codes = {}
    for number in range(steps):
        others = data.draw(st.lists(st.sampled_from(NAMES), min_size=2, max_size=2, unique=True), label="donors")
        ancestor = data.draw(st.sampled_from(earlier), label="partner")
        partner = Source(name="c0001", tree=ancestor, candidate="c0001")
        here = material(tree, *others, partner=partner, editable=EDITABLE)
        operator = data.draw(st.sampled_from(sorted(OPERATORS)), label="operator")
        moves = OPERATORS[operator].moves(here)
        if not moves:
            continue
        changed = data.draw(st.sampled_from(moves), label="move").apply()
        if changed is None:
            continue
        tree = changed
        earlier.append(tree)
        codes[f"step_{number}"] = tree.text("harness.py")
        solves(tree)
    lint(codes, folder)
