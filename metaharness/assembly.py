"""Spec to live objects: the one place where parts are put together."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from metaharness.archive import Archive
from metaharness.archive.archive import REPOSITORY_NAME
from metaharness.budget import Budget
from metaharness.environments import load_environment
from metaharness.environments.parts import fit_set, split_parts
from metaharness.errors import ArchiveError, EnvironmentFormatError, HarnessError, SpecError, UserError
from metaharness.evaluator import Bench, Evaluator
from metaharness.exchange import ModelInfo
from metaharness.frozen import SPEC_FILE, freeze_spec, resolve_spec
from metaharness.gate import Gate
from metaharness.harnesses import bundled_harnesses, load_harness, refuse_impossible
from metaharness.history import History
from metaharness.ledger import FILE_NAME, Ledger
from metaharness.models import create_backend, price_of
from metaharness.models.gateway import ModelGateway
from metaharness.models.prices import FREE, Price
from metaharness.proposers import proposer_registry
from metaharness.protocols import Environment, Proposer, SandboxEngine, SearchSetup, Strategy, TaskRef
from metaharness.reserve import EndPlan, plan_end
from metaharness.rollout import RolloutRunner, runtime_digest
from metaharness.sandboxes import select_engine
from metaharness.source import SourceTree
from metaharness.spec import CampaignSpec, ProposerSpec
from metaharness.strategies import strategy_registry
from metaharness.task import Part
from metaharness.trajectory import write_durably
from metaharness.unit import CONTROL_PREFIX

NEIGHBOURS_HARNESS = "neighbour_vote"
"""The bundled harness without a model that the control `neighbours` stands for; it does not compete as `bundled`."""


@dataclass(slots=True, kw_only=True)
class Assembly:
    """The live objects of one campaign.

    Attributes:
        spec: Resolved spec.
        directory: Directory of the campaign.
        archive: Archive that it belongs to.
        ledger: Its ledger; holds the campaign's lock.
        environments: By name.
        weights: Weight of each environment, adding up to 1.
        bench: Environments, tasks, fit sets.
        gateway: The model.
        engine: The sandbox engine.
        budget: Budget, with what earlier runs have spent.
        history: What proposers read.
        evaluator: Runs rollouts.
        gate: Inspects proposals.
        strategy: Decides.
        setup: What the strategy starts from; candidate ids of the seeds are c0000, c0001, …
        proposers: With their shares.
        seeds: Source of each seed, in the order of the spec.
        controls: Source of each control harness by its id (`control-<name>`).
        end: What the end of the campaign may use.
        trees: Sources by candidate id, filled as candidates come up.
        clock: Unix time.
    """

    spec: CampaignSpec
    directory: Path
    archive: Archive
    ledger: Ledger
    environments: Mapping[str, Environment]
    weights: Mapping[str, float]
    bench: Bench
    gateway: ModelGateway
    engine: SandboxEngine
    budget: Budget
    history: History
    evaluator: Evaluator
    gate: Gate
    strategy: Strategy[Any]
    setup: SearchSetup
    proposers: Sequence[tuple[float, Proposer]]
    seeds: Sequence[SourceTree]
    controls: Mapping[str, SourceTree]
    end: EndPlan
    trees: dict[str, SourceTree] = field(default_factory=dict)
    clock: Callable[[], float] = time.time

    async def aclose(self) -> None:
        """Give everything back; the ledger last."""
        await self.gateway.aclose()
        await self.engine.sweep()
        self.archive.close()
        self.ledger.close()


async def assemble(
    spec: CampaignSpec, *, root: Path, base: Path, resume: bool = False, clock: Callable[[], float] = time.time
) -> Assembly:
    """Put a campaign together.

    Everything that can be wrong with the request is found before the campaign's directory is made, so that a
    refused run leaves nothing behind.

    Args:
        spec: The spec; for a resume, the frozen one.
        root: Directory of the archive; made if absent.
        base: Directory that relative paths in the spec start from.
        resume: Continue a campaign that exists, instead of starting one.
        clock: Unix time.

    Raises:
        UserError: One line: what is wrong, where, and what to do.
    """
    known = None if not resume and _can_be_made(root) else Archive.open(root, create=not resume)
    if known is not None and not resume and (known.campaign_dir(spec.name) / SPEC_FILE).exists():
        raise ArchiveError(
            f"campaign {spec.name!r} exists in {root}: continue it with `metaharness resume {spec.name}`, "
            "or give the spec another name"
        )
    given = spec.seeds
    spec = resolve_spec(spec, base)
    seeds = []
    for number, ref in enumerate(spec.seeds):
        with _field(f"seeds[{number}]"):
            seeds.append(load_harness(ref, base=base, archive=known))
    environments, weights = _environments(spec, base)
    gate = Gate(environments=list(environments.values()))
    for ref, tree in zip(given, seeds, strict=True):
        _refuse_broken(gate, ref, tree)
        refuse_impossible(spec, ref, tree)
    bench = _bench(environments)
    controls = _controls(spec)
    end = plan_end(spec, environments, bundled=max(0, len(controls) - 1))
    with _field("strategy.kind"):
        strategy: Strategy[Any] = strategy_registry().load(spec.strategy.kind)()
    setup = SearchSetup(
        seeds=tuple(f"c{number:04d}" for number in range(len(seeds))),
        tasks={part: _refs(bench, weights, part) for part in (Part.PRACTICE, Part.VAL)},
        random_seed=spec.random_seed,
        options=spec.strategy.options,
    )
    strategy.start(setup)
    proposers = [
        (item.share, _proposer(f"proposers[{number}]", item, base, known)) for number, item in enumerate(spec.proposers)
    ]
    backend = create_backend(spec.model)
    try:
        price = price_of(spec.model)
        _refuse_endless(spec, price)
        with _field("sandbox.engine"):
            engine = await select_engine(spec.sandbox.engine)
        await engine.sweep()
        archive = known or Archive.open(root, create=True)
        directory = archive.campaign_dir(spec.name)
        ledger = _open_ledger(
            directory,
            spec,
            {
                "environments": {name: environment.info.digest for name, environment in environments.items()},
                "weights": weights,
                "engine": engine.name,
                "fit_sets": {name: found.digest for name, found in bench.fit_sets.items()},
                "runtime": runtime_digest(),
            },
            resume=resume,
        )
    except BaseException:
        await backend.aclose()
        raise
    budget = Budget(spec.budget.caps(), spent=ledger.spent())
    gateway = ModelGateway(
        backend,
        budget=budget,
        replies=ledger.reply_cache("rollouts"),
        price=price,
        default_temperature=spec.model.temperature,
        timeout_s=spec.model.timeout_s,
        retries=spec.model.retries,
    )
    _refuse_other_model(ledger, gateway.info)
    history = History(directory / "history")
    trees: dict[str, SourceTree] = {}

    def tree_of(candidate: str) -> SourceTree:
        if candidate not in trees:
            trees[candidate] = (
                controls[candidate] if candidate in controls else archive.read_tree(ledger.candidate(candidate).commit)
            )
        return trees[candidate]

    runner = RolloutRunner(
        engine=engine,
        gateway=gateway,
        limits=spec.sandbox.limits(),
        stage=directory / "stage",
        campaign=spec.name,
        clock=clock,
    )
    evaluator = Evaluator(
        runner=runner,
        ledger=ledger,
        bench=bench,
        budget=budget,
        directory=directory,
        history=history,
        tree_of=tree_of,
        model_digest=gateway.info.digest,
        random_seed=spec.random_seed,
        clock=clock,
    )
    return Assembly(
        spec=spec,
        directory=directory,
        archive=archive,
        ledger=ledger,
        environments=environments,
        weights=weights,
        bench=bench,
        gateway=gateway,
        engine=engine,
        budget=budget,
        history=history,
        evaluator=evaluator,
        gate=gate,
        strategy=strategy,
        setup=setup,
        proposers=proposers,
        seeds=seeds,
        controls=controls,
        end=end,
        trees=trees,
        clock=clock,
    )


def _can_be_made(root: Path) -> bool:
    """Return whether there is no archive yet and one can be made; opening it says what is wrong otherwise."""
    if os.access(root / REPOSITORY_NAME, os.F_OK):
        return False
    way = (root.absolute(), *root.absolute().parents)
    nearest = next(path for path in way if os.access(path, os.F_OK))
    return os.access(nearest, os.W_OK | os.X_OK)


def _refuse_endless(spec: CampaignSpec, price: Price) -> None:
    """Refuse a cap that nothing would ever reach."""
    caps = spec.budget
    if price == FREE and caps.usd is not None and caps.rollouts is caps.tokens is caps.hours is caps.proposals is None:
        raise SpecError(
            f"budget.usd: calls of {spec.model.ref} are counted as 0 dollars, so this cap alone would never end the "
            "campaign: set rollouts, tokens or hours too"
        )


def _refuse_broken(gate: Gate, ref: str, tree: SourceTree) -> None:
    for finding in gate.inspect_seed(tree).findings:
        if finding.fatal:
            raise HarnessError(f"seed {ref!r}: {finding}")


def _environments(spec: CampaignSpec, base: Path) -> tuple[dict[str, Environment], dict[str, float]]:
    environments: dict[str, Environment] = {}
    weights: dict[str, float] = {}
    for number, item in enumerate(spec.environments):
        try:
            environment = load_environment(item.ref, base=base, limits=(item.max_train, item.max_val, item.max_test))
        except EnvironmentFormatError as error:
            raise EnvironmentFormatError(f"environments[{number}].ref {item.ref!r}: {error}") from error
        name = environment.info.name
        if name in environments:
            raise SpecError(f"environments[{number}].ref: {name!r} is named twice")
        environments[name] = environment
        weights[name] = item.weight
    total = sum(weights.values())
    return environments, {name: weight / total for name, weight in weights.items()}


def _bench(environments: Mapping[str, Environment]) -> Bench:
    tasks = {}
    fit_sets = {}
    for name, environment in environments.items():
        parts = split_parts(environment)
        tasks[name] = {part: {task.digest: task for task in parts[part]} for part in parts}
        if environment.info.can_fit:
            fit_sets[name] = fit_set(environment)
    return Bench(environments=environments, tasks=tasks, fit_sets=fit_sets)


def _refs(bench: Bench, weights: Mapping[str, float], part: Part) -> tuple[TaskRef, ...]:
    return tuple(
        TaskRef(environment=name, task=digest, weight=weights[name] / len(parts[part]))
        for name, parts in bench.tasks.items()
        for digest in parts[part]
    )


def _proposer(where: str, item: ProposerSpec, base: Path, archive: Archive | None) -> Proposer:
    donors = {}
    for number, name in enumerate(item.donors if item.donors is not None else bundled_harnesses()):
        with _field(f"{where}.donors[{number}]"):
            donors[Path(name).name] = load_harness(name, base=base, archive=archive)
    with _field(f"{where}.kind"):
        found: Proposer = proposer_registry().load(item.kind)(donors=donors)
    return found


@contextmanager
def _field(where: str) -> Iterator[None]:
    """Put the field of the spec before what is wrong with its value."""
    try:
        yield
    except UserError as error:
        raise type(error)(f"{where}: {error}") from error


def _controls(spec: CampaignSpec) -> dict[str, SourceTree]:
    wanted: list[str] = []
    if "bundled" in spec.final.controls:
        wanted += [name for name in bundled_harnesses() if name != NEIGHBOURS_HARNESS]
    if "neighbours" in spec.final.controls:
        wanted.append(NEIGHBOURS_HARNESS)
    return {f"{CONTROL_PREFIX}{name}": load_harness(name, base=Path()) for name in wanted}


def _open_ledger(
    directory: Path,
    spec: CampaignSpec,
    settings: Mapping[str, Any],
    *,
    resume: bool,
) -> Ledger:
    """Open the ledger, or make it after the spec is written: whatever has a spec can be resumed."""
    if not resume:
        write_durably(directory / SPEC_FILE, freeze_spec(spec).encode())
    ledger = Ledger.open(directory) if (directory / FILE_NAME).is_file() else Ledger.create(directory)
    known = ledger.get_meta("environments")
    digests = settings["environments"]
    if known is not None and known != digests:
        ledger.close()
        changed = sorted(name for name in digests if known.get(name) != digests[name])
        raise UserError(
            f"environments: {', '.join(changed)} changed since the campaign began; its scores would not be "
            "comparable: start a new campaign"
        )
    for name, value in settings.items():
        ledger.set_meta(name, value)
    return ledger


def _refuse_other_model(ledger: Ledger, info: ModelInfo) -> None:
    """Record what the model is, or refuse to go on with another one under the same name."""
    known = ledger.get_meta("model")
    found = {**asdict(info), "digest": info.digest}
    if known is not None and known["digest"] != info.digest:
        changed = sorted(
            name
            for name in known["identity"].keys() | info.identity.keys()
            if known["identity"].get(name) != found["identity"].get(name)
        )
        ledger.close()
        raise UserError(
            f"model.ref: {info.ref} is not what it was when the campaign began ({', '.join(changed)} changed); its "
            "scores would not be comparable: start a new campaign"
        )
    ledger.set_meta("model", found)
