from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from metaharness.errors import ProposalFailed
from metaharness.proposers import proposer_registry
from metaharness.proposers.codemods import OPERATORS, Codemods
from metaharness.proposers.codemods.evidence import Evidence, Tally, gather
from metaharness.proposers.codemods.material import same_code_key, with_note
from metaharness.proposers.codemods.module import StepModule
from metaharness.proposers.codemods.proposer import MOST_AIMS
from metaharness.protocols import Proposer
from metaharness.source import SourceTree
from tests.proposers.checks import solves
from tests.proposers.world import TREES, Campaign, harness, material

BARE = """\
class Harness:
    def __init__(self, model):
        pass

    def solve(self, task, shell):
        return ''
"""
ALL = Codemods(donors=TREES)


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return Campaign(tmp_path)


def test_it_is_registered() -> None:
    found = proposer_registry().load("codemods")
    assert found is Codemods
    assert isinstance(found(donors={}), Proposer)


async def test_a_proposal_names_its_change(campaign: Campaign) -> None:
    seed = campaign.add(TREES["direct"], val=0.1)
    operators = set()
    for number in range(30):
        (proposal,) = await ALL.propose(campaign.context(seed, seed=number))
        assert proposal.parents == (seed,)
        assert proposal.proposer == "codemods"
        manifest = proposal.manifest
        assert manifest.hypothesis
        assert manifest.mechanism.split()[0] == manifest.extra["operator"]
        assert proposal.tree.changed_paths(TREES["direct"]) == ["harness.py"]
        solves(proposal.tree)
        operators.add(manifest.extra["operator"])
    assert {"graft", "move_constant", "rewrite_prompt"} <= operators


async def test_equal_contexts_give_equal_proposals(campaign: Campaign) -> None:
    seed = campaign.add(TREES["few_shot"], val=0.1)
    other = campaign.add(TREES["label_scoring"], seed, mechanism="graft ask from label_scoring", val=0.3)
    campaign.frontier(other, seed)
    for number in range(6):
        context = campaign.context(other, seed, seed=number)
        first = await Codemods(donors=TREES).propose(context)
        assert await ALL.propose(context) == first


async def test_it_never_proposes_what_is_there(campaign: Campaign) -> None:
    code = "N = 2  # range: 1..4\n\n\n" + BARE.replace("''", "str(N)")
    seed = campaign.add(harness(code))
    made = set()
    for number in range(3):
        (proposal,) = await ALL.propose(campaign.context(seed, seed=number))
        campaign.add(proposal.tree, seed, mechanism=proposal.manifest.mechanism)
        made.add(proposal.tree.text("harness.py")[:5])
    assert made == {"N = 1", "N = 3", "N = 4"}
    with pytest.raises(ProposalFailed, match="there already"):
        await ALL.propose(campaign.context(seed, seed=3))


async def test_it_says_when_nothing_can_be_changed(campaign: Campaign) -> None:
    seed = campaign.add(harness(BARE))
    with pytest.raises(ProposalFailed, match="no operator applies"):
        await ALL.propose(campaign.context(seed))
    seed = campaign.add(TREES["direct"])
    with pytest.raises(ProposalFailed, match=r"no operator applies.*prompts"):
        await ALL.propose(campaign.context(seed, editable=("prompts/**",)))


async def test_code_that_does_not_parse_is_left_alone(campaign: Campaign) -> None:
    broken = SourceTree({**TREES["direct"], "notes.py": b"def (:\n", "bytes.py": b"\xff\xfe"})
    seed = campaign.add(broken)
    (proposal,) = await ALL.propose(campaign.context(seed))
    assert proposal.tree["notes.py"] == b"def (:\n"


async def test_two_parents_are_combined_and_recorded(campaign: Campaign) -> None:
    first, second = campaign.add(TREES["nearest_examples"]), campaign.add(TREES["label_scoring"])
    combined = []
    for number in range(12):
        (proposal,) = await Codemods(donors={}).propose(campaign.context(first, second, seed=number))
        if proposal.manifest.extra["operator"] == "combine":
            combined.append(proposal)
    assert combined
    assert {proposal.parents for proposal in combined} == {(first, second)}


async def test_a_graft_from_a_leading_candidate_names_it_as_parent(campaign: Campaign) -> None:
    first, leader = campaign.add(TREES["nearest_examples"]), campaign.add(TREES["label_scoring"])
    campaign.frontier(leader, first)
    parents = Counter()
    for number in range(20):
        (proposal,) = await Codemods(donors={}).propose(campaign.context(first, seed=number))
        if proposal.manifest.extra["operator"] == "graft":
            parents[proposal.parents] += 1
    assert set(parents) == {(first, leader)}


