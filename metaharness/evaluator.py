"""Many rollouts: bounded concurrency, one row for each, fits made once, retries of what infrastructure broke."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from metaharness.budget import Budget, Usage
from metaharness.errors import BudgetExhausted
from metaharness.exchange import canonical_json
from metaharness.history import History
from metaharness.ledger import FitRecord, Ledger
from metaharness.protocols import Environment
from metaharness.rollout import RolloutOutcome, RolloutRunner, runtime_digest
from metaharness.source import SourceTree
from metaharness.task import FitSet, Part, Task
from metaharness.trajectory import RolloutStatus, write_durably
from metaharness.unit import Purpose, RolloutRecord, RolloutUnit

KEPT = frozenset({RolloutStatus.SCORED, RolloutStatus.HARNESS_ERROR, RolloutStatus.INFRA_ERROR})
"""Outcomes that become a row; the others are run again when they are asked for again."""

ANSWER_PREVIEW_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Everything that is fixed about the environments of a campaign.

    Attributes:
        environments: By name.
        tasks: By environment name and part: tasks by digest.
        fit_sets: By environment name; absent where there is nothing to learn from.
    """

    environments: Mapping[str, Environment]
    tasks: Mapping[str, Mapping[Part, Mapping[str, Task]]]
    fit_sets: Mapping[str, FitSet]


