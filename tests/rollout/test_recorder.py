from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from metaharness.budget import Usage
from metaharness.exchange import ChooseRequest, CompleteRequest, ModelInfo, ModelReply, Request
from metaharness.models.gateway import CallRecord
from metaharness.rollout import recorder as module
from metaharness.rollout.recorder import Recorder
from metaharness.trajectory import Step, Trajectory

INFO = ModelInfo(ref="scripted/x")


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def record(request: Request, reply: ModelReply | None, *, cached: bool = False, error: str | None = None) -> CallRecord:
    return CallRecord(request=request, reply=reply, error=error, started_at=1.0, seconds=0.5, cached=cached)


def chat(*messages: Mapping[str, Any], system: str | None = None) -> CompleteRequest:
    return CompleteRequest(messages=messages, system=system)


def steps(*calls: tuple[Request, str | ModelReply]) -> list[Step]:
    recorder = Recorder(model=INFO, clock=lambda: 0.0)
    for request, reply in calls:
        recorder.call(record(request, ModelReply(text=reply) if isinstance(reply, str) else reply))
    return finish(recorder).steps


def finish(recorder: Recorder) -> Trajectory:
    made = recorder.finish(agent="a", version="c0001", session_id="t/c0001", ours={})
    return Trajectory.model_validate_json(made.to_text())


def ours(step: Step) -> dict[str, Any]:
    found: dict[str, Any] = (step.extra or {}).get("metaharness", {})
    return found


def test_a_conversation_is_recorded_once() -> None:
    first, second = user("one"), user("two")
    made = steps(
        (chat(first, system="s"), "reply one"),
        (chat(first, said("reply one"), second, system="s"), "reply two"),
        (chat(first, said("reply one"), second, said("reply two"), user("three"), system="s"), "reply three"),
    )
    assert [step.message for step in made] == [
        [{"type": "text", "text": "s"}, {"type": "text", "text": "one"}],
        "reply one",
        "two",
        "reply two",
        "three",
        "reply three",
    ]
    assert [ours(step).get("continues") for step in made if step.source == "agent"] == [None, 2, 4]


def test_what_a_harness_put_into_the_models_mouth_is_recorded() -> None:
    made = steps((chat(user("one")), "no"), (chat(user("one"), said("yes"), user("two")), "x"))
    assert made[2].message == [{"type": "text", "text": "yes"}, {"type": "text", "text": "two"}]
    assert ours(made[2])["roles"] == ["assistant", "user"]
    assert ours(made[3])["continues"] == 2


def test_a_repeated_request_says_so() -> None:
    made = steps((chat(user("vote")), "a"), (chat(user("vote")), "b"), (chat(user("vote"), said("b"), user("?")), "c"))
    assert [step.message for step in made[:3]] == ["vote", "a", "b"]
    assert ours(made[2])["repeats"] == 2
    # It goes on from the first of the two, whose reply it changed: so both new messages are there.
    assert made[3].message == [{"type": "text", "text": "b"}, {"type": "text", "text": "?"}]


def test_another_system_prompt_or_kind_is_another_conversation() -> None:
    made = steps(
        (chat(user("one")), "a"),
        (chat(user("one"), system="s"), "b"),
        (ChooseRequest(prompt="one", choices=("x", "y")), ModelReply(logprobs=(-2.0, -1.0))),
    )
    assert [step.source for step in made] == ["user", "agent"] * 3
    assert not any("continues" in ours(step) or "repeats" in ours(step) for step in made)
    assert made[5].message == "y"


def test_tool_calls_and_their_results() -> None:
    call = {"id": "1", "name": "add", "arguments": {"a": 1}}
    made = steps(
        (chat(user("one")), ModelReply(text="", tool_calls=(call,), stop_reason="tool_calls")),
        (chat(user("one"), said("", tool_calls=[call]), {"role": "tool", "content": "2", "tool_call_id": "1"}), "two"),
    )
    assert made[1].tool_calls is not None
    assert made[1].tool_calls[0].arguments == {"a": 1}
    assert made[2].message == [{"type": "text", "text": "2"}]
    assert ours(made[2])["roles"] == ["tool"]


def test_tokens_and_dollars_add_up_and_kept_replies_cost_nothing() -> None:
    recorder = Recorder(model=INFO, clock=lambda: 0.0)
    reply = ModelReply(
        text="x", usage=Usage(model_calls=1, input_tokens=10, output_tokens=2, cached_tokens=4, cost_usd=0.5)
    )
    recorder.call(record(chat(user("one")), reply))
    recorder.call(record(chat(user("two")), reply, cached=True))
    recorder.call(record(chat(user("three")), None, error="ModelRefused: no"))
    made = finish(recorder)
    assert made.final_metrics is not None
    assert made.final_metrics.model_dump(exclude_none=True) == {
        "total_prompt_tokens": 20,
        "total_completion_tokens": 4,
        "total_cached_tokens": 8,
        "total_cost_usd": 0.5,
        "total_steps": 6,
    }
    assert made.ours["model_calls"] == 3
    assert ours(made.steps[3])["cached"] is True
    assert ours(made.steps[5])["error"] == "ModelRefused: no"


def test_a_trajectory_is_bounded_and_says_what_is_missing() -> None:
    recorder = Recorder(model=INFO, clock=lambda: 0.0)
    for number in range(4):
        recorder.call(record(chat(user(str(number) * (3 * 1024 * 1024))), ModelReply(text="reply")))
    call = {"id": "1", "name": "f", "arguments": {"a": "long"}}
    recorder.call(record(chat(user("x")), ModelReply(tool_calls=(call,))))
    made = finish(recorder)
    text = made.to_text()
    assert len(text) < module.MAX_RECORDED_CHARS + 10_000
    assert made.steps[4].message == "2" * (2 * 1024 * 1024 - 10) + "[1048586 characters not recorded]"
    assert made.steps[6].message == "[3145728 characters not recorded]"
    assert made.steps[9].tool_calls is not None
    assert made.steps[9].tool_calls[0].arguments == {"cut": 12}


any_text = st.text(st.characters(exclude_categories=()), max_size=10)
messages = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content}, st.sampled_from(["user", "assistant"]), any_text
    ),
    min_size=1,
    max_size=4,
)


@given(st.lists(st.tuples(messages, any_text), max_size=6))
def test_any_calls_make_a_valid_trajectory_with_all_replies(calls: list[tuple[list[dict[str, Any]], str]]) -> None:
    recorder = Recorder(model=INFO, clock=lambda: 0.0)
    recorder.user("task")
    for listed, reply in calls:
        recorder.call(
            record(
                chat(*listed), ModelReply(text=reply, tool_calls=({"id": reply, "name": "f", "arguments": {reply: 1}},))
            )
        )
    made = finish(recorder)
    assert sum(step.source == "agent" for step in made.steps) == len(calls)
    json.loads(made.to_text().encode())
