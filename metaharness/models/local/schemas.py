"""JSON schemas that hold a reply: how they are sent, and whether the runtime can use them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metaharness.errors import ModelRefused
from metaharness.exchange import canonical_json
from metaharness.models.local.worker import Worker

# No white space but these: a small model would fill the reply with line breaks.
_LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
# Begins no JSON value.
_IMPOSSIBLE = "Hello"
_CERTAIN = 100.0


def guided(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema with the layout of the JSON text settled (one line, a space after comma and colon)."""
    return {"x-guidance": _LAYOUT, **schema}


class SchemaCheck:
    """Finds out whether the runtime uses a schema: one that it cannot compile it ignores, without a word."""

    def __init__(self) -> None:
        self._usable: dict[str, bool] = {}

    async def require(self, schema: Mapping[str, Any], worker: Worker, *, prompt: str, slot: int) -> None:
        """Return if replies can be held to `schema`; asked once for each schema.

        Args:
            schema: As it is sent.
            worker: Who is asked.
            prompt: What will be asked next in this slot, so that the cache is of use.
            slot: The slot.

        Raises:
            ModelRefused: The schema is not valid, cannot be satisfied, or has something that the runtime lacks.
        """
        key = canonical_json(dict(schema))
        if key not in self._usable:
            ((token, *_),) = await worker.tokenize([_IMPOSSIBLE])
            reply = await worker.complete(
                {
                    "prompt": prompt,
                    "id_slot": slot,
                    "n_predict": 1,
                    "temperature": 0.0,
                    "logit_bias": [[token, _CERTAIN]],
                    "json_schema": dict(schema),
                }
            )
            self._usable[key] = not _IMPOSSIBLE.startswith(reply["content"] or _IMPOSSIBLE)
        if not self._usable[key]:
            raise ModelRefused("schema: not valid, not satisfiable, or with a feature that the local runtime lacks")