@dataclass(slots=True, kw_only=True)
class Evaluator:
    """Runs rollouts and makes them durable.

    Attributes:
        runner: Runs one.
        ledger: Receives one row for each.
        bench: Environments and tasks.
        budget: Reserved before a rollout starts, settled when it has ended.
        directory: Directory of the campaign.
        history: Receives practice rollouts.
        tree_of: Source of a candidate.
        model_digest: Identity of the model, part of the fit key.
        random_seed: Seeds fits.
        infra_retries: Times that a rollout is repeated after infrastructure failed.
        retry_wait_s: Seconds before the first repetition, doubled each time.
        clock: Unix time.
    """

    runner: RolloutRunner
    ledger: Ledger
    bench: Bench
    budget: Budget
    directory: Path
    history: History
    tree_of: Callable[[str], SourceTree]
    model_digest: str
    random_seed: int = 0
    infra_retries: int = 2
    retry_wait_s: float = 1.0
    clock: Callable[[], float] = time.time
    _fits: dict[str, asyncio.Lock] = field(default_factory=dict)
    _tried: dict[RolloutUnit, RolloutOutcome] = field(default_factory=dict)

    async def evaluate(self, unit: RolloutUnit, purpose: Purpose, inherit_from: str | None = None) -> RolloutRecord:
        """Return the record of a rollout, running it only if no row holds it yet.

        Args:
            unit: What to run.
            purpose: Why.
            inherit_from: Candidate with the same tree; a row of it is taken over at no cost.
        """
        if (known := self.ledger.rollout(unit)) is not None:
            return known
        if inherit_from is not None:
            twin = self.ledger.rollout(replace(unit, candidate=inherit_from))
            if twin is not None and twin.status is not RolloutStatus.INFRA_ERROR:
                record = replace(twin, unit=unit, purpose=purpose, usage=Usage(), inherited_from=inherit_from)
                self.ledger.add_rollout(record)
                return record
        try:
            reservation = self.budget.reserve(Usage(rollouts=1))
        except BudgetExhausted as error:
            return RolloutRecord(unit=unit, purpose=purpose, status=RolloutStatus.BUDGET_STOPPED, error=str(error))
        kept = False
        try:
            outcome = self._tried.pop(unit, None) or await self._run(unit, self.tree_of(unit.candidate))
            kept = outcome.status in KEPT
            return self._keep(unit, purpose, outcome) if kept else _record(unit, purpose, outcome, "", self.clock())
        finally:
            self.budget.settle(reservation, Usage(rollouts=int(kept)))

    async def smoke(self, unit: RolloutUnit, tree: SourceTree) -> str:
        """Try a harness that is no candidate yet on one practice task.

        No row is written yet. When the harness becomes a candidate and is run on that task, this outcome is taken over;
        after a crash in between, the reply cache gives what was paid here. For a harness that is rejected it counts
        against no cap on rollouts, and its model calls against every other cap.

        Returns:
            Why it is not worth being a candidate (it crashed or broke its contract), or an empty text.
        """
        outcome = await self._run(unit, tree)
        if outcome.status is RolloutStatus.SCORED:
            self._tried[unit] = outcome
        return outcome.error if outcome.status is RolloutStatus.HARNESS_ERROR else ""

    async def _run(self, unit: RolloutUnit, tree: SourceTree) -> RolloutOutcome:
        environment = self.bench.environments[unit.environment]
        task = self.bench.tasks[unit.environment][unit.part][unit.task]
        wait_s = self.retry_wait_s
        for repetition in range(self.infra_retries + 1):
            fit = await self._fit(tree, environment)
            if fit is not None and fit.status is not RolloutStatus.SCORED:
                outcome = RolloutOutcome(status=fit.status, error=f"learn: {fit.error}", usage=Usage())
            else:
                outcome = await self.runner.run(
                    unit=unit,
                    tree=tree,
                    environment=environment,
                    task=task,
                    state=fit.state if fit is not None else None,
                )
            if outcome.status is not RolloutStatus.INFRA_ERROR or repetition == self.infra_retries:
                break
            await asyncio.sleep(wait_s)
            wait_s *= 2
        return outcome

    async def _fit(self, tree: SourceTree, environment: Environment) -> FitRecord | None:
        """Return the fit of a tree on an environment, made once; None where there is nothing to learn."""
        fit_set = self.bench.fit_sets.get(environment.info.name)
        if fit_set is None or tree.config.entry is None:
            return None
        key = fit_key(
            tree=tree.digest,
            environment=environment.info.digest,
            fit_set=fit_set.digest,
            model=self.model_digest,
            runtime=runtime_digest(),
            random_seed=self.random_seed,
        )
        async with self._fits.setdefault(key, asyncio.Lock()):
            if (known := self.ledger.get_fit(key)) is not None:
                return known
            outcome = await self.runner.fit(
                tree=tree, environment=environment.info, fit_set=fit_set, seed=self.random_seed
            )
            record = FitRecord(
                key=key, status=outcome.status, state=outcome.state, error=outcome.error, seconds=outcome.seconds
            )
            if outcome.status in (RolloutStatus.SCORED, RolloutStatus.HARNESS_ERROR):
                self.ledger.put_fit(record)
            return record

    def _keep(self, unit: RolloutUnit, purpose: Purpose, outcome: RolloutOutcome) -> RolloutRecord:
        """Write the trajectory, then the row: a row never names a file that is not there."""
        path = ""
        if outcome.trajectory is not None:
            path = trajectory_path(unit)
            text = outcome.trajectory.to_text()
            write_durably(self.directory / path, text.encode())
        record = _record(unit, purpose, outcome, path, self.clock())
        self.ledger.add_rollout(record)
        if unit.part is Part.PRACTICE and purpose is Purpose.SEARCH and outcome.trajectory is not None:
            self.history.add_rollout(record, text)
        return record


def fit_key(*, tree: str, environment: str, fit_set: str, model: str, runtime: str, random_seed: int) -> str:
    """Return the key under which a fit is kept: SHA-256 (hex) of everything that can change what is learned."""
    body = [tree, environment, fit_set, model, runtime, random_seed]
    return hashlib.sha256(canonical_json(body).encode()).hexdigest()


def trajectory_path(unit: RolloutUnit) -> str:
    """Return where a trajectory lies below the campaign's directory; those of the test split lie apart."""
    root = "sealed" if unit.part is Part.TEST else "trajectories"
    return f"{root}/{unit.candidate}/{unit.environment}/{unit.task}/{unit.attempt}.json"


def _record(
    unit: RolloutUnit, purpose: Purpose, outcome: RolloutOutcome, path: str, finished_at: float
) -> RolloutRecord:
    return RolloutRecord(
        unit=unit,
        purpose=purpose,
        status=outcome.status,
        score=outcome.score,
        usage=outcome.usage,
        seconds=outcome.seconds,
        trajectory=path,
        error=outcome.error,
        answer_preview=(outcome.answer or "")[:ANSWER_PREVIEW_CHARS],
        finished_at=finished_at,
    )
