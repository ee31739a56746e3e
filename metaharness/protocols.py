"""Every protocol in one file: what can be replaced, and by which signature.

Each has one to four methods, and takes and returns the data types of the lower layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from metaharness.candidate import Candidate, Proposal
from metaharness.exchange import ChooseRequest, CompleteRequest, ModelInfo, ModelReply
from metaharness.job import EngineReport, SandboxExit, SandboxJob
from metaharness.score import Score
from metaharness.source import SourceTree
from metaharness.task import Part, Split, Task
from metaharness.unit import ProposalRecord, RolloutRecord, RolloutUnit

# ---------------------------------------------------------------------------------------------- models


@runtime_checkable
class ModelBackend(Protocol):
    """A model, as the host's gateway calls it. Knows nothing of budgets, caches or rollouts."""

    @property
    def info(self) -> ModelInfo:
        """What it is and can do."""
        ...

    async def complete(self, request: CompleteRequest, *, seed: int) -> ModelReply:
        """Answer chat messages.

        Args:
            request: The request.
            seed: Sampling seed in [0, 2**31), for backends that honour one.

        Raises:
            UnsupportedRequest: It cannot do this (tools, schema).
            ModelUnavailable: Provider 5xx, rate limit, time-out; worth a retry.
            ModelRefused: The provider rejected the request itself.
        """
        ...

    async def choose(self, request: ChooseRequest) -> ModelReply:
        """Return log-probabilities of the choices; raises as `complete`."""
        ...

    async def aclose(self) -> None:
        """Give connections and processes back."""
        ...


class ReplyCache(Protocol):
    """Durable replies by `exchange.reply_key`."""

    def get_reply(self, key: str) -> ModelReply | None:
        """Return the reply (marked `cached`), or None."""
        ...

    def put_reply(self, key: str, reply: ModelReply) -> None:
        """Keep a reply; it is durable on return."""
        ...


class ModelPort(Protocol):
    """The model as one rollout sees it on the host: metered, recorded, cached."""

    async def complete(self, request: CompleteRequest) -> ModelReply:
        """As `ModelBackend.complete`, with the campaign's retries; also raises BudgetExhausted."""
        ...

    async def choose(self, request: ChooseRequest) -> ModelReply:
        """As `ModelBackend.choose`, with the campaign's retries; also raises BudgetExhausted."""
        ...


# ------------------------------------------------------------------------------------------- sandboxes


class SandboxProcess(Protocol):
    """A running sandbox: one duplex byte stream, and an end."""

    async def read(self, size: int) -> bytes:
        """Return 1 to `size` bytes of its standard output; empty at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Write all of `data` to its standard input.

        Raises:
            ConnectionError: It reads no more.
        """
        ...

    async def wait(self) -> SandboxExit:
        """Wait for the end (also of the time limit) and for the whole process tree to be gone.

        Raises:
            SandboxUnavailable: It could not be set up after all, or was lost: nothing that the program did.
        """
        ...

    async def kill(self) -> None:
        """End the whole process tree now; `wait` then returns. Harmless when it has ended."""
        ...


@runtime_checkable
class SandboxEngine(Protocol):
    """Starts sandboxes."""

    @property
    def name(self) -> str:
        """For example `bubblewrap`."""
        ...

    async def probe(self) -> EngineReport:
        """Start a trivial sandbox and report what holds on this machine; never raises for an absent engine."""
        ...

    async def launch(self, job: SandboxJob) -> SandboxProcess:
        """Start a fresh sandbox.

        Raises:
            SandboxUnavailable: It could not be started.
        """
        ...

    async def sweep(self) -> Sequence[str]:
        """Remove what dead owners left behind (and only that); return one line for each thing removed."""
        ...


# ---------------------------------------------------------------------------------------- environments


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentInfo:
    """What an environment is.

    Attributes:
        name: Its name.
        digest: SHA-256 (hex) of tasks, scorer and settings: two runs with equal digests are comparable.
        protocol: `offline`, or `online` (a task is a whole stream).
        description: One line.
        has_shell: Whether rollouts get a `Shell`.
        can_fit: Whether train tasks carry labels, so that `learn` can be offered.
        canary: Marker in val and test files, or empty.
    """

    name: str
    digest: str
    protocol: str = "offline"
    description: str = ""
    has_shell: bool = False
    can_fit: bool = True
    canary: str = ""


