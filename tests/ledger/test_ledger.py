"""What goes in comes out, once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from metaharness.budget import Usage
from metaharness.candidate import Candidate, CandidateStatus
from metaharness.errors import ArchiveError
from metaharness.exchange import ModelReply
from metaharness.ledger import FitRecord, Ledger
from metaharness.protocols import ReplyCache
from metaharness.task import Part
from metaharness.trajectory import RolloutStatus
from metaharness.unit import ProposalRecord, Purpose, RolloutRecord
from tests.ledger.examples import candidate, proposal, rollout, unit


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.create(tmp_path / "support", clock=lambda: 1_700_000_000.5) as made:
        yield made


def test_candidates(ledger: Ledger) -> None:
    ledger.add_candidate(candidate(0))
    ledger.add_proposal(proposal(0, 1), candidate(1, 0))
    assert ledger.candidates() == [candidate(0), candidate(1, 0)]
    assert ledger.candidate("c0001") == candidate(1, 0)
    ledger.set_status("c0001", CandidateStatus.BROKEN)
    assert ledger.candidate("c0001").status is CandidateStatus.BROKEN
    with pytest.raises(ArchiveError, match=r"campaign 'support' has no candidate 'c0007' \(it has 2: c0000 to c0001\)"):
        ledger.candidate("c0007")
    with pytest.raises(ArchiveError, match="no candidate 'c0007'"):
        ledger.set_status("c0007", CandidateStatus.BROKEN)
    with pytest.raises(ValueError, match="c0001"):
        ledger.add_candidate(candidate(1))


def test_a_proposal_and_its_candidate_come_together_or_not_at_all(ledger: Ledger) -> None:
    ledger.add_candidate(candidate(0))
    ledger.add_proposal(proposal(0, 1), candidate(1, 0))
    with pytest.raises(ValueError, match="proposal 0 cannot be added"):
        ledger.add_proposal(proposal(0, 2), candidate(2, 0))
    with pytest.raises(ValueError, match="proposal 1 cannot be added"):
        ledger.add_proposal(proposal(1, 1), candidate(1, 0))
    with pytest.raises(ValueError, match="names candidate 'c0003', not 'c0002'"):
        ledger.add_proposal(proposal(1, 3), candidate(2, 0))
    with pytest.raises(ValueError, match="proposal 1 cannot be added"):
        ledger.add_proposal(proposal(1, 9, verdict="duplicate"), None)
    assert [found.id for found in ledger.candidates()] == ["c0000", "c0001"]
    assert ledger.proposals() == [proposal(0, 1)]
    assert ledger.spent().proposals == 1


def test_a_proposal_may_come_to_nothing_or_to_an_older_candidate(ledger: Ledger) -> None:
    ledger.add_candidate(candidate(0))
    rejected, duplicate = proposal(0, None), proposal(1, 0, verdict="duplicate")
    ledger.add_proposal(rejected, None)
    ledger.add_proposal(duplicate, None)
    assert ledger.proposals() == [rejected, duplicate]
    assert ledger.spent_by_account() == {"proposer": Usage(proposals=2)}


def test_rollouts(ledger: Ledger) -> None:
    scored = rollout(unit(0))
    harness_error = rollout(unit(0, attempt=1), status=RolloutStatus.HARNESS_ERROR, score=None, error="it crashed")
    missing = rollout(
        unit(1, part=Part.VAL), status=RolloutStatus.INFRA_ERROR, score=None, error="503", purpose=Purpose.RACE
    )
    control = rollout(dataclasses.replace(unit(part=Part.TEST), candidate="control-vote"), purpose=Purpose.CONTROL)
    for record in (scored, harness_error, missing, control):
        ledger.add_rollout(record)
        assert ledger.rollout(record.unit) == record
    assert ledger.rollout(unit(0, attempt=2)) is None
    assert ledger.rollout(unit(0, part=Part.VAL)) is None
    assert ledger.rollouts() == [scored, harness_error, missing, control]
    assert ledger.rollouts(candidate="c0000") == [scored, harness_error]
    assert ledger.rollouts(part=Part.VAL) == [missing]
    assert ledger.rollouts(purpose=Purpose.SEARCH, candidate="c0001") == []
    assert ledger.rollouts(candidate="control-vote", part=Part.TEST, purpose=Purpose.CONTROL) == [control]


@pytest.mark.parametrize("status", [RolloutStatus.BUDGET_STOPPED, RolloutStatus.CANCELLED])
def test_a_stopped_rollout_gets_no_row(ledger: Ledger, status: RolloutStatus) -> None:
    with pytest.raises(ValueError, match="is run again"):
        ledger.add_rollout(rollout(unit(), status=status, score=None))
    assert ledger.rollouts() == []
    assert ledger.spent() == Usage()


def test_a_unit_has_one_row(ledger: Ledger) -> None:
    first = rollout(unit())
    ledger.add_rollout(first)
    with pytest.raises(ValueError, match="cannot be added"):
        ledger.add_rollout(rollout(unit(), seconds=9.0))
    with pytest.raises(ValueError, match="with score"):
        ledger.add_rollout(rollout(unit(1), status=RolloutStatus.INFRA_ERROR))
    assert ledger.rollouts() == [first]
    assert ledger.spent().rollouts == 1


def test_several_rollouts_come_together_or_not_at_all(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="cannot be added"):
        ledger.add_rollouts([rollout(unit(0)), rollout(unit(1)), rollout(unit(0))])
    assert ledger.rollouts() == []
    ledger.add_rollouts([rollout(unit(0)), rollout(unit(1))])
    assert len(ledger.rollouts()) == 2


def test_an_inherited_rollout_costs_nothing(ledger: Ledger) -> None:
    record = rollout(unit(1), usage=Usage(), inherited_from="c0000")
    ledger.add_rollout(record)
    assert ledger.rollout(unit(1)) == record
    assert ledger.spent() == Usage()


def test_text_that_utf8_cannot_hold_is_kept_readable(ledger: Ledger) -> None:
    record = rollout(unit(), answer_preview="a\ud800b\0c", error="")
    ledger.add_rollout(record)
    found = ledger.rollout(unit())
    assert found is not None
    assert found.answer_preview == "a\\ud800b\0c"


def test_events_come_in_the_order_of_commits(ledger: Ledger) -> None:
    ledger.add_candidate(candidate(0))
    ledger.add_candidate(candidate(1))
    first, second = rollout(unit(0)), rollout(unit(1))
    ledger.add_rollout(first)
    ledger.add_proposal(proposal(0, 2), candidate(2, 0))
    ledger.add_decision("phase", {"name": "race"})
    ledger.add_rollout(second)
    ledger.add_proposal(proposal(1, None), None)
    expected: list[Candidate | ProposalRecord | RolloutRecord] = [
        candidate(0), candidate(1), first, proposal(0, 2), second, proposal(1, None),
    ]  # fmt: skip
    assert list(ledger.events()) == expected


def test_events_reach_over_many_chunks_and_see_later_rows(ledger: Ledger) -> None:
    ledger.add_candidate(candidate(0))
    ledger.add_rollouts([rollout(unit(0, attempt=number)) for number in range(2_500)])
    events = ledger.events()
    assert next(events) == candidate(0)
    ledger.add_rollout(rollout(unit(0, attempt=2_500)))
    attempts = [event.unit.attempt for event in events if isinstance(event, RolloutRecord)]
    assert attempts == list(range(2_501))


def test_the_order_goes_on_after_a_resume(tmp_path: Path) -> None:
    directory = tmp_path / "support"
    with Ledger.create(directory) as ledger:
        ledger.add_candidate(candidate(0))
        ledger.add_rollout(rollout(unit(0)))
    with Ledger.open(directory) as ledger:
        ledger.add_proposal(proposal(0, 1), candidate(1, 0))
        ledger.add_rollout(rollout(unit(1)))
        kinds = [type(event).__name__ for event in ledger.events()]
    assert kinds == ["Candidate", "RolloutRecord", "ProposalRecord", "RolloutRecord"]


def test_decisions(ledger: Ledger) -> None:
    ledger.add_decision("phase", {"name": "search"})
    ledger.add_decision("winner", {"candidate": "c0001", "why": "\ud800"})
    assert [(found.kind, found.data, found.at) for found in ledger.decisions()] == [
        ("phase", {"name": "search"}, 1_700_000_000.5),
        ("winner", {"candidate": "c0001", "why": "\ud800"}, 1_700_000_000.5),
    ]
    assert [found.data["candidate"] for found in ledger.decisions("winner")] == ["c0001"]
    assert ledger.decisions("final") == []


def test_replies_are_paid_once(ledger: Ledger) -> None:
    rollouts: ReplyCache = ledger.reply_cache("rollouts")
    proposer: ReplyCache = ledger.reply_cache("proposer")
    usage = Usage(model_calls=1, input_tokens=10, output_tokens=2, cached_tokens=4, cost_usd=0.25)
    reply = ModelReply(text="a\ud800", tool_calls=({"id": "1", "name": "f", "arguments": {}},), usage=usage)
    assert rollouts.get_reply("k") is None
    rollouts.put_reply("k", reply)
    found = proposer.get_reply("k")
    assert found == dataclasses.replace(reply, cached=True)
    with pytest.raises(ValueError, match="not paid for again"):
        proposer.put_reply("k", dataclasses.replace(reply, cached=True))
    assert ledger.spent_by_account() == {"rollouts": usage}


def test_of_two_replies_the_first_is_kept_and_both_are_charged(ledger: Ledger) -> None:
    cache = ledger.reply_cache("judge")
    usage = Usage(model_calls=1, input_tokens=10, cost_usd=0.25)
    cache.put_reply("k", ModelReply(text="first", logprobs=(-0.5, -1.25), usage=usage))
    cache.put_reply("k", ModelReply(text="second", usage=usage))
    found = cache.get_reply("k")
    assert found is not None
    assert (found.text, found.logprobs) == ("first", (-0.5, -1.25))
    assert ledger.spent_by_account() == {"judge": usage + usage}


def test_fits(ledger: Ledger) -> None:
    state = bytes(range(256))
    fit = FitRecord(key="k", status=RolloutStatus.SCORED, state=state, seconds=2.5)
    failed = FitRecord(key="f", status=RolloutStatus.HARNESS_ERROR, error="learn: it crashed")
    ledger.put_fit(fit)
    ledger.put_fit(failed)
    assert (ledger.get_fit("k"), ledger.get_fit("f"), ledger.get_fit("x")) == (fit, failed, None)
    with pytest.raises(ValueError, match="fit 'k' cannot be added"):
        ledger.put_fit(dataclasses.replace(fit, state=b""))
    with pytest.raises(ValueError, match="at most 16777216"):
        ledger.put_fit(FitRecord(key="big", status=RolloutStatus.SCORED, state=bytes(16 * 1024 * 1024 + 1)))
    assert ledger.get_fit("k") == fit


def test_settings_and_running_time(ledger: Ledger) -> None:
    assert ledger.get_meta("spec") is None
    ledger.set_meta("spec", {"a": [1, None, "é\ud800"]})
    ledger.set_meta("spec", {"a": [2, None, "é\ud800"]})
    assert ledger.get_meta("spec") == {"a": [2, None, "é\ud800"]}
    assert ledger.running_seconds() == 0.0
    ledger.add_running_seconds(1.5)
    ledger.add_running_seconds(2.25)
    assert ledger.running_seconds() == 3.75
    with pytest.raises(ValueError, match="-1"):
        ledger.add_running_seconds(-1)
