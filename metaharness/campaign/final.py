"""The end: race of the finalists, choice of the controls, one reading of the test split."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from metaharness.assembly import NEIGHBOURS_HARNESS, Assembly
from metaharness.campaign.progress import Observer, Progress
from metaharness.protocols import TaskRef
from metaharness.report.scorecards import compare_records, estimate_records, summary
from metaharness.reserve import EndPlan
from metaharness.strategies.evidence import shuffled, units_of, weighted_mean
from metaharness.strategies.race import plan_rounds, race_order, survivors
from metaharness.task import Part, Split
from metaharness.trajectory import RolloutStatus
from metaharness.unit import CONTROL_PREFIX, Purpose, RolloutRecord, RolloutUnit

TEST_BLOCK = 40
"""Test tasks that one harness is run on before the next one is. A model server keeps the prefixes of one harness's
prompts, so turns must not be short; and a budget that runs out must not leave a harness without its turn."""


class Final:
    """Ends a campaign. Each step writes a decision to the ledger; a resume goes on after the last one.

    Args:
        assembly: The campaign's parts.
        end: What may be used.
        progress: Changed as it goes.
        observe: Called after every change of it.
        stopping: Asked before each launch; true stops without a decision.
    """

    def __init__(
        self, assembly: Assembly, end: EndPlan, progress: Progress, observe: Observer, stopping: Callable[[], bool]
    ) -> None:
        self._parts = assembly
        self._end = end
        self._progress = progress
        self._observer = observe
        self._stopping = stopping

    async def run(self, finalists: Sequence[str]) -> dict[str, Any] | None:
        """Choose the winner, then read the test split for it.

        Args:
            finalists: Candidate ids, best first; at least one.

        Returns:
            The reading as JSON, or None when the run was stopped before its end.
        """
        winner = await self._winner(finalists)
        if winner is None:
            return None
        parts = self._parts
        best_seed = self._best_seed()
        if parts.spec.final.test == "none":
            return self._conclude({"verdict": "selected, unconfirmed", "winner_id": winner, "seed_id": best_seed})
        if winner in parts.setup.seeds:
            return self._conclude({"verdict": "no candidate beat the seeds", "winner_id": winner, "seed_id": winner})
        controls = await self._controls()
        if controls is None:
            return None
        return await self._test(winner, best_seed, controls)

    async def _winner(self, finalists: Sequence[str]) -> str | None:
        parts = self._parts
        if known := parts.ledger.decisions("winner"):
            return str(known[-1].data["candidate"])
        self._phase("race")
        remaining = await self._race(finalists, self._end.race, Purpose.RACE)
        if remaining is None:
            return None
        winner = remaining[0]
        chosen = parts.ledger.rollouts(candidate=winner, part=Part.VAL)
        parts.ledger.add_decision(
            "winner",
            {
                "candidate": winner,
                "finalists": list(finalists),
                "search_val": summary([r for r in chosen if r.purpose is Purpose.SEARCH], parts.weights),
                "race_val": summary([r for r in chosen if r.purpose is Purpose.RACE], parts.weights),
            },
        )
        parts.archive.set_best(parts.spec.name, parts.ledger.candidate(winner).commit)
        return winner

    async def _controls(self) -> dict[str, str] | None:
        """Return label to control id: the best bundled harness, chosen on val, and the neighbours' vote."""
        parts = self._parts
        wanted = parts.spec.final.controls
        chosen = {}
        if "neighbours" in wanted:
            chosen["neighbours"] = CONTROL_PREFIX + NEIGHBOURS_HARNESS
        if "bundled" in wanted:
            if known := parts.ledger.decisions("control"):
                chosen["bundled"] = str(known[-1].data["candidate"])
            else:
                self._phase("controls")
                bundled = [name for name in parts.controls if name != CONTROL_PREFIX + NEIGHBOURS_HARNESS]
                remaining = await self._race(bundled, self._end.controls, Purpose.CONTROL)
                if remaining is None:
                    return None
                chosen["bundled"] = remaining[0]
                parts.ledger.add_decision("control", {"label": "bundled", "candidate": remaining[0]})
        return chosen

    async def _race(self, entrants: Sequence[str], rollouts: int, purpose: Purpose) -> Sequence[str] | None:
        """Halve `entrants` on val until one is left; the freshest tasks come first."""
        parts = self._parts
        tasks = shuffled(parts.setup.tasks[Part.VAL], parts.setup.random_seed + 1)
        used = self._attempts_used(entrants) if purpose is Purpose.RACE else {}
        laps = math.ceil(rollouts / max(1, len(entrants)) / max(1, len(tasks))) + 1
        rounds = plan_rounds(len(entrants), rollouts, laps * len(tasks))
        pairs = race_order(
            tasks, lambda ref: used.get((ref.environment, ref.task), 0), max((r.tasks for r in rounds), default=0)
        )
        self._progress.planned = sum(
            (r.tasks - before) * r.entrants for r, before in zip(rounds, [0, *(r.tasks for r in rounds)], strict=False)
        )
        # A race of few rollouts adds to what the search has seen on val; it does not replace it.
        evidence = (Purpose.SEARCH, Purpose.RACE) if purpose is Purpose.RACE else (purpose,)
        left = list(entrants)
        for number, stage in enumerate(rounds):
            due = pairs[: stage.tasks]
            units = [
                unit
                for name in left
                for ref, attempt in due
                for unit in units_of(name, Part.VAL, [ref], attempt=attempt)
            ]
            if not await self._run_all(units, purpose):
                return None
            following = rounds[number + 1].entrants if number + 1 < len(rounds) else 1
            left = survivors(left, {name: self._rewards(name, *evidence) for name in left}, tasks, following)
        return left

    def _attempts_used(self, entrants: Sequence[str]) -> dict[tuple[str, str], int]:
        """Return how many attempts of each val task the search has used on any entrant."""
        used: dict[tuple[str, str], int] = {}
        for name in entrants:
            for row in self._parts.ledger.rollouts(candidate=name, part=Part.VAL, purpose=Purpose.SEARCH):
                key = (row.unit.environment, row.unit.task)
                used[key] = max(used.get(key, 0), row.unit.attempt + 1)
        return used

    def _rewards(self, candidate: str, *purposes: Purpose) -> dict[tuple[str, str], float]:
        values: dict[tuple[str, str], list[float]] = {}
        for row in self._parts.ledger.rollouts(candidate=candidate, part=Part.VAL):
            if row.reward is not None and row.purpose in purposes:
                values.setdefault((row.unit.environment, row.unit.task), []).append(row.reward)
        return {key: sum(found) / len(found) for key, found in values.items()}

    def _best_seed(self) -> str:
        """Return the seed with the best val mean over the search, among those that got furthest."""
        parts = self._parts
        means = {}
        for seed in parts.setup.seeds:
            values = self._rewards(seed, Purpose.SEARCH)
            means[seed] = (len(values), weighted_mean(values, parts.setup.tasks[Part.VAL]) if values else 0.0)
        return max(parts.setup.seeds, key=lambda seed: means[seed])

    async def _test(self, winner: str, best_seed: str, controls: dict[str, str]) -> dict[str, Any] | None:
        parts = self._parts
        self._phase("test")
        contenders = {"winner": winner, "seed": best_seed, **controls}
        refs = [
            TaskRef(environment=name, task=digest, weight=1.0)
            for name, tasks in parts.bench.tasks.items()
            for digest in tasks[Part.TEST]
        ]
        parts.archive.record_test_read(
            tasks=[ref.task for ref in refs],
            campaign=parts.spec.name,
            kind="campaign",
            candidates=list(contenders.values()),
            at=parts.clock(),
        )
        ids = list(dict.fromkeys(contenders.values()))
        order = shuffled(refs, 0)
        units = [
            unit
            for start in range(0, len(order), TEST_BLOCK)
            for name in ids
            for unit in units_of(name, Part.TEST, order[start : start + TEST_BLOCK])
        ]
        self._progress.planned = len(units)
        if not await self._run_all(units, Purpose.TEST):
            return None
        rows = {label: parts.ledger.rollouts(candidate=name, part=Part.TEST) for label, name in contenders.items()}
        difference = compare_records(rows["seed"], rows["winner"], parts.weights)
        strict = compare_records(rows["seed"], rows["winner"], parts.weights, missing_as_zero=True)
        verdict = difference.verdict
        if verdict == "better" and strict.verdict != "better":
            verdict = "indecisive"
        won = estimate_records(rows["winner"], parts.weights)
        reading: dict[str, Any] = {
            "verdict": verdict,
            "winner_id": winner,
            "seed_id": best_seed,
            "winner": summary(rows["winner"], parts.weights),
            "seed": summary(rows["seed"], parts.weights),
            "paired_difference": difference.difference,
            "paired_interval": [difference.low, difference.high],
            "paired": difference.to_json(),
            "optimism_gap": self._selection_mean(winner) - won.mean,
            "controls": {
                label: {
                    "id": name,
                    **summary(rows[label], parts.weights),
                    "winner_minus_control": compare_records(rows[label], rows["winner"], parts.weights).to_json(),
                }
                for label, name in controls.items()
            },
            "tasks": {name: len(environment.tasks(Split.TEST)) for name, environment in parts.environments.items()},
            "complete": all(len(found) == len(refs) for found in rows.values()),
        }
        return self._conclude(reading)

    def _selection_mean(self, winner: str) -> float:
        """Return the winner's val mean over search and race, which it was chosen by."""
        rows = self._parts.ledger.rollouts(candidate=winner, part=Part.VAL)
        chosen_by = [row for row in rows if row.purpose in (Purpose.SEARCH, Purpose.RACE)]
        return estimate_records(chosen_by, self._parts.weights).mean

    def _conclude(self, reading: dict[str, Any]) -> dict[str, Any]:
        self._parts.ledger.add_decision("final", reading)
        return reading

    async def _run_all(self, units: Iterable[RolloutUnit], purpose: Purpose) -> bool:
        """Run all units, as many at once as the spec says; False when stopped before the end.

        When the hours are used up, the rest is left out: the order of units is random, so what there is stays fair.
        """
        parts = self._parts
        waiting = iter([unit for unit in units if parts.ledger.rollout(unit) is None])
        running: set[asyncio.Task[RolloutRecord]] = set()
        stopped = False
        try:
            while True:
                for unit in itertools.islice(waiting, parts.spec.concurrency - len(running)):
                    stopped = self._stopping()
                    if stopped or self._out_of_time():
                        waiting = iter(())
                        break
                    running.add(
                        asyncio.create_task(parts.evaluator.evaluate(unit, purpose, self._twin(unit.candidate)))
                    )
                if not running:
                    return not stopped
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    self._take_in(task.result())
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _out_of_time(self) -> bool:
        hours = self._parts.budget.caps.hours
        return hours is not None and self._parts.ledger.running_seconds() >= hours * 3600

    def _twin(self, candidate: str) -> str | None:
        """Return the seed that has the same files as a control, whose rollouts then count for both."""
        parts = self._parts
        if not candidate.startswith(CONTROL_PREFIX):
            return None
        digest = parts.controls[candidate].digest
        return next((s for s, t in zip(parts.setup.seeds, parts.seeds, strict=True) if t.digest == digest), None)

    def _take_in(self, record: RolloutRecord) -> None:
        progress = self._progress
        progress.done += 1
        progress.last = record
        progress.missing += record.status is RolloutStatus.INFRA_ERROR
        progress.spent = self._parts.budget.spent
        progress.running_s = self._parts.ledger.running_seconds()
        self._observer(progress)

    def _phase(self, name: str) -> None:
        self._progress.phase, self._progress.done, self._progress.planned = name, 0, None
        self._observer(self._progress)
