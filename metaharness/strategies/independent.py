"""Independent sampling: every proposal from a seed. A baseline: what search without selection finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from metaharness.protocols import (
    Decision,
    Dispatched,
    Evaluate,
    Event,
    ProposalEnded,
    Propose,
    RolloutEnded,
    Room,
    SearchSetup,
    Stop,
    TaskRef,
    Wait,
)
from metaharness.strategies.evidence import Evidence, shuffled, units_of, weighted_mean
from metaharness.strategies.options import LookOptions, parse_options
from metaharness.task import Part
from metaharness.unit import RolloutUnit

PATIENCE = 20
"""Proposals in a row without a new candidate after which the search stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndependentState:
    """State of `independent`.

    Attributes:
        options: Options; every candidate gets the practice look and the last rung.
        tasks: Practice and val tasks, in the order in which they are used.
        seeds: Seeds, from which proposals start in turn.
        open: Candidates that still lack rollouts.
        means: Mean val reward of those that are complete.
        proposals: Proposals started.
        proposing: Proposals under way.
        fruitless: Proposals in a row that led to no candidate.
    """

    options: LookOptions
    tasks: Mapping[Part, tuple[TaskRef, ...]]
    seeds: tuple[str, ...]
    open: Mapping[str, Evidence]
    means: Mapping[str, float] = field(default_factory=dict)
    proposals: int = 0
    proposing: int = 0
    fruitless: int = 0


class Independent:
    """Propose from the seeds in turn, look at every candidate equally long."""

    def start(self, setup: SearchSetup) -> IndependentState:
        """Return the first state: the seeds are to be looked at."""
        return IndependentState(
            options=parse_options(LookOptions, setup.options),
            tasks={part: shuffled(setup.tasks[part], setup.random_seed) for part in (Part.PRACTICE, Part.VAL)},
            seeds=setup.seeds,
            open={seed: Evidence(candidate=seed) for seed in setup.seeds},
        )

    def decide(self, state: IndependentState, room: Room) -> Decision:
        """Return what to do next."""
        if room.rollouts is not None and room.rollouts < 1:
            return Stop(reason="the rollouts of the search are used up")
        if room.fraction <= 0:
            return Stop(reason="the budget of the search is used up")
        for evidence in state.open.values():
            if todo := evidence.todo(self._wanted(state, evidence.candidate)):
                return Evaluate(unit=todo[0])
        if state.open or state.proposing:
            return Wait()
        if room.proposals is not None and room.proposals < 1:
            return Stop(reason="the proposals are used up")
        if state.fruitless >= PATIENCE:
            return Stop(reason=f"{state.fruitless} proposals in a row gave no new candidate")
        return Propose(parents=(state.seeds[state.proposals % len(state.seeds)],))

    def observe(self, state: IndependentState, event: Event) -> IndependentState:
        """Return the state after an event."""
        match event:
            case Dispatched(decision=Propose()):
                return replace(state, proposals=state.proposals + 1, proposing=state.proposing + 1)
            case Dispatched(decision=Evaluate(unit=unit)) if unit.candidate in state.open:
                return self._put(state, state.open[unit.candidate].dispatch(unit))
            case RolloutEnded(record=record) if record.unit.candidate in state.open:
                return self._put(state, state.open[record.unit.candidate].add(record))
            case ProposalEnded(record=record):
                state = replace(
                    state, proposals=max(state.proposals, record.number + 1), proposing=max(0, state.proposing - 1)
                )
                if record.candidate is None or record.verdict == "duplicate":
                    return replace(state, fruitless=state.fruitless + 1)
                return self._put(replace(state, fruitless=0), Evidence(candidate=record.candidate))
        return state

    def finalists(self, state: IndependentState, count: int) -> Sequence[str]:
        """Return the candidates with the highest mean."""
        return sorted(state.means, key=lambda candidate: (-state.means[candidate], candidate))[:count]

    def _wanted(self, state: IndependentState, candidate: str) -> list[RolloutUnit]:
        practice = state.tasks[Part.PRACTICE][: state.options.practice]
        val = state.tasks[Part.VAL][: state.options.rungs[-1]]
        return units_of(candidate, Part.PRACTICE, practice) + units_of(candidate, Part.VAL, val)

    def _put(self, state: IndependentState, evidence: Evidence) -> IndependentState:
        candidate = evidence.candidate
        if not evidence.done(self._wanted(state, candidate)):
            return replace(state, open={**state.open, candidate: evidence})
        values = evidence.by_task(Part.VAL)
        mean = weighted_mean(values, state.tasks[Part.VAL]) if values else -1.0
        rest = {name: other for name, other in state.open.items() if name != candidate}
        return replace(state, open=rest, means={**state.means, candidate: mean})
