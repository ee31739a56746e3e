"""`combine`: take a set of steps and numbers from a second parent (crossover)."""

from __future__ import annotations

import itertools

from metaharness.proposers.codemods.graft import pairs, take_step
from metaharness.proposers.codemods.material import Material, Move, Source
from metaharness.proposers.codemods.module import StepModule
from metaharness.proposers.codemods.transplant import Site
from metaharness.source import SourceTree

NAME = "combine"
MOST_STEPS = 6
"""Differing steps of which all sets are tried."""


def moves(material: Material) -> list[Move]:
    """Return a move for every set of steps that the second parent does in another way."""
    partner = material.partner
    if partner is None:
        return []
    found: list[Move] = []
    for path, site in material.sites.items():
        differing = [(other, target) for other, target, source in pairs(site, partner) if target == source]
        differing = differing[:MOST_STEPS]
        for size in range(1, len(differing) + 1):
            # Sets of steps may belong together; single ones are what `graft` does too.
            weight = 1.0 if size > 1 else 0.5
            chosen = itertools.combinations(differing, size)
            found.extend(_move(material, path, partner, steps, weight) for steps in chosen)
        found.extend(_constant_moves(material, path, partner))
    return found


def _move(
    material: Material, path: str, partner: Source, chosen: tuple[tuple[StepModule, str], ...], weight: float
) -> Move:
    names = [target for _, target in chosen]

    def apply() -> SourceTree | None:
        site = material.sites[path]
        for other, target in chosen:
            # What an earlier step brought along may have replaced this one already.
            module = take_step(site, target, partner, other, target) if target in site.module.functions else None
            if module is None:
                return None
            site = Site(module=module, entry=site.entry, outside=site.outside)
        return material.changed(path, site.module, " and ".join(f"`{name}`" for name in names), f"from {partner.name}")

    return Move(
        mechanism=f"{NAME} {' and '.join(names)}",
        hypothesis=f"Both parents do well: {', '.join(names)} of {partner.name} may add to the rest of the base.",
        apply=apply,
        weight=weight,
        donor=partner.candidate,
        details={"donor": partner.name, "target": names, "path": path},
    )


def _constant_moves(material: Material, path: str, partner: Source) -> list[Move]:
    """Take all constants over that both have with different values."""
    site = material.sites[path]
    other = partner.modules.get(path)
    if other is None:
        return []
    names = [
        name
        for name in site.module.constants
        if name in other.constants and site.module.plain[name] != other.plain[name] and not other.uses[name]
    ]
    if not names:
        return []

    def apply() -> SourceTree | None:
        module = site.module
        for name in names:
            module = module.replace(name, other.constants[name])
        return material.changed(path, module, "constants", f"from {partner.name}")

    return [
        Move(
            mechanism=f"{NAME} constants",
            hypothesis=f"The numbers and prompts of {partner.name} may suit the steps of the base: {', '.join(names)}.",
            apply=apply,
            donor=partner.candidate,
            details={"donor": partner.name, "target": names, "path": path},
        )
    ]
