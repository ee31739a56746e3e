from __future__ import annotations

from pathlib import Path

import pytest

from metaharness.budget import Usage
from metaharness.environments import load_environment
from metaharness.errors import SpecError
from metaharness.reserve import EndPlan, plan_end
from metaharness.spec import CampaignSpec, parse_spec
from tests.campaign.doubles import write_world


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return write_world(tmp_path, rollouts=1000)


def spec_of(world: Path, final: str = "finalists = 3", budget: str = "rollouts = 1000") -> CampaignSpec:
    text = world.read_text().replace("rollouts = 1000", budget)
    return parse_spec(text.replace("finalists = 3", final))


def plan(world: Path, bundled: int = 0, **changes: str) -> EndPlan:
    environment = load_environment("./env", base=world.parent)
    return plan_end(spec_of(world, **changes), {"shout": environment}, bundled=bundled)


def test_each_setting_of_the_end_takes_its_share(world: Path) -> None:
    assert plan(world) == EndPlan(race=100, controls=0, test=80)
    assert plan(world, final="finalists = 1").race == 0
    assert plan(world, final="finalists = 3\nrace_share = 0.3").race == 300
    assert plan(world, final='finalists = 3\ntest = "none"').test == 0
    assert plan(world, final='finalists = 3\ncontrols = ["neighbours"]').test == 120
    both = plan(world, bundled=8, final='finalists = 3\ncontrols = ["bundled", "neighbours"]')
    assert (both.test, both.controls) == (160, 8 * 16)
    assert plan(world, budget="hours = 1").race == 3 * 24


def test_a_cap_below_the_end_is_refused_with_the_arithmetic(world: Path) -> None:
    with pytest.raises(
        SpecError, match=r"budget\.rollouts: 80 leaves nothing .* needs 88 \(race 8, controls 0, test 80\)"
    ):
        plan(world, budget="rollouts = 80")


def test_what_is_set_aside_follows_what_a_rollout_costs() -> None:
    end = EndPlan(race=10, controls=0, test=90)
    amount = end.amount(Usage(input_tokens=100, output_tokens=10, cost_usd=0.01))
    assert amount.rollouts == 100
    assert amount.input_tokens == 13_000
    assert amount.cost_usd == pytest.approx(1.3)
    assert end.seconds(2.0, concurrency=4) == pytest.approx(57.5)
    assert EndPlan(race=10, controls=20, test=30).seconds(2.0, concurrency=4) == pytest.approx(57.5)
