"""`replay/<path>`: replies that were recorded before, from a ledger or a JSONL file; nothing is paid."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from metaharness.errors import ModelRefused, SpecError
from metaharness.exchange import (
    ChooseRequest,
    CompleteRequest,
    ModelInfo,
    ModelReply,
    Request,
    canonical_json,
)
from metaharness.ledger import Ledger
from metaharness.spec import ModelSpec
from metaharness.validation import first_error


class _Line(BaseModel):
    """One line of a recording: the reply to a request."""

    model_config = ConfigDict(extra="forbid")

    request: dict[str, Any]
    reply: dict[str, Any]


def recorded_line(request: Request, reply: ModelReply) -> str:
    """Return the line of a JSONL recording that holds a reply."""
    return canonical_json({"request": request.to_json(), "reply": reply.to_json()}) + "\n"


def create(spec: ModelSpec) -> JsonlReplay | LedgerReplay:
    """Return the backend for `replay/<path>`: a JSONL recording, a `ledger.db`, or the directory of a campaign.

    Raises:
        SpecError: The file is absent or no recording; the message names the line.
        ArchiveError: The ledger cannot be used.
    """
    path = Path(spec.ref.partition("/")[2]).expanduser()
    if path.is_dir():
        path = path / "ledger.db"
    if not path.is_file():
        raise SpecError(f"model.ref: {path}: no such recording (a JSONL file, a ledger.db or a campaign's directory)")
    return LedgerReplay(path) if path.suffix == ".db" else JsonlReplay(path, ref=spec.ref)


class JsonlReplay:
    """Answers by request. Of several replies to one request the seed picks one, so that a vote stays a vote."""

    def __init__(self, path: Path, *, ref: str) -> None:
        try:
            data = path.read_bytes()
            lines = data.decode("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(f"model.ref: {path}: cannot be read: {error}") from error
        self._path = path
        self._replies: dict[str, list[ModelReply]] = {}
        for number, line in enumerate(lines, start=1):
            if line.strip():
                request, reply = _parse(line, f"{path}:{number}")
                self._replies.setdefault(request, []).append(reply)
        self._info = ModelInfo(
            ref=ref,
            identity={"recording": hashlib.sha256(data).hexdigest()},
            can_choose=True,
            can_schema=True,
            can_tools=True,
            honours_seed=True,
        )

    @property
    def info(self) -> ModelInfo:
        """What it is and can do."""
        return self._info

    async def complete(self, request: CompleteRequest, *, seed: int) -> ModelReply:
        """See `ModelBackend`; refuses what was not recorded."""
        return self._find(request, seed)

    async def choose(self, request: ChooseRequest) -> ModelReply:
        """See `ModelBackend`; refuses what was not recorded."""
        return self._find(request, 0)

    async def aclose(self) -> None:
        """Do nothing: the recording was read whole."""

    def _find(self, request: Request, seed: int) -> ModelReply:
        found = self._replies.get(canonical_json(request.to_json()))
        if not found:
            raise ModelRefused(f"{self._path} holds no reply to this request (it has {len(self._replies)} requests)")
        return found[seed % len(found)]


class LedgerReplay:
    """Answers by reply key: the same model, settings, task, attempt and request give the reply of that campaign.

    It presents itself as the model that was recorded, so that keys agree.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ledger = Ledger.open(path.parent, read_only=True)
        model = self._ledger.get_meta("model")
        if not isinstance(model, Mapping):
            self._ledger.close()
            raise SpecError(f"model.ref: {path} does not say which model it recorded: it cannot be replayed")
        self._replies = self._ledger.reply_cache("replay")
        self._info = ModelInfo(
            ref=model["ref"],
            identity=model["identity"],
            can_choose=model["can_choose"],
            can_schema=model["can_schema"],
            can_tools=model["can_tools"],
            honours_seed=model["honours_seed"],
            hidden_tokens=model["hidden_tokens"],
        )

    @property
    def info(self) -> ModelInfo:
        """What it is and can do."""
        return self._info

    async def reply_by_key(self, key: str, request: Request) -> ModelReply:
        """Return the recorded reply; see `KeyedBackend`."""
        found = self._replies.get_reply(key)
        if found is None:
            kind = request.to_json()["kind"]
            raise ModelRefused(
                f"{self._path} holds no reply to this {kind} request: the harness, task or settings differ from then"
            )
        return _unpaid(found)

    async def complete(self, request: CompleteRequest, *, seed: int) -> ModelReply:
        """Refuse: a ledger knows replies by their keys alone, see `reply_by_key`."""
        raise ModelRefused(f"{self._path} answers by reply key only (seed {seed}, {len(request.messages)} messages)")

    async def choose(self, request: ChooseRequest) -> ModelReply:
        """Refuse: a ledger knows replies by their keys alone, see `reply_by_key`."""
        raise ModelRefused(f"{self._path} answers by reply key only ({len(request.choices)} choices)")

    async def aclose(self) -> None:
        """Close the ledger."""
        self._ledger.close()


def _unpaid(reply: ModelReply) -> ModelReply:
    return replace(reply, cached=False, usage=replace(reply.usage, cost_usd=0.0))


def _parse(line: str, where: str) -> tuple[str, ModelReply]:
    try:
        parsed = _Line.model_validate(json.loads(line))
        reply = ModelReply.from_json(parsed.reply)
    except ValidationError as error:
        raise SpecError(f"model.ref: {where}: {first_error(error, _Line)}") from error
    except KeyError as error:
        raise SpecError(f"model.ref: {where}: reply.{error.args[0]}: missing") from error
    except (ValueError, TypeError) as error:
        raise SpecError(f"model.ref: {where}: no recorded reply: {error}") from error
    return canonical_json(parsed.request), _unpaid(reply)