class EnvironmentSession(Protocol):
    """What one rollout of one task needs around the harness, and the judgement at its end."""

    @property
    def stream(self) -> Sequence[Sequence[Task]] | None:
        """None offline. Online: the stream's batches of labelled tasks; each is solved, then its labels are learned.

        The answer that `score` receives is then the JSON list of all answers, in order.
        """
        ...

    async def shell(self, command: str, timeout_s: float) -> tuple[str, int]:
        """Run a command in the task's container; returns output and exit code.

        Raises:
            UnsupportedRequest: The environment has no shell.
            InfraError: The container is gone.
        """
        ...

    async def score(self, answer: str) -> Score:
        """Judge an answer.

        Raises:
            ScoringFailed: The scorer broke or left its declared range.
        """
        ...

    async def aclose(self) -> None:
        """Give containers and files back."""
        ...


@runtime_checkable
class Environment(Protocol):
    """Tasks in splits, plus how an answer is judged."""

    @property
    def info(self) -> EnvironmentInfo:
        """What it is."""
        ...

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split, in file order."""
        ...

    async def open(self, task: Task) -> EnvironmentSession:
        """Prepare one rollout of `task`.

        Raises:
            InfraError: It could not be prepared.
        """
        ...


class Scorer(Protocol):
    """Judges an answer against a task's label. Pure."""

    def score(self, task: Task, answer: str) -> Score:
        """Return the score.

        Raises:
            ScoringFailed: The label or the scorer is broken.
        """
        ...


# ------------------------------------------------------------------------------------------- proposers


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalContext:
    """What every proposer gets.

    Attributes:
        number: Number of the proposal, from 0.
        parents: Lineage parents that the strategy chose; the first is the base.
        base: Source of the base.
        editable: Path patterns that may be changed (narrowed by the campaign's scope).
        history: Root of the read-only history tree.
        work: Empty writable directory.
        random_seed: Seeds every random choice of this proposal.
    """

    number: int
    parents: tuple[Candidate, ...]
    base: SourceTree
    editable: tuple[str, ...]
    history: Path
    work: Path
    random_seed: int


@runtime_checkable
class Proposer(Protocol):
    """Writes new candidates."""

    @property
    def name(self) -> str:
        """Name for ledger and lineage."""
        ...

    async def propose(self, context: ProposalContext) -> Sequence[Proposal]:
        """Return proposals; usually one, none when nothing can be done.

        Raises:
            ProposalFailed: The attempt failed; the message is recorded.
            InfraError: Something around it failed.
        """
        ...


# ------------------------------------------------------------------------------------------ strategies


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRef:
    """A task as a strategy knows it: no content. `weight` is its share in the mean; all of a part add up to 1."""

    environment: str
    task: str
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSetup:
    """What a strategy starts from.

    Attributes:
        seeds: Candidate ids of the seeds.
        tasks: Practice and val tasks. Order carries no meaning.
        random_seed: Seeds every random choice.
        options: `[strategy.options]` of the spec.
    """

    seeds: tuple[str, ...]
    tasks: Mapping[Part, tuple[TaskRef, ...]]
    random_seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What the search may still spend, reserves for race, test and controls already taken off.

    Attributes:
        rollouts: Rollouts left; None without a cap.
        proposals: Proposals left; None without a cap.
        fraction: Share of the tightest cap that is left, in [0, 1].
    """

    rollouts: int | None = None
    proposals: int | None = None
    fraction: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Propose:
    """Ask a proposer for a child of `parents` (the first is the base)."""

    parents: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate:
    """Run one rollout."""

    unit: RolloutUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing to do until something that is under way has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End the search."""

    reason: str


Decision = Propose | Evaluate | Wait | Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatched:
    """A decision is under way."""

    decision: Propose | Evaluate


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutEnded:
    """A rollout has ended, however."""

    record: RolloutRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalEnded:
    """A proposal has ended; `record.candidate` is None when nothing came of it."""

    record: ProposalRecord


Event = Dispatched | RolloutEnded | ProposalEnded

State = TypeVar("State")


@runtime_checkable
class Strategy(Protocol[State]):
    """Decides what to do next. Pure: state in, decision out; states are immutable.

    On resume the state is rebuilt by folding `observe` over the ledger's rows in order.
    """

    def start(self, setup: SearchSetup) -> State:
        """Return the first state.

        Raises:
            SpecError: An option is unknown or out of range.
        """
        ...

    def decide(self, state: State, room: Room) -> Decision:
        """Return what to do next."""
        ...

    def observe(self, state: State, event: Event) -> State:
        """Return the state after an event."""
        ...

    def finalists(self, state: State, count: int) -> Sequence[str]:
        """Return up to `count` candidate ids, best first; they are raced on val."""
        ...
