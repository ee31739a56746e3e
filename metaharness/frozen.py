"""The frozen spec of a campaign: resolved, written once, compared on resume."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from metaharness.archive import Archive
from metaharness.bundled import bundled_dir
from metaharness.errors import ArchiveError, unknown_name
from metaharness.harnesses import bundled_harnesses
from metaharness.spec import CampaignSpec, load_spec

SPEC_FILE = "spec.toml"


def resolve_spec(spec: CampaignSpec, base: Path) -> CampaignSpec:
    """Return the spec with relative paths made absolute, so that a resume does not depend on where it is started."""

    def absolute(ref: str, names: Mapping[str, Path]) -> str:
        return str((base / ref).resolve()) if ref not in names and (base / ref).exists() else ref

    harnesses = bundled_harnesses()
    environments = {path.name: path for path in bundled_dir("envs").iterdir()}
    return spec.model_copy(
        update={
            "seeds": tuple(absolute(seed, harnesses) for seed in spec.seeds),
            "environments": tuple(
                item.model_copy(update={"ref": absolute(item.ref, environments)}) for item in spec.environments
            ),
            "proposers": tuple(
                item.model_copy(update={"donors": tuple(absolute(donor, harnesses) for donor in item.donors)})
                if item.donors is not None
                else item
                for item in spec.proposers
            ),
        }
    )


def freeze_spec(spec: CampaignSpec) -> str:
    """Return the text of the frozen spec.toml."""
    return tomli_w.dumps(spec.model_dump(mode="json", exclude_none=True))


def first_difference(frozen: CampaignSpec, given: CampaignSpec) -> str | None:
    """Return the first field in which two specs differ (`budget.rollouts: 100 became 200`), or None."""

    def walk(path: str, before: Any, after: Any) -> str | None:
        if isinstance(before, dict) and isinstance(after, dict):
            for name in sorted(before.keys() | after.keys()):
                found = walk(f"{path}.{name}" if path else name, before.get(name), after.get(name))
                if found:
                    return found
            return None
        return None if before == after else f"{path}: {before!r} became {after!r}"

    return walk("", frozen.model_dump(mode="json"), given.model_dump(mode="json"))


def read_frozen_spec(archive: Archive, name: str) -> CampaignSpec:
    """Return the spec that a campaign was started with.

    Raises:
        ArchiveError: There is no such campaign.
    """
    path = archive.campaign_dir(name) / SPEC_FILE
    if not path.is_file():
        known = archive.campaigns()
        if name in known:
            raise ArchiveError(f"campaign {name!r}: {path} is gone, without which it can be neither read nor resumed")
        raise ArchiveError(unknown_name("campaign", name, known))
    return load_spec(path)