def test_success_is_counted_by_operator_and_mechanism(campaign: Campaign) -> None:
    seed = campaign.add(TREES["direct"], val=0.2)
    campaign.add(TREES["few_shot"], seed, mechanism="graft ask from x", val=0.4)
    campaign.add(TREES["vote"], seed, mechanism="graft ask from y", val=0.1)
    campaign.add(TREES["json_repair"], seed, mechanism="wrap_vote ask")  # not judged yet
    campaign.record((seed,), "move_constant SHOTS up", "rejected")
    campaign.record((seed,), "move_constant SHOTS up", "duplicate", seed)
    found = gather(campaign.history.root, seed, "codemods")
    assert found.operators == {"graft": Tally(wins=1, losses=1), "move_constant": Tally(losses=2)}
    assert found.mechanisms["graft ask from x"] == found.tally("graft ask from x") == Tally(wins=1)
    assert found.targets["graft ask"] == found.tally("graft ask from z") == Tally(wins=1, losses=1)
    assert found.tally("graft parse_answer from z") == Tally()
    assert gather(campaign.history.root, seed, "somebody").operators == {}


def test_steps_that_paid_and_donors_that_lag_are_known(campaign: Campaign) -> None:
    seed = campaign.add(TREES["direct"], val=0.1)
    scored = campaign.add(TREES["label_scoring"], seed, mechanism="graft ask from label_scoring", val=0.3, target="ask")
    worse = campaign.add(TREES["vote"], scored, mechanism="combine a and b", val=0.2, target=["select_examples", "ask"])
    found = gather(campaign.history.root, scored, "codemods")
    assert found.settled == {"ask"}
    assert found.behind == {seed, worse}
    last = gather(campaign.history.root, worse, "codemods")
    assert last.settled == {"ask"}
    assert last.behind == {seed}
    moves = {
        move.mechanism: move.weight
        for move in OPERATORS["graft"].moves(material("few_shot", "vote", "neighbour_vote", evidence=found))
    }
    assert moves["graft ask from vote"] < moves["graft select_examples from neighbour_vote"]


def test_failures_are_told_apart(campaign: Campaign) -> None:
    seed = campaign.add(TREES["direct"])
    campaign.rollout(seed, "a" * 64, 1.0)
    campaign.rollout(seed, "b" * 64, 0.0, "expected 'x', got 'y'")
    campaign.rollout(seed, "c" * 64, 0.0, "answer 'z' is not one of the 8 choices; expected 'x'")
    campaign.rollout(seed, "d" * 64, 0.0, crashed=True)
    found = gather(campaign.history.root, seed, "codemods")
    assert found.rollouts == 4
    assert found.wrong == ("b" * 64, "c" * 64, "d" * 64)
    assert found.malformed == ("c" * 64,)
    assert found.crashed == ("d" * 64,)
    assert found.unusable == ("c" * 64, "d" * 64)
    assert found.share(found.wrong) == 0.75


async def test_expected_flips_are_failing_practice_tasks(campaign: Campaign) -> None:
    seed = campaign.add(TREES["direct"], val=0.1)
    for number in range(MOST_AIMS + 5):
        campaign.rollout(seed, f"{number:016x}{0:048x}", 0.0, "empty answer; expected 'x'")
    campaign.rollout(seed, "f" * 64, 1.0)
    (proposal,) = await ALL.propose(campaign.context(seed))
    assert len(proposal.manifest.expected_flips) == MOST_AIMS
    assert "f" * 64 not in proposal.manifest.expected_flips


