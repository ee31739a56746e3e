"""What the end of a campaign needs, set aside before the search begins."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from metaharness.budget import Usage
from metaharness.errors import SpecError
from metaharness.protocols import Environment
from metaharness.spec import CampaignSpec
from metaharness.task import Split

RACE_TASKS_WITHOUT_CAP = 24
"""Val tasks a finalist in the race, when no cap on rollouts says how much a share of it is."""
CONTROL_TASKS = 16
"""Val tasks for each bundled harness, on average, when the best of them is chosen."""
CONTROL_SLOWNESS = 3
"""How many times longer a rollout takes when the controls are chosen: some bundled harnesses vote or think aloud."""
COST_MARGIN = 1.3
"""How much dearer than the mean so far a rollout of the end is taken to be."""
TIME_MARGIN = 1.15
"""The same for seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndPlan:
    """Rollouts that the end of a campaign may use.

    Attributes:
        race: For the race of the finalists on val.
        controls: For choosing the controls on val.
        test: For the reading of the test split.
    """

    race: int
    controls: int
    test: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.race + self.controls + self.test

    def amount(self, mean: Usage) -> Usage:
        """Return what to set aside, given the mean usage of a rollout so far."""
        return Usage(
            rollouts=self.total,
            input_tokens=math.ceil(mean.input_tokens * self.total * COST_MARGIN),
            output_tokens=math.ceil(mean.output_tokens * self.total * COST_MARGIN),
            cost_usd=mean.cost_usd * self.total * COST_MARGIN,
        )

    def seconds(self, rollout_s: float, concurrency: int) -> float:
        """Return the wall-clock seconds to set aside, given the seconds that a rollout takes."""
        rollouts = self.race + self.test + CONTROL_SLOWNESS * self.controls
        return rollouts * rollout_s / concurrency * TIME_MARGIN


def plan_end(spec: CampaignSpec, environments: Mapping[str, Environment], bundled: int) -> EndPlan:
    """Return what the end needs.

    Args:
        spec: The campaign.
        environments: Its environments.
        bundled: Number of bundled harnesses that compete for the control `bundled`.

    Raises:
        SpecError: The cap on rollouts leaves too little for a search.
    """
    test_tasks = sum(len(environment.tasks(Split.TEST)) for environment in environments.values())
    read = spec.final.test == "once"
    test = test_tasks * (2 + len(spec.final.controls)) if read else 0
    controls = bundled * CONTROL_TASKS if read and "bundled" in spec.final.controls else 0
    cap = spec.budget.rollouts
    race = int(cap * spec.final.race_share) if cap else spec.final.finalists * RACE_TASKS_WITHOUT_CAP
    race = race if spec.final.finalists > 1 else 0
    plan = EndPlan(race=race, controls=controls, test=test)
    if cap is not None and plan.total >= cap:
        raise SpecError(
            f"budget.rollouts: {cap} leaves nothing for the search: the end needs {plan.total} "
            f"(race {race}, controls {controls}, test {test}); raise it, cap environments[0].max_test, or set "
            'final.test = "none"'
        )
    return plan
