"""`local/<model>`: a small model on this machine, shared by all campaigns of this user."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from metaharness.budget import Usage
from metaharness.errors import ModelRefused, UnsupportedRequest
from metaharness.exchange import ChooseRequest, CompleteRequest, ModelInfo, ModelReply
from metaharness.models.local.catalog import LocalModel
from metaharness.models.local.connection import Connection, connect
from metaharness.models.local.fetch import require_runtime, served_file
from metaharness.models.local.schemas import SchemaCheck, guided
from metaharness.models.local.scoring import score, shared_base
from metaharness.models.local.settings import LocalSettings, server_directory
from metaharness.models.local.slots import Slot, SlotPool
from metaharness.models.local.worker import ServerLost, Worker

# Written out, so that a newer runtime with other defaults does not sample otherwise. They cut off the tail of
# improbable tokens, in which a small model gets lost, and do nothing at temperature 0.
_SAMPLING: Mapping[str, Any] = {
    "top_k": 40,
    "top_p": 0.95,
    "min_p": 0.05,
    "repeat_penalty": 1.0,
    "samplers": ["top_k", "top_p", "min_p", "temperature"],
}
# A choice is nearly always among the most probable tokens, of which the server gives so many at little cost.
_TOP = 512
# Makes tokens certain to be sampled; more would cost precision.
_BIAS = 100.0
_STOP_REASONS = {"eos": "end", "word": "stop", "limit": "length"}


@dataclass(slots=True, kw_only=True)
class _Server:
    """The server as seen from one event loop."""

    connection: Connection
    workers: list[Worker]
    slots: SlotPool

    async def aclose(self) -> None:
        for worker in self.workers:
            await worker.aclose()
        self.connection.close()


class LocalBackend:
    """A small model, served once for all clients on this machine. Used from one event loop.

    The server is started or found at the first call. When it is lost the calls that wait for it fail with
    ModelUnavailable, and the next call starts another.

    Args:
        model: The model.
        settings: How it is served; None takes the defaults.
        temperature: For requests that name none.

    Raises:
        MissingDependency: The runtime or the weights are not installed.
        UserError: The weights are not those of the catalogue, or a directory cannot be made.
    """

    def __init__(self, model: LocalModel, *, settings: LocalSettings | None = None, temperature: float = 0.0) -> None:
        self._model = model
        self._settings = settings or LocalSettings()
        self._temperature = temperature
        runtime = require_runtime()
        served_file(model.name)
        served = {
            "runtime": f"xllamacpp {runtime}",
            "weights_sha256": model.served_sha256,
            "quantisation": "Q8_0",
            **self._settings.identity(),
        }
        self._directory = server_directory({**served, **self._settings.layout()})
        self._info = ModelInfo(
            ref=f"local/{model.name}",
            identity={**served, "sampling": dict(_SAMPLING), "default_temperature": temperature},
            can_choose=True,
            can_schema=model.chat,
            honours_seed=True,
        )
        self._server: _Server | None = None
        self._starting: asyncio.Task[_Server] | None = None
        self._lost: list[_Server] = []
        self._schemas = SchemaCheck()

    @property
    def info(self) -> ModelInfo:
        """What it is and can do."""
        return self._info

    @property
    def directory(self) -> Path:
        """Private directory of the server: sockets, log, leases."""
        return self._directory

    async def complete(self, request: CompleteRequest, *, seed: int) -> ModelReply:
        """Answer chat messages in the model's own chat template; see `ModelBackend.complete`."""
        if not self._model.chat:
            raise UnsupportedRequest(f"{self._info.ref} is a base model and has no chat: use choose")
        if request.tools:
            raise UnsupportedRequest(f"{self._info.ref} takes no tools: ask for JSON with a schema")
        messages = [{"role": "system", "content": request.system}] if request.system is not None else []
        messages += [{"role": message["role"], "content": message["content"]} for message in request.messages]
        async with self._served() as server:
            prompt = await server.workers[0].template(messages)
            body = {
                **_SAMPLING,
                "prompt": prompt,
                "n_predict": request.max_tokens,
                "temperature": self._temperature if request.temperature is None else request.temperature,
                "stop": list(request.stop),
                "seed": seed,
            }
            async with server.slots.take(prompt) as slot:
                worker = server.workers[slot.worker]
                if request.schema is not None:
                    body["json_schema"] = guided(request.schema)
                    await self._schemas.require(body["json_schema"], worker, prompt=prompt, slot=slot.number)
                reply = await worker.complete({**body, "id_slot": slot.number})
        return ModelReply(
            text=reply["content"],
            stop_reason=_STOP_REASONS[reply["stop_type"]],
            usage=Usage(
                model_calls=1,
                input_tokens=reply["tokens_evaluated"],
                output_tokens=reply["tokens_predicted"],
                cached_tokens=reply["timings"]["cache_n"],
            ),
        )

    async def choose(self, request: ChooseRequest) -> ModelReply:
        """Return the log-probability of each choice as continuation of the raw text; see `ModelBackend.choose`.

        Values are exact for the canonical tokenisation of prompt and choice together (`scoring` says what happens where
        they merge) up to the runtime's 32-bit arithmetic: some 1e-4 for each token, the same for all choices.
        """
        async with self._served() as server, server.slots.take(request.prompt) as slot:
            worker = server.workers[slot.worker]
            texts = [request.prompt, *(request.prompt + choice for choice in request.choices)]
            prompt, *wholes = await worker.tokenize(texts)
            base = shared_base(prompt, wholes)
            if base == 0:
                raise ModelRefused("prompt: choose needs a prompt of at least one token before the choices")
            evaluator = _Evaluator(worker, slot, tuple(prompt[:base]))
            logprobs = await score([whole[base:] for whole in wholes], evaluator.evaluate)
        usage = Usage(model_calls=1, input_tokens=evaluator.input_tokens, cached_tokens=evaluator.cached_tokens)
        return ModelReply(logprobs=tuple(logprobs), usage=usage)

    async def aclose(self) -> None:
        """Give the lease on the server back; it ends by itself when nobody has needed it for a while."""
        if self._starting is not None:
            await asyncio.wait({self._starting})
        servers = [*self._lost, *([self._server] if self._server is not None else [])]
        self._server, self._lost = None, []
        for server in servers:
            await server.aclose()

    @asynccontextmanager
    async def _served(self) -> AsyncIterator[_Server]:
        server = self._server or await self._start()
        try:
            yield server
        except ServerLost:
            if self._server is server:
                self._server = None
                server.connection.close()
                # Other calls may still be waiting for its answers; they fail by themselves.
                self._lost.append(server)
            raise

    async def _start(self) -> _Server:
        # One start for all who wait; it goes on when one of them is cancelled.
        if self._starting is None:
            self._starting = asyncio.create_task(self._connect())
        return await asyncio.shield(self._starting)

    async def _connect(self) -> _Server:
        try:
            weights = partial(served_file, self._model.name, verify=True)
            connection = await asyncio.to_thread(connect, self._directory, self._settings, weights)
            workers = [Worker(path) for path in connection.sockets]
            slots = SlotPool(len(workers), self._settings.slots)
            self._server = _Server(connection=connection, workers=workers, slots=slots)
            return self._server
        finally:
            self._starting = None


