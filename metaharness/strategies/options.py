"""`[strategy.options]`: names, kinds and ranges, checked in one place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from metaharness.errors import SpecError
from metaharness.validation import first_error


class LookOptions(BaseModel):
    """How much of a candidate is looked at.

    Attributes:
        practice: Practice tasks of the first look; they also give proposers something to read.
        rungs: Val tasks after which a challenger is compared with the incumbent, growing.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    practice: int = Field(default=8, ge=0)
    rungs: tuple[int, ...] = (12, 24, 48)


Options = TypeVar("Options", bound=LookOptions)


def parse_options(model: type[Options], options: Mapping[str, Any]) -> Options:
    """Validate `[strategy.options]`.

    Raises:
        SpecError: One line that names the option.
    """
    try:
        found = model.model_validate(dict(options))
    except ValidationError as error:
        raise SpecError(f"strategy.options.{first_error(error, model)}") from error
    if not found.rungs or list(found.rungs) != sorted(set(found.rungs)) or found.rungs[0] < 1:
        raise SpecError(f"strategy.options.rungs: give growing numbers from 1 (got {list(found.rungs)})")
    return found
