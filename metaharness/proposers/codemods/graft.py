"""`graft`: take one step over from another harness."""

from __future__ import annotations

from collections.abc import Iterator

from metaharness.proposers.codemods.material import Material, Move, Source
from metaharness.proposers.codemods.module import StepModule
from metaharness.proposers.codemods.transplant import Site, reads_examples, take_function, take_learning
from metaharness.proposers.codemods.wrap import PARSE
from metaharness.source import SourceTree

NAME = "graft"
WRAPPED = ("_once", "_unchecked")
"""Endings of the names that `wrap_vote` and `wrap_retry` give to what they wrap: still the same step."""
SCORING = 1.5
"""Weight of comparing log-probabilities: small models know more than they say (Zhao et al. 2021)."""
SETTLED = 0.4
"""Weight of replacing a step that has been changed with success: others have more to gain."""
READABLE = 0.1
"""Weight of another way to read answers where all can be read."""
BEHIND = 0.4
"""Weight of a donor that does worse than the base."""


def moves(material: Material) -> list[Move]:
    """Return a move for every step that a donor does in another way under the same name and signature.

    What several donors do alike, helpers and constants included, is offered once, from the first of them.
    """
    found: list[Move] = []
    for path, site in material.sites.items():
        offered: set[tuple[str, str]] = set()
        for donor in material.donors:
            for other, target, source in pairs(site, donor):
                key = target, code_of(other, source)
                if key not in offered:
                    offered.add(key)
                    found.append(_move(material, path, donor, other, target, source))
    return found


def pairs(site: Site, donor: Source) -> Iterator[tuple[StepModule, str, str]]:
    """Yield the donor's module, a function of the site and the donor's function that could replace it."""
    for other in donor.modules.values():
        for target in site.module.functions:
            for source in dict.fromkeys((target, _stem(target))):
                if source not in other.functions or site.module.signatures[target] != other.signatures[source]:
                    continue
                # A harness is a program around a model: no step that asks it gives way to one that does not.
                if asks_model(site.module, target) and not asks_model(other, source):
                    continue
                if target != source or site.module.plain[target] != other.plain[source]:
                    yield other, target, source


def asks_model(module: StepModule, name: str) -> bool:
    """Return whether a function, or one that it calls in its module, asks the model."""
    code = "\n".join(module.plain[found] for found in module.closure([name]))
    return ".complete(" in code or ".choose(" in code


def take_step(site: Site, target: str, donor: Source, other: StepModule, source: str) -> StepModule | None:
    """Return the site's module with a step of the donor, and with its learning where the step needs that.

    Args:
        site: Where it goes.
        target: Function that is replaced.
        donor: Harness that it comes from.
        other: The donor's module.
        source: Function that is taken.
    """
    module = take_function(site, target, other, source, donor.name)
    if module is None:
        return None
    if reads_examples(module, module.closure([target])) and donor.entry is not None:
        path, name = donor.entry
        here = Site(module=module, entry=site.entry, outside=site.outside)
        module = take_learning(here, donor.modules[path], name) or module if path in donor.modules else module
    return module


def code_of(module: StepModule, name: str) -> str:
    """Return the code of a function with the helpers and constants that it needs."""
    return "\n".join(module.plain[other] for other in module.closure([name]))


def _move(material: Material, path: str, donor: Source, other: StepModule, target: str, source: str) -> Move:
    def apply() -> SourceTree | None:
        module = take_step(material.sites[path], target, donor, other, source)
        return material.changed(path, module, f"`{target}`", f"from {donor.name}")

    return Move(
        mechanism=f"{NAME} {target} from {donor.name}",
        hypothesis=f"`{target}` as {donor.name} does it may work better here: {_summary(other, source)}",
        apply=apply,
        weight=_weight(material, donor, other, target, source),
        donor=donor.candidate,
        details={"donor": donor.name, "target": target, "path": path},
    )


def _weight(material: Material, donor: Source, other: StepModule, target: str, source: str) -> float:
    """Weigh a graft by how the base fails, and by what is known of the step and of the donor."""
    evidence = material.evidence
    # The more is still wrong, the less a first success settles.
    weight = SETTLED + (1.0 - SETTLED) * evidence.share(evidence.wrong) if target in evidence.settled else 1.0
    if donor.candidate in evidence.behind:
        weight *= BEHIND
    if target == PARSE and evidence.rollouts and not evidence.unusable:
        weight *= READABLE
    code = code_of(other, source)
    if ".choose(" in code:
        weight *= SCORING
    if "schema=" in code or ".choose(" in code:
        # It cannot answer in the wrong form.
        weight *= 1.0 + 2.0 * evidence.share(evidence.unusable)
    return weight


def _summary(module: StepModule, name: str) -> str:
    text = module.functions[name].get_docstring() or name
    first = text.strip().splitlines()[0].rstrip(".")
    return f"{first[:1].lower()}{first[1:]}."


def _stem(name: str) -> str:
    for ending in WRAPPED:
        name = name.removesuffix(ending)
    return name