class _Evaluator:
    """Asks one slot for the log-probabilities of tokens after a prompt; counts what that takes."""

    def __init__(self, worker: Worker, slot: Slot, base: tuple[int, ...]) -> None:
        self._worker = worker
        self._slot = slot
        self._base = base
        self._calls = 0
        self.input_tokens = 0
        self.cached_tokens = 0

    async def evaluate(self, path: tuple[int, ...], children: tuple[int, ...]) -> Mapping[int, float]:
        """Return the natural-log probability of each of `children` after base and path."""
        # The server gives the most probable tokens, and the one that it sampled, with their log-probabilities before
        # any bias. The bias makes it sample one of the children, the most probable of them.
        raw = await self._ask(path, children, {"n_probs": _TOP if len(children) > 1 else 1, "temperature": 0.0})
        known = {entry["id"]: entry["logprob"] for entry in (*raw["top_logprobs"], raw)}
        if all(token in known for token in children):
            return {token: known[token] for token in children}
        # Some are improbable: with the same bias on all children their probabilities relate as without it.
        biased = await self._ask(
            path,
            children,
            {"n_probs": len(children), "temperature": 1.0, "samplers": [], "post_sampling_probs": True},
        )
        share = {entry["id"]: entry["prob"] for entry in biased["top_probs"]}
        best = raw["id"]
        found = {}
        for token in children:
            if token in known:
                found[token] = known[token]
            elif share.get(token):
                found[token] = known[best] + math.log(share[token] / share[best])
            else:
                # More than 1e-38 times less probable than the best: only by itself.
                found[token] = (await self._ask(path, (token,), {"n_probs": 1, "temperature": 0.0}))["logprob"]
        return found

    async def _ask(self, path: tuple[int, ...], children: Sequence[int], how: Mapping[str, Any]) -> dict[str, Any]:
        reply = await self._worker.complete(
            {
                "prompt": [*self._base, *path],
                "id_slot": self._slot.number,
                "n_predict": 1,
                "logit_bias": [[token, _BIAS] for token in children],
                **how,
            }
        )
        timings = reply["timings"]
        if self._calls == 0:
            self.input_tokens, self.cached_tokens = reply["tokens_evaluated"], timings["cache_n"]
        elif len(path):
            self.input_tokens += 1
        self._calls += 1
        return dict(reply["completion_probabilities"][0])
