"""Greedy hill climbing: one challenger at a time against the incumbent, on the same tasks, in rungs."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pydantic import Field

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


class GreedyOptions(LookOptions):
    """Options of `greedy`.

    Attributes:
        crossover: Probability that a proposal gets a second parent, one of the best others.
        patience: Proposals in a row from which nothing new came before the search stops.
    """

    crossover: float = Field(default=0.3, ge=0, le=1)
    patience: int = Field(default=20, ge=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What remains of a candidate that is no longer looked at."""

    candidate: str
    mean: float
    tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedyState:
    """State of `greedy`.

    Attributes:
        options: Options.
        tasks: Practice and val tasks, in the order in which they are used.
        random_seed: Seeds the choice of second parents.
        waiting: Candidates that wait for their turn (seeds, then proposals).
        incumbent: Best so far.
        challenger: Candidate under evaluation.
        rung: Rung that the challenger is on; -1 is the practice look.
        standings: All others, as they were left.
        proposals: Proposals started.
        proposing: Proposals under way.
        fruitless: Proposals in a row that led to no candidate.
    """

    options: GreedyOptions
    tasks: dict[Part, tuple[TaskRef, ...]]
    random_seed: int
    waiting: tuple[str, ...]
    incumbent: Evidence | None = None
    challenger: Evidence | None = None
    rung: int = -1
    standings: tuple[Standing, ...] = ()
    proposals: int = 0
    proposing: int = 0
    fruitless: int = 0


