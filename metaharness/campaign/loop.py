"""The search: ask the strategy, run what it says, tell it what came of it."""

from __future__ import annotations

import asyncio
import statistics
from collections import deque
from collections.abc import Sequence
from typing import Any

from metaharness.assembly import Assembly
from metaharness.budget import Reservation, Usage
from metaharness.campaign.progress import Observer, Progress
from metaharness.campaign.proposing import Workshop
from metaharness.candidate import Candidate, CandidateStatus, Manifest
from metaharness.errors import BudgetExhausted, InfraError
from metaharness.protocols import (
    Dispatched,
    Evaluate,
    Event,
    ProposalEnded,
    Propose,
    RolloutEnded,
    Room,
    Stop,
)
from metaharness.report.scorecards import estimate_records, scorecard
from metaharness.reserve import EndPlan
from metaharness.task import Part
from metaharness.trajectory import RolloutStatus
from metaharness.unit import ProposalRecord, Purpose, RolloutRecord

MAX_FAILURES_IN_A_ROW = 12
"""Infrastructure failures in a row, retries included, after which the campaign stops instead of burning on."""
MOST_TIME_FOR_THE_END = 0.6
"""Most of the cap on hours that is set aside. On a machine so slow that the end needs more, its reading of the test
split stays incomplete, and says so; a search without time would find nothing to read it for."""
ROWS_TO_BE_BROKEN = 3
"""Rollouts which must all have failed before a candidate is called broken."""
SHOWN_PROPOSALS = 5
FRONTIER_SIZE = 5
FIRST_GUESS_SECONDS = 0.3
"""Seconds of a rollout before enough were measured; the first ones may wait for a model to start."""
PACE_WINDOW = 60
"""Latest rollouts whose median seconds tell the pace; a third of them are enough to believe it."""


