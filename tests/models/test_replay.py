"""Replays: by request from JSONL, by key from a ledger; nothing is paid again."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import pytest

from metaharness.budget import Budget, Caps
from metaharness.errors import ModelRefused, SpecError
from metaharness.exchange import ChooseRequest, ModelReply, Request
from metaharness.ledger import Ledger
from metaharness.models import create_backend
from metaharness.models.gateway import CallRecord
from metaharness.models.prices import Price
from metaharness.models.replay import recorded_line
from metaharness.models.scripted import ScriptedBackend
from metaharness.spec import ModelSpec
from tests.models.doubles import ask, gateway

DEAR = Price(input_usd_per_mtok=1.0, output_usd_per_mtok=10.0)
CHOICE = ChooseRequest(prompt="x", choices=("a", "b"))


def answer(request: Request, seed: int) -> str | list[float]:
    return [-1.0, -2.0] if isinstance(request, ChooseRequest) else f"seed {seed}"


def spec(path: Path) -> ModelSpec:
    return ModelSpec(ref=f"replay/{path}")


async def test_a_recording_answers_the_same_requests(tmp_path: Path) -> None:
    records: list[CallRecord] = []
    port = gateway(ScriptedBackend(answer), price=DEAR).port(scope="task", attempt=0, record=records.append)
    votes = [(await port.complete(ask())).text for _ in range(3)]
    await port.choose(CHOICE)
    path = tmp_path / "calls.jsonl"
    path.write_text("".join(recorded_line(r.request, r.reply) for r in records if r.reply) + "\n")

    budget = Budget(Caps())
    way = gateway(create_backend(spec(path)), budget)
    port = way.port(scope="other", attempt=5)
    replies = [await port.complete(ask()) for _ in range(20)]
    assert {reply.text for reply in replies} == set(votes)
    assert (await port.choose(CHOICE)).logprobs == (-1.0, -2.0)
    assert (budget.spent.model_calls, budget.spent.cost_usd) == (21, 0.0)
    with pytest.raises(ModelRefused, match="holds no reply to this request"):
        await port.complete(ask("something else"))
    with pytest.raises(ModelRefused, match="holds no reply"):
        await port.complete(ask(temperature=1.0))
    await way.aclose()


async def test_a_ledger_gives_each_attempt_its_own_reply_again(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "campaign") as ledger:
        way = gateway(ScriptedBackend(answer), replies=ledger.reply_cache("rollouts"), price=DEAR)
        ledger.set_meta("model", asdict(way.info))
        ports = [way.port(scope="task", attempt=attempt) for attempt in range(2)]
        said = [(await port.complete(ask())).text for port in ports for _ in range(2)]
        await ports[0].choose(CHOICE)
    for place in (tmp_path / "campaign", tmp_path / "campaign" / "ledger.db"):
        budget = Budget(Caps())
        way = gateway(create_backend(spec(place)), budget)
        ports = [way.port(scope="task", attempt=attempt) for attempt in range(2)]
        assert [(await port.complete(ask())).text for port in ports for _ in range(2)] == said
        assert (await ports[0].choose(CHOICE)).logprobs == (-1.0, -2.0)
        assert (budget.spent.model_calls, budget.spent.cost_usd) == (5, 0.0)
        with pytest.raises(ModelRefused, match="holds no reply to this complete request"):
            await way.port(scope="task", attempt=2).complete(ask())
        await way.aclose()


async def test_a_ledger_that_does_not_name_its_model_cannot_be_replayed(tmp_path: Path) -> None:
    Ledger.create(tmp_path / "campaign").close()
    with pytest.raises(SpecError, match="does not say which model"):
        create_backend(spec(tmp_path / "campaign"))


GOOD = recorded_line(ask(), ModelReply(text="x"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "calls.jsonl:2: request: missing"),
        ("not json", "calls.jsonl:2: no recorded reply"),
        ('{"request": {}, "reply": {}, "extra": 1}', "calls.jsonl:2: extra: unknown field"),
        ('{"request": {}, "reply": {"text": "x"}}', "calls.jsonl:2: reply.stop_reason: missing"),
        ("[1]", "calls.jsonl:2: "),
    ],
)
def test_broken_recordings_are_refused_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_text(GOOD + text + "\n")
    with pytest.raises(SpecError, match=re.escape(message)) as caught:
        create_backend(spec(path))
    assert "\n" not in str(caught.value)


def test_absent_and_unreadable_recordings(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no such recording"):
        create_backend(spec(tmp_path / "absent.jsonl"))
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match="cannot be read"):
        create_backend(spec(tmp_path / "binary.jsonl"))
