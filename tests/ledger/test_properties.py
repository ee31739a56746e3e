"""What is spent is the sum of what was paid, whatever the order; any text survives."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from metaharness.budget import Usage
from metaharness.exchange import ModelReply
from metaharness.ledger import Ledger
from metaharness.score import Score
from tests.ledger.examples import rollout, unit

counts = st.integers(0, 10**9)
usages = st.builds(
    Usage,
    model_calls=counts,
    input_tokens=counts,
    output_tokens=counts,
    cached_tokens=counts,
    # Dyadic, so that sums are exact in any order.
    cost_usd=st.integers(0, 2**20).map(lambda number: number / 1024),
)
payments = st.lists(
    st.one_of(
        st.tuples(st.just("reply"), st.sampled_from(["rollouts", "proposer", "judge"]), st.integers(0, 5), usages),
        st.tuples(st.just("rollout"), st.booleans(), st.integers(0, 5), usages),
        st.just(("reopen", "", 0, Usage())),
    ),
    max_size=25,
)


@given(payments)
@settings(max_examples=25, deadline=None)
def test_spending(payments: list[tuple[str, str | bool, int, Usage]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.create(Path(folder))
        expected: dict[str, Usage] = {}
        first: dict[int, Usage] = {}
        units: set[int] = set()
        for kind, detail, number, usage in payments:
            if kind == "reopen":
                ledger.close()
                ledger = Ledger.open(Path(folder))
            elif kind == "reply":
                account = str(detail)
                ledger.reply_cache(account).put_reply(f"{number}", ModelReply(text=account, usage=usage))
                first.setdefault(number, usage)
                expected[account] = expected.get(account, Usage()) + usage
            elif number not in units:
                units.add(number)
                inherited = "c0009" if detail else None
                ledger.add_rollout(rollout(unit(0, attempt=number), usage=usage, inherited_from=inherited))
                if inherited is None:
                    expected["rollouts"] = expected.get("rollouts", Usage()) + Usage(rollouts=1)
        assert ledger.spent_by_account() == expected
        assert ledger.spent() == sum(expected.values(), Usage())
        for number, usage in first.items():
            found = ledger.reply_cache("any").get_reply(f"{number}")
            assert found is not None
            assert found.usage == usage
        assert {row.unit.attempt for row in ledger.rollouts()} == units
        ledger.close()


texts = st.text(st.characters(codec="utf-8"), max_size=50)


@given(
    answer=texts,
    error=texts,
    feedback=texts,
    reward=st.floats(0, 1),
    components=st.dictionaries(texts, st.floats(allow_nan=False), max_size=3),
    seconds=st.floats(0, 1e9),
    usage=usages,
)
@settings(max_examples=50, deadline=None)
def test_a_rollout_comes_back_as_it_was(
    answer: str, error: str, feedback: str, reward: float, components: dict[str, float], seconds: float, usage: Usage
) -> None:
    record = rollout(
        unit(),
        answer_preview=answer,
        error=error,
        score=Score(reward=reward, components=components, feedback=feedback),
        seconds=seconds,
        usage=usage,
    )
    with tempfile.TemporaryDirectory() as folder, Ledger.create(Path(folder)) as ledger:
        ledger.add_rollout(record)
        assert ledger.rollout(unit()) == record
        assert list(ledger.events()) == [record]
