"""`Gate`: the checks before a candidate exists, cheapest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from metaharness.candidate import Finding, Proposal, Verdict
from metaharness.errors import HarnessError
from metaharness.gate.contract import check_contract, check_harness
from metaharness.gate.duplicates import KnownTrees
from metaharness.gate.leaks import LeakIndex
from metaharness.gate.limits import check_scope, check_text
from metaharness.gate.parse import parse_tree
from metaharness.protocols import Environment
from metaharness.source import SourceTree


class Gate:
    """A linter, not a boundary: it refuses what is plainly wrong before any rollout is paid for.

    Importing the harness and a smoke rollout follow in the sandbox; they are the caller's. All methods are pure
    computation, and may run in a thread (one at a time).

    Args:
        environments: The campaign's environments, whose texts must not be copied.
        known: Tree digest to candidate id, for candidates that exist already.
        known_normalised: `normalised_digest` to candidate id, likewise.
    """

    def __init__(
        self,
        *,
        environments: Sequence[Environment],
        known: Mapping[str, str] | None = None,
        known_normalised: Mapping[str, str] | None = None,
    ) -> None:
        self._leaks = LeakIndex(environments)
        self._known = KnownTrees(known, known_normalised)

    def add_known(self, candidate: str, tree: SourceTree) -> None:
        """Remember a candidate, so that its duplicates are found.

        Args:
            candidate: Its id.
            tree: Its files.
        """
        self._known.add(candidate, tree)

    def inspect(self, proposal: Proposal, base: SourceTree, editable: Sequence[str]) -> Verdict:
        """Judge a proposal.

        A tree that is a candidate already gets `duplicate_of` and no further check. Otherwise each step runs only when
        those before found nothing fatal.

        Args:
            proposal: The proposal.
            base: Files of its first parent.
            editable: Path patterns that may be changed, narrowed by the campaign's scope.
        """
        tree = proposal.tree
        same = self._known.same(tree)
        if same is not None:
            return Verdict(duplicate_of=same)
        findings = check_scope(tree, base, editable)
        if findings:
            return Verdict(findings=tuple(findings))
        return self._inspect_tree(tree, changed=base.changed_paths(tree))

    def inspect_seed(self, tree: SourceTree) -> Verdict:
        """Judge a harness that no proposer has made: everything but scope and duplicates.

        Args:
            tree: Its files.
        """
        try:
            _ = tree.config
        except HarnessError:
            return Verdict(findings=tuple(check_harness(tree)))
        return self._inspect_tree(tree, changed=None)

    def _inspect_tree(self, tree: SourceTree, changed: Sequence[str] | None) -> Verdict:
        parsed = parse_tree(tree, changed)
        findings: list[Finding] = [*parsed.findings, *check_contract(tree, parsed)]
        if any(finding.fatal for finding in findings):
            return Verdict(findings=tuple(findings))
        findings.extend([*self._leaks.scan(tree, parsed), *check_text(tree)])
        similar = self._known.similar(tree, parsed) if changed is not None else None
        return Verdict(findings=tuple(findings), similar_to=similar)