async def _operators(campaign: Campaign, seed: str, draws: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for number in range(draws):
        (proposal,) = await ALL.propose(campaign.context(seed, seed=number))
        found[proposal.manifest.extra["operator"]] += 1
    return found


async def test_answers_of_the_wrong_form_make_repair_likelier(tmp_path: Path) -> None:
    counts = {}
    for feedback in ("expected 'x', got 'y'", "answer 'y' is not one of the 8 choices; expected 'x'"):
        (root := tmp_path / str(len(counts))).mkdir()
        campaign = Campaign(root)
        seed = campaign.add(TREES["direct"], val=0.1)
        for number in range(10):
            campaign.rollout(seed, f"{number:016x}{0:048x}", 0.0, feedback)
        counts[feedback] = (await _operators(campaign, seed, 40))["wrap_retry"]
    usual, malformed = counts.values()
    assert malformed > 2 * usual


async def test_an_operator_that_helps_is_drawn_more_often(tmp_path: Path) -> None:
    counts = []
    for wins in (False, True):
        (root := tmp_path / str(wins)).mkdir()
        campaign = Campaign(root)
        seed = campaign.add(TREES["direct"], val=0.5)
        for number in range(8):
            code = TREES["direct"].text("harness.py") + f"\n# {number}\n"
            tree = TREES["direct"].replace({"harness.py": code.encode()})
            campaign.add(tree, seed, mechanism="move_constant ANSWER_TOKENS up", val=0.9 if wins else 0.1)
        counts.append((await _operators(campaign, seed, 40))["move_constant"])
    assert counts[1] > 2 * counts[0]
    assert counts[1] > 12


def test_every_failure_that_steers_is_evidence() -> None:
    for operator in OPERATORS.values():
        assert isinstance(getattr(Evidence(), operator.aims), tuple)
    steered = OPERATORS["wrap_retry"]
    usual = steered.promise(Evidence(rollouts=4))
    assert steered.promise(Evidence(rollouts=4, malformed=("a", "b"))) > usual
    assert steered.promise(Evidence(rollouts=4, crashed=("a",))) > usual
    assert usual < steered.promise(Evidence()) < OPERATORS["graft"].promise(Evidence())


def test_scoring_and_schemas_weigh_more_where_answers_have_the_wrong_form() -> None:
    def weights(evidence: Evidence) -> dict[str, float]:
        here = material("direct", "label_scoring", "vote", evidence=evidence)
        return {move.mechanism: move.weight for move in OPERATORS["graft"].moves(here)}

    usual, malformed = weights(Evidence()), weights(Evidence(rollouts=2, malformed=("a", "b")))
    assert malformed["graft ask from label_scoring"] > usual["graft ask from label_scoring"]
    assert malformed["graft ask from vote"] == usual["graft ask from vote"]


def test_what_donors_do_alike_is_offered_once() -> None:
    moves = OPERATORS["graft"].moves(material("direct", *TREES))
    mechanisms = [move.mechanism for move in moves]
    assert len(set(mechanisms)) == len(mechanisms)
    offered = {name for name in TREES if f"graft select_examples from {name}" in mechanisms}
    # json_repair shows fewer examples than few_shot, vote as many; the others show none, as the base.
    assert offered == {"few_shot", "json_repair", "nearest_examples", "program_of_thought"}


def test_a_success_settles_less_while_much_is_wrong() -> None:
    def weight(wrong: tuple[str, ...]) -> float:
        evidence = Evidence(rollouts=4, wrong=wrong, settled=frozenset({"ask"}))
        moves = OPERATORS["graft"].moves(material("direct", "vote", evidence=evidence))
        return next(move.weight for move in moves if move.details["target"] == "ask")

    assert weight(()) < weight(("a", "b")) < weight(("a", "b", "c", "d")) == 1.0


def test_reading_answers_otherwise_weighs_little_where_all_can_be_read() -> None:
    def weight(evidence: Evidence) -> float:
        moves = OPERATORS["graft"].moves(material("direct", "chain_of_thought", evidence=evidence))
        return next(move.weight for move in moves if move.mechanism == "graft parse_answer from chain_of_thought")

    assert weight(Evidence(rollouts=9)) < weight(Evidence(rollouts=9, malformed=("a",)))
    assert weight(Evidence(rollouts=9)) < weight(Evidence())


def test_a_draw_follows_the_tally() -> None:
    dice = random.Random(0)
    good = [Tally(wins=9, losses=1).draw(dice) for _ in range(200)]
    bad = [Tally(wins=1, losses=9).draw(dice) for _ in range(200)]
    assert sum(good) / 200 > 0.75
    assert sum(bad) / 200 < 0.25


def test_form_does_not_make_code_new() -> None:
    code = TREES["direct"].text("harness.py")
    formed = code.replace('"""Ask once."""', '"""Ask."""').replace("  # range: 4..48", "")
    other = TREES["direct"].replace({"harness.py": formed.encode(), "README.md": b"else"})
    assert other != TREES["direct"]
    assert same_code_key(other) == same_code_key(TREES["direct"])
    changed = TREES["direct"].replace({"harness.py": code.replace("= 8", "= 9").encode()})
    assert same_code_key(changed) != same_code_key(TREES["direct"])


def test_the_docstring_says_what_was_changed() -> None:
    module = StepModule.parse('"""Mine, and short."""\n\nX = 1\n')
    assert module is not None
    noted = with_note(with_note(with_note(module, "`ask`", "from a"), "`x`", "from b"), "`ask`", "from c")
    assert noted.tree.get_docstring() == "Mine, and short.\n\nSince then: `x` from b; `ask` from c."
    for number in range(30):
        noted = with_note(noted, f"`step_{number}`", "from somewhere with a long name")
    assert max(map(len, noted.code.splitlines())) <= 120
    assert " ".join(noted.code.split()).count("from somewhere") == 8
