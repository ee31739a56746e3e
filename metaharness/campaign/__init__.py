"""The campaign: search, race, one reading of the test split, and what is written at the end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from metaharness.assembly import Assembly
from metaharness.campaign.final import Final
from metaharness.campaign.loop import Search
from metaharness.campaign.progress import Observer, Progress
from metaharness.errors import InfraError
from metaharness.report.scorecards import scorecard
from metaharness.task import Part
from metaharness.trajectory import RolloutStatus

HEARTBEAT_S = 1.0

__all__ = ["Campaign", "Observer", "Progress", "Result"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a run of a campaign ended.

    Attributes:
        finished: False when it was stopped and can be resumed.
        search_end: Why the search stopped.
        reading: The final reading, as the ledger holds it; None when not finished.
    """

    finished: bool
    search_end: str
    reading: dict[str, Any] | None


class Campaign:
    """Runs an assembled campaign from wherever it is to its end.

    Args:
        assembly: Its parts.
        observe: Called with the live progress after every step.
    """

    def __init__(self, assembly: Assembly, observe: Observer = lambda _: None) -> None:
        self._parts = assembly
        self._observer = observe
        self.progress = Progress(name=assembly.spec.name, caps=assembly.budget.caps)
        self._search = Search(assembly, assembly.end, self.progress, observe)
        self._stopping = False

    def stop(self) -> None:
        """Launch nothing more, let what is under way end, and save; may be called from a signal handler."""
        self._stopping = True
        self._search.stop("stopped on request")

    async def run(self) -> Result:
        """Run to the end, or until `stop`.

        Raises:
            InfraError: Infrastructure failed too often in a row, or nothing at all could be scored.
        """
        parts = self._parts
        if parts.ledger.get_meta("started_at") is None:
            parts.ledger.set_meta("started_at", parts.clock())
        heartbeat = asyncio.create_task(self._heartbeat())
        try:
            return await self._run()
        finally:
            heartbeat.cancel()
            await asyncio.gather(heartbeat, return_exceptions=True)

    async def _run(self) -> Result:
        parts = self._parts
        if known := parts.ledger.decisions("final"):
            return Result(finished=True, search_end="the campaign has ended before", reading=dict(known[-1].data))
        self._search.commit_seeds()
        ended = parts.ledger.decisions("search_end")
        if not ended:
            self._search.reserve_end()
        self._search.replay()
        if ended:
            reason = str(ended[-1].data["reason"])
        else:
            reason = await self._search.run()
            if self._stopping:
                return Result(finished=False, search_end=reason, reading=None)
            parts.ledger.add_decision("search_end", {"reason": reason})
        self._search.release_end()
        self._refuse_empty()
        finalists = parts.strategy.finalists(self._search.state, parts.spec.final.finalists)
        final = Final(parts, parts.end, self.progress, self._observer, lambda: self._stopping)
        reading = await final.run(finalists or parts.setup.seeds[:1])
        if reading is None:
            return Result(finished=False, search_end=reason, reading=None)
        self._write_notes(reading)
        self.progress.phase = "done"
        self._observer(self.progress)
        return Result(finished=True, search_end=reason, reading=reading)

    async def _heartbeat(self) -> None:
        """Add up running time, so that the cap on hours holds over crashes and resumes."""
        loop = asyncio.get_running_loop()
        before = loop.time()
        try:
            while True:
                await asyncio.sleep(HEARTBEAT_S)
                now = loop.time()
                self._parts.ledger.add_running_seconds(now - before)
                before = now
        finally:
            self._parts.ledger.add_running_seconds(loop.time() - before)

    def _refuse_empty(self) -> None:
        """Refuse to draw conclusions when nothing was scored.

        Raises:
            InfraError: Says what the last failure was.
        """
        rows = self._parts.ledger.rollouts()
        if any(row.status is RolloutStatus.SCORED for row in rows):
            return
        last = rows[-1].error if rows else "no rollout fitted into the budget"
        raise InfraError(f"nothing was scored in {len(rows)} rollouts; the last one: {last}")

    def _write_notes(self, reading: dict[str, Any]) -> None:
        """Write every scorecard to its git note; test scores only now that the campaign has ended."""
        parts = self._parts
        notes = {}
        for candidate in parts.ledger.candidates():
            rows = [row for row in parts.ledger.rollouts(candidate=candidate.id) if row.unit.part is not Part.TEST]
            parent = parts.ledger.rollouts(candidate=candidate.parents[0]) if candidate.parents else []
            roles = {"winner": reading.get("winner_id"), "seed": reading.get("seed_id")}
            read = {label: reading[label] for label, name in roles.items() if name == candidate.id and label in reading}
            card = scorecard(candidate, rows, parts.weights, parent=parent, test=read or None)
            notes[candidate.commit] = card.to_json()
        parts.archive.write_notes(notes)