class Search:
    """Runs a campaign's search to its end; every step is durable, so it may be killed anywhere.

    Args:
        assembly: The campaign's parts.
        end: What the end of the campaign may use; reserved here before anything is spent.
        progress: Changed as the search goes.
        observe: Called after every change of it.
    """

    def __init__(self, assembly: Assembly, end: EndPlan, progress: Progress, observe: Observer) -> None:
        self._parts = assembly
        self._end = end
        self._progress = progress
        self._observer = observe
        self._workshop = Workshop(assembly)
        self._state: Any = assembly.strategy.start(assembly.setup)
        self._reserved: Reservation | None = None
        self._squeezed = False
        self._failures = 0
        self._usage, self._rollouts = Usage(), 0
        self._seconds: deque[float] = deque(maxlen=PACE_WINDOW)
        self._stopping: str | None = None
        self._leaders: tuple[str, ...] = ()

    @property
    def state(self) -> Any:
        """The strategy's state."""
        return self._state

    def stop(self, reason: str) -> None:
        """Launch nothing more; what is under way ends and is kept."""
        self._stopping = self._stopping or reason

    def reserve_end(self) -> None:
        """Set aside what the end of the campaign needs; before the search, not when it has ended.

        Raises:
            BudgetExhausted: It does not fit into what is left.
        """
        self._reserved = self._parts.budget.reserve(self._end.amount(Usage()))

    def release_end(self) -> None:
        """Give back what was set aside, when the end begins."""
        if self._reserved is not None:
            self._parts.budget.release(self._reserved)
            self._reserved = None

    def commit_seeds(self) -> None:
        """Make the seeds candidates c0000, c0001, … if they are not yet."""
        parts = self._parts
        known = {candidate.id for candidate in parts.ledger.candidates()}
        for identifier, tree in zip(parts.setup.seeds, parts.seeds, strict=True):
            if identifier in known:
                continue
            manifest = Manifest(hypothesis=f"Seed: {tree.config.description or tree.config.name}", mechanism="seed")
            candidate = self._workshop.commit(tree=tree, parents=(), proposer="seed", manifest=manifest)
            parts.ledger.add_candidate(candidate)
        for candidate in parts.ledger.candidates():
            tree = parts.evaluator.tree_of(candidate.id)
            parts.gate.add_known(candidate.id, tree)
            first = candidate.parents[0] if candidate.parents else None
            base = (first, parts.evaluator.tree_of(first)) if first else None
            parts.history.add_candidate(candidate, tree, base)

    def replay(self) -> None:
        """Fold the ledger's rows into the state: what a resume does first."""
        for event in self._parts.ledger.events():
            if isinstance(event, RolloutRecord) and event.purpose is Purpose.SEARCH:
                self._tell(RolloutEnded(record=event))
                self._measure(event)
            elif isinstance(event, ProposalRecord):
                self._tell(ProposalEnded(record=event))
                self._progress.proposals = [*self._progress.proposals, event][-SHOWN_PROPOSALS:]
        self._refresh()

    async def run(self) -> str:
        """Search until the strategy or the budget says stop.

        Returns:
            Why it stopped.

        Raises:
            InfraError: Infrastructure failed too often in a row; resume when it is mended.
        """
        running: set[asyncio.Task[Sequence[Event]]] = set()
        reason = ""
        try:
            while True:
                while not reason and len(running) < self._parts.spec.concurrency:
                    if self._stopping:
                        reason = self._stopping
                        break
                    decision = self._parts.strategy.decide(self._state, self._room())
                    if isinstance(decision, Stop):
                        reason = decision.reason
                        break
                    if not isinstance(decision, Evaluate | Propose):
                        break
                    self._tell(Dispatched(decision=decision))
                    running.add(asyncio.create_task(self._carry_out(decision)))
                if not running:
                    return reason or "the strategy has nothing left to do"
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    for event in task.result():
                        self._take_in(event)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _carry_out(self, decision: Evaluate | Propose) -> Sequence[Event]:
        if isinstance(decision, Evaluate):
            record = await self._parts.evaluator.evaluate(decision.unit, Purpose.SEARCH)
            return [RolloutEnded(record=record)]
        number = self._workshop.take_number()
        try:
            records = await self._workshop.propose(number, decision.parents)
        except BudgetExhausted as error:
            self.stop(str(error))
            records = [
                ProposalRecord(
                    number=number, parents=decision.parents, proposer="", verdict="failed", reason=str(error)
                )
            ]
        return [ProposalEnded(record=record) for record in records]

    def _tell(self, event: Event) -> None:
        self._state = self._parts.strategy.observe(self._state, event)

    def _take_in(self, event: Event) -> None:
        self._tell(event)
        if isinstance(event, RolloutEnded):
            record = event.record
            self._progress.last = record
            self._progress.done += 1
            self._count_failures(record)
            self._measure(record)
            self._note(record.unit.candidate)
            self._write_frontier()
            if record.status is RolloutStatus.BUDGET_STOPPED:
                self.stop(record.error)
        elif isinstance(event, ProposalEnded):
            self._progress.proposals = [*self._progress.proposals, event.record][-SHOWN_PROPOSALS:]
        self._refresh()
        self._observer(self._progress)

    def _count_failures(self, record: RolloutRecord) -> None:
        if record.status is not RolloutStatus.INFRA_ERROR:
            self._failures = 0
            return
        self._progress.missing += 1
        self._failures += 1
        if self._failures >= MAX_FAILURES_IN_A_ROW:
            raise InfraError(
                f"{self._failures} rollouts in a row failed for reasons outside the harness, the last one: "
                f"{record.error}; nothing is lost: mend it, then `metaharness resume {self._parts.spec.name}`"
            )

    def _measure(self, record: RolloutRecord) -> None:
        """Learn what a rollout costs, and set aside for the end accordingly."""
        self._usage += record.usage
        if record.usage.model_calls:
            # One that the reply cache answered says nothing of the end, whose tasks nobody was asked about yet.
            self._seconds.append(record.seconds)
        self._rollouts += 1
        mean = Usage(
            input_tokens=self._usage.input_tokens // self._rollouts,
            output_tokens=self._usage.output_tokens // self._rollouts,
            cost_usd=self._usage.cost_usd / self._rollouts,
        )
        if self._reserved is None:
            return
        try:
            self._reserved = self._parts.budget.resize(self._reserved, self._end.amount(mean))
        except BudgetExhausted:
            self._squeezed = True

    def _room(self) -> Room:
        """Return what is left for the search; what is set aside for the end is already out of `left`."""
        budget = self._parts.budget
        left, aside = budget.left(), self._reserved.amount if self._reserved is not None else Usage()
        reserves = {"rollouts": aside.rollouts, "tokens": aside.tokens, "usd": aside.cost_usd}
        shares = [1.0, 0.0 if self._squeezed else 1.0]
        for name, reserve in reserves.items():
            cap = getattr(budget.caps, name)
            if cap is not None:
                shares.append(left[name] / (cap - reserve) if cap > reserve else 0.0)
        if budget.caps.hours is not None:
            cap_s = budget.caps.hours * 3600
            total_s = cap_s - min(self._end_seconds(), MOST_TIME_FOR_THE_END * cap_s)
            left_s = total_s - self._parts.ledger.running_seconds()
            shares.append(left_s / total_s if total_s > 0 else 0.0)
        return Room(
            rollouts=int(left["rollouts"]) if "rollouts" in left else None,
            proposals=int(left["proposals"]) if "proposals" in left else None,
            fraction=max(0.0, min(shares)),
        )

    def _end_seconds(self) -> float:
        known = len(self._seconds) >= PACE_WINDOW // 3
        pace_s = statistics.median(self._seconds) if known else FIRST_GUESS_SECONDS
        return self._end.seconds(pace_s, self._parts.spec.concurrency)

    def _note(self, identifier: str) -> None:
        """Write the scorecard of a candidate for proposers; git notes follow when the search has ended."""
        parts = self._parts
        candidate = parts.ledger.candidate(identifier)
        rows = parts.ledger.rollouts(candidate=identifier)
        failed = sum(row.status is RolloutStatus.HARNESS_ERROR for row in rows)
        if failed == len(rows) >= ROWS_TO_BE_BROKEN and candidate.status is CandidateStatus.ACTIVE:
            parts.ledger.set_status(identifier, CandidateStatus.BROKEN)
            candidate = parts.ledger.candidate(identifier)
        parts.history.write_scorecard(identifier, self._card(candidate, rows))

    def _write_frontier(self) -> None:
        """Tell proposers which candidates lead, when that has changed."""
        parts = self._parts
        leaders = tuple(parts.strategy.finalists(self._state, FRONTIER_SIZE))
        if leaders == self._leaders:
            return
        self._leaders = leaders
        entries = []
        for identifier in leaders:
            rows = parts.ledger.rollouts(candidate=identifier)
            entries.append(
                {"candidate": identifier, "parts": self._card(parts.ledger.candidate(identifier), rows)["parts"]}
            )
        parts.history.write_frontier(entries)

    def _card(self, candidate: Candidate, rows: Sequence[RolloutRecord]) -> dict[str, Any]:
        parts = self._parts
        parent = parts.ledger.rollouts(candidate=candidate.parents[0]) if candidate.parents else []
        return scorecard(candidate, rows, parts.weights, parent=parent).to_json()

    def _refresh(self) -> None:
        parts, progress = self._parts, self._progress
        progress.spent = parts.budget.spent
        progress.running_s = parts.ledger.running_seconds()
        progress.candidates = self._workshop.candidates
        best = parts.strategy.finalists(self._state, 1)
        if best:
            progress.best = best[0]
            progress.best_val = self._val(best[0])
            progress.seed_val = self._val(parts.setup.seeds[0])

    def _val(self, candidate: str) -> Any:
        rows = self._parts.ledger.rollouts(candidate=candidate, part=Part.VAL, purpose=Purpose.SEARCH)
        return estimate_records(rows, self._parts.weights)