class Greedy:
    """Accept a challenger when it is ahead of the incumbent on the same tasks after the last rung.

    A challenger is dropped when it is behind by more than one standard error of the paired difference, and from the
    second rung on when it is not ahead: most changes change nothing, and a search lives from trying many.
    """

    def start(self, setup: SearchSetup) -> GreedyState:
        """Return the first state: seeds wait, nothing is known."""
        state = GreedyState(
            options=parse_options(GreedyOptions, setup.options),
            tasks={part: shuffled(setup.tasks[part], setup.random_seed) for part in (Part.PRACTICE, Part.VAL)},
            random_seed=setup.random_seed,
            waiting=setup.seeds,
        )
        return self._next(state)

    def decide(self, state: GreedyState, room: Room) -> Decision:
        """Return what to do next."""
        if room.rollouts is not None and room.rollouts < 1:
            return Stop(reason="the rollouts of the search are used up")
        if room.fraction <= 0:
            return Stop(reason="the budget of the search is used up")
        if state.challenger is not None:
            todo = self._todo(state)
            return Evaluate(unit=todo[0]) if todo else Wait()
        if state.proposing:
            return Wait()
        if room.proposals is not None and room.proposals < 1:
            return Stop(reason="the proposals are used up")
        if state.fruitless >= state.options.patience:
            return Stop(reason=f"{state.fruitless} proposals in a row gave no new candidate")
        if state.incumbent is None:
            return Stop(reason="no seed could be evaluated")
        return Propose(parents=self._parents(state))

    def observe(self, state: GreedyState, event: Event) -> GreedyState:
        """Return the state after an event."""
        match event:
            case Dispatched(decision=Propose()):
                return replace(state, proposals=state.proposals + 1, proposing=state.proposing + 1)
            case Dispatched(decision=Evaluate(unit=unit)):
                return self._update(state, unit.candidate, lambda evidence: evidence.dispatch(unit))
            case RolloutEnded(record=ended):
                changed = self._update(state, ended.unit.candidate, lambda evidence: evidence.add(ended))
                return self._advance(changed)
            case ProposalEnded(record=made):
                state = replace(
                    state, proposals=max(state.proposals, made.number + 1), proposing=max(0, state.proposing - 1)
                )
                if made.candidate is None or made.verdict == "duplicate":
                    return replace(state, fruitless=state.fruitless + 1)
                return self._next(replace(state, fruitless=0, waiting=(*state.waiting, made.candidate)))
        return state

    def finalists(self, state: GreedyState, count: int) -> Sequence[str]:
        """Return the incumbent, then the others by how many val tasks they survived and their mean."""
        ranked = sorted(state.standings, key=lambda s: (-s.tasks, -s.mean if s.mean == s.mean else 1.0, s.candidate))
        first = [state.incumbent.candidate] if state.incumbent else []
        return [*first, *(standing.candidate for standing in ranked)][:count]

    def _parents(self, state: GreedyState) -> tuple[str, ...]:
        assert state.incumbent is not None
        base = state.incumbent.candidate
        draw = random.Random(f"{state.random_seed}:{state.proposals}")  # noqa: S311 - a search, not a secret
        others = [standing.candidate for standing in sorted(state.standings, key=lambda s: -s.mean)[:4]]
        if others and draw.random() < state.options.crossover:
            return base, draw.choice(others)
        return (base,)

    def _update(self, state: GreedyState, candidate: str, change: Callable[[Evidence], Evidence]) -> GreedyState:
        if state.challenger is not None and state.challenger.candidate == candidate:
            return replace(state, challenger=change(state.challenger))
        if state.incumbent is not None and state.incumbent.candidate == candidate:
            return replace(state, incumbent=change(state.incumbent))
        return state

    def _next(self, state: GreedyState) -> GreedyState:
        """Let the next waiting candidate challenge, when none does."""
        if state.challenger is not None or not state.waiting:
            return state
        challenger = Evidence(candidate=state.waiting[0])
        return replace(state, challenger=challenger, rung=-1, waiting=state.waiting[1:])

    def _wanted(self, state: GreedyState, candidate: str) -> list[RolloutUnit]:
        """Return all units that the current rung needs of a candidate."""
        units = units_of(candidate, Part.PRACTICE, state.tasks[Part.PRACTICE][: state.options.practice])
        if state.rung >= 0:
            units += units_of(candidate, Part.VAL, state.tasks[Part.VAL][: state.options.rungs[state.rung]])
        return units

    def _todo(self, state: GreedyState) -> list[RolloutUnit]:
        assert state.challenger is not None
        todo = state.challenger.todo(self._wanted(state, state.challenger.candidate))
        if state.incumbent is not None:
            todo += state.incumbent.todo(self._wanted(state, state.incumbent.candidate))
        return todo

    def _advance(self, state: GreedyState) -> GreedyState:
        """Move the challenger up a rung, drop it, or let it take over, as far as the evidence goes."""
        while state.challenger is not None:
            challenger, incumbent = state.challenger, state.incumbent
            if not challenger.done(self._wanted(state, challenger.candidate)):
                return state
            if incumbent is not None and not incumbent.done(self._wanted(state, incumbent.candidate)):
                return state
            broken = bool(challenger.rewards) and challenger.errors == len(challenger.rewards)
            difference, error = self._lead(state)
            last = state.rung == len(state.options.rungs) - 1 or self._val_used_up(state)
            must_lead = last or state.rung >= 1
            if broken or (incumbent is not None and (difference < -error or (must_lead and not difference > 0))):
                state = self._retire(replace(state, challenger=None), challenger)
            elif last:
                state = replace(state, incumbent=challenger, challenger=None)
                if incumbent is not None:
                    state = self._retire(state, incumbent)
            else:
                state = replace(state, rung=state.rung + 1)
                continue
            state = self._next(state)
        return state

    def _val_used_up(self, state: GreedyState) -> bool:
        return state.rung >= 0 and state.options.rungs[state.rung] >= len(state.tasks[Part.VAL])

    def _lead(self, state: GreedyState) -> tuple[float, float]:
        """Return the challenger's mean paired lead and its standard error, on val once there is any."""
        assert state.challenger is not None
        if state.incumbent is None:
            return 0.0, 0.0
        part = Part.VAL if state.rung >= 0 else Part.PRACTICE
        mine, theirs = state.challenger.by_task(part), state.incumbent.by_task(part)
        pairs = [
            (ref.weight, mine[key] - theirs[key])
            for ref in state.tasks[part]
            if (key := (ref.environment, ref.task)) in mine and key in theirs
        ]
        total = sum(weight for weight, _ in pairs)
        if not total:
            return 0.0, math.inf
        mean = sum(weight * lead for weight, lead in pairs) / total
        spread = sum((weight * (lead - mean)) ** 2 for weight, lead in pairs)
        # One imagined opposite pair keeps a handful of equal pairs from looking certain.
        return mean, math.sqrt(spread + (total / len(pairs)) ** 2) / total

    def _retire(self, state: GreedyState, evidence: Evidence) -> GreedyState:
        values = evidence.by_task(Part.VAL)
        mean = weighted_mean(values, state.tasks[Part.VAL])
        if not values:
            mean = weighted_mean(evidence.by_task(Part.PRACTICE), state.tasks[Part.PRACTICE])
        standing = Standing(candidate=evidence.candidate, mean=mean, tasks=len(values))
        return replace(state, standings=(*state.standings, standing))
