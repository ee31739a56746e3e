"""One proposal: proposer, gate, smoke rollout, commit."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Sequence
from dataclasses import replace

from metaharness.assembly import Assembly
from metaharness.budget import Usage
from metaharness.candidate import Candidate, Finding, Manifest, Proposal, candidate_id
from metaharness.errors import HarnessError, InfraError, MetaharnessError, ProposalFailed
from metaharness.patterns import narrow
from metaharness.protocols import ProposalContext, Proposer
from metaharness.source import SourceTree
from metaharness.strategies.evidence import shuffled
from metaharness.task import Part
from metaharness.trajectory import RolloutStatus
from metaharness.unit import ProposalRecord, RolloutUnit


class Workshop:
    """Turns decisions to propose into candidates."""

    def __init__(self, assembly: Assembly) -> None:
        self._parts = assembly
        self._numbers = len(assembly.ledger.proposals())
        self._candidates = len(assembly.ledger.candidates())
        self._judging = asyncio.Lock()

    @property
    def candidates(self) -> int:
        """Number of candidates, seeds included."""
        return self._candidates

    def take_number(self) -> int:
        """Return the number of the next proposal; numbers of lost ones are used again after a resume."""
        number = self._numbers
        self._numbers += 1
        return number

    async def propose(self, number: int, parents: Sequence[str]) -> list[ProposalRecord]:
        """Make one proposal, judge and record what comes of it.

        Returns:
            One record for each harness that the proposer returned, or one that says why there is none.

        Raises:
            BudgetExhausted: The cap on proposals is reached.
        """
        parts = self._parts
        reservation = parts.budget.reserve(Usage(proposals=1))
        try:
            records = await self._propose(number, parents)
        except BaseException:
            parts.budget.release(reservation)
            raise
        parts.budget.settle(reservation, Usage(proposals=len(records)))
        return records

    async def _propose(self, number: int, parents: Sequence[str]) -> list[ProposalRecord]:
        parts = self._parts
        started = parts.clock()
        proposer = self._choose_proposer(number)
        candidates = tuple(parts.ledger.candidate(parent) for parent in parents)
        base = parts.evaluator.tree_of(parents[0])
        work = parts.directory / "work" / str(number)
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        context = ProposalContext(
            number=number,
            parents=candidates,
            base=base,
            editable=narrow(base.config.editable, parts.spec.scope),
            history=parts.history.root,
            work=work,
            random_seed=_seed(parts.spec.random_seed, number),
        )
        failed = ProposalRecord(
            number=number, parents=tuple(parents), proposer=proposer.name, verdict="failed", finished_at=started
        )
        try:
            proposals = await proposer.propose(context)
        except (ProposalFailed, InfraError, HarnessError) as error:
            return [self._record(failed, None, reason=str(error), started=started)]
        except MetaharnessError:
            raise
        except Exception as error:  # a proposer may be anyone's plug-in: its fault ends its proposal, not the campaign
            reason = f"{type(error).__name__}: {error}"
            return [self._record(failed, None, reason=reason, started=started)]
        finally:
            shutil.rmtree(work, ignore_errors=True)
        if not proposals:
            return [self._record(failed, None, reason="the proposer returned nothing", started=started)]
        records = []
        for index, proposal in enumerate(proposals):
            draft = replace(
                failed,
                number=number if index == 0 else self.take_number(),
                parents=proposal.parents,
                mechanism=proposal.manifest.mechanism,
                usage=proposal.usage,
            )
            # One at a time: the next candidate id belongs to what is judged now.
            async with self._judging:
                try:
                    record = await self._judge(draft, proposal, base, context.editable, started)
                except InfraError as error:
                    record = self._record(draft, None, reason=str(error), started=started)
            records.append(record)
        return records

    async def _judge(
        self, draft: ProposalRecord, proposal: Proposal, base: SourceTree, editable: Sequence[str], started: float
    ) -> ProposalRecord:
        parts = self._parts
        verdict = await asyncio.to_thread(parts.gate.inspect, proposal, base, editable)
        if verdict.duplicate_of is not None:
            known = replace(draft, verdict="duplicate", candidate=verdict.duplicate_of)
            return self._record(known, None, reason=f"the same files as {verdict.duplicate_of}", started=started)
        findings = [finding for finding in verdict.findings if finding.fatal]
        if not findings:
            findings = await self._try_out(proposal)
        if findings:
            parts.archive.commit_rejected(
                campaign=parts.spec.name,
                number=draft.number,
                tree=proposal.tree,
                parents=[parts.ledger.candidate(parent).commit for parent in proposal.parents],
                findings=findings,
                proposer=proposal.proposer,
                created_at=started,
            )
            rejected = replace(draft, verdict="rejected")
            return self._record(rejected, None, reason=str(findings[0]), started=started)
        flags = [finding for finding in verdict.findings if not finding.fatal]
        if verdict.similar_to is not None:
            flags.append(
                Finding(check="duplicate", message=f"the same as {verdict.similar_to} but for form", fatal=False)
            )
        candidate = self.commit(
            tree=proposal.tree,
            parents=proposal.parents,
            proposer=proposal.proposer,
            manifest=proposal.manifest,
            flags=tuple(flags),
        )
        record = self._record(
            replace(draft, verdict="accepted", candidate=candidate.id), candidate, reason="", started=started
        )
        parts.history.add_candidate(candidate, proposal.tree, (proposal.parents[0], base))
        return record

    async def _try_out(self, proposal: Proposal) -> list[Finding]:
        """Import and construct the harness in the sandbox, then run it once on a practice task."""
        parts = self._parts
        check = await parts.evaluator.runner.check(proposal.tree)
        if check.status is RolloutStatus.INFRA_ERROR:
            raise InfraError(f"the harness could not be tried out: {check.error}")
        if not check.ok:
            return [Finding(check="start", message=check.error)]
        ref = shuffled(parts.setup.tasks[Part.PRACTICE], parts.setup.random_seed)[0]
        unit = RolloutUnit(
            candidate=candidate_id(self._candidates), environment=ref.environment, part=Part.PRACTICE, task=ref.task
        )
        error = await parts.evaluator.smoke(unit, proposal.tree)
        return [Finding(check="smoke", message=error)] if error else []

    def commit(
        self,
        *,
        tree: SourceTree,
        parents: Sequence[str],
        proposer: str,
        manifest: Manifest,
        flags: tuple[Finding, ...] = (),
    ) -> Candidate:
        """Commit a tree to the archive under the next candidate id; the ledger's row is the caller's."""
        parts = self._parts
        identifier = candidate_id(self._candidates)
        created_at = parts.clock()
        commit = parts.archive.commit_candidate(
            campaign=parts.spec.name,
            id=identifier,
            tree=tree,
            parents=[parts.ledger.candidate(parent).commit for parent in parents],
            hypothesis=manifest.hypothesis,
            mechanism=manifest.mechanism,
            proposer=proposer,
            name=tree.config.name,
            created_at=created_at,
        )
        self._candidates += 1
        parts.trees[identifier] = tree
        parts.gate.add_known(identifier, tree)
        return Candidate(
            id=identifier,
            campaign=parts.spec.name,
            parents=tuple(parents),
            tree_digest=tree.digest,
            commit=commit,
            proposer=proposer,
            name=tree.config.name,
            manifest=manifest,
            flags=flags,
            created_at=created_at,
        )

    def _record(
        self, record: ProposalRecord, candidate: Candidate | None, *, reason: str, started: float
    ) -> ProposalRecord:
        parts = self._parts
        now = parts.clock()
        record = replace(record, reason=reason, seconds=now - started, finished_at=now)
        parts.ledger.add_proposal(record, candidate)
        parts.history.add_proposal(record, {})
        return record

    def _choose_proposer(self, number: int) -> Proposer:
        parts = self._parts
        draw = random.Random(f"{parts.spec.random_seed}:proposer:{number}")  # noqa: S311 - a search, not a secret
        shares = [share for share, _ in parts.proposers]
        return draw.choices([proposer for _, proposer in parts.proposers], weights=shares)[0]


def _seed(random_seed: int, number: int) -> int:
    return random.Random(f"{random_seed}:proposal:{number}").getrandbits(31)  # noqa: S311 - a search, not a secret
