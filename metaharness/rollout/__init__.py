"""One candidate on one task, one attempt: the harness in its sandbox, the host at the other end of the stream."""

from metaharness.rollout.calls import Gateway, MeteredPort
from metaharness.rollout.conversation import StreamBounds
from metaharness.rollout.outcome import CheckResult, FitOutcome, RolloutOutcome
from metaharness.rollout.runner import RolloutRunner
from metaharness.rollout.stage import runtime_digest

__all__ = [
    "CheckResult",
    "FitOutcome",
    "Gateway",
    "MeteredPort",
    "RolloutOutcome",
    "RolloutRunner",
    "StreamBounds",
    "runtime_digest",
]
