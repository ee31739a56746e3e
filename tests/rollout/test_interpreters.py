"""The runtime runs under whatever Python a sandbox has."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rollout.support import Bench, PlainEngine, gateway, task
from tests.rollout.test_fit import fit, learner
from tests.support import require


def interpreter(version: str) -> str | None:
    """Return the path of a Python of this version, from pyenv or the search path."""
    built = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
    return str(built[-1]) if built else shutil.which(f"python{version}")


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.12", "3.13"])
async def test_learn_solve_sync_and_async(bench: Callable[..., Bench], version: str) -> None:
    python = interpreter(version)
    require(python is not None, f"Python {version}")
    assert python is not None
    made = bench(engine=PlainEngine(python), model=gateway(lambda request, seed: request.messages[0]["content"]))
    fitted = await fit(made, learner())
    assert fitted.state is not None, fitted.error
    outcome = await made.run(
        learner(solve="return '%d.%d' % sys.version_info[:2]"), of=task(answer=version), state=fitted.state
    )
    assert outcome.score is not None, outcome.error
    assert outcome.score.reward == 1
    source = """
import asyncio


class Harness:
    def __init__(self, model):
        self.model, self.lock = model, asyncio.Lock()

    async def ask(self, n):
        async with self.lock:
            return (await self.model.complete(str(n))).text

    async def solve(self, task, shell):
        return "".join(await asyncio.gather(*(self.ask(n) for n in range(100))))
"""
    outcome = await made.run(source)
    assert outcome.answer == "".join(map(str, range(100))), outcome.error
    assert outcome.stderr == ""
