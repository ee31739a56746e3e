"""A writer that is killed in the middle: every row that was reported is there, and none is torn."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

from metaharness.budget import Usage
from metaharness.ledger import Ledger
from metaharness.unit import ProposalRecord
from tests.ledger.examples import candidate, proposal, rollout, unit

WRITER = """
import sys
from pathlib import Path
from metaharness.budget import Usage
from metaharness.exchange import ModelReply
from metaharness.ledger import Ledger
from tests.ledger.examples import candidate, proposal, rollout, unit

with Ledger.open(Path(sys.argv[1])) as ledger:
    start = len(ledger.proposals())
    cache = ledger.reply_cache("rollouts")
    print("open", flush=True)
    for number in range(start, 100_000):
        ledger.add_proposal(proposal(number, number + 1), candidate(number + 1, 0))
        print("p", number, flush=True)
        ledger.add_rollouts([rollout(unit(number + 1, attempt=attempt)) for attempt in range(3)])
        print("r", number, flush=True)
        cache.put_reply(f"key-{number}", ModelReply(text="x" * 3000, usage=Usage(model_calls=1, output_tokens=7)))
        print("m", number, flush=True)
"""
ROUNDS = 8


def test_killed_in_the_middle(tmp_path: Path) -> None:
    directory = tmp_path / "support"
    with Ledger.create(directory) as ledger:
        ledger.add_candidate(candidate(0))
    times = random.Random(1)
    reported: dict[str, int] = {"p": -1, "r": -1, "m": -1}
    for _ in range(ROUNDS):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, directory], cwd=Path(__file__).parents[2], stdout=-1, text=True
        )
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
        time.sleep(times.uniform(0.02, 0.25))
        writer.kill()
        for line in writer.stdout.read().splitlines():
            words = line.split()
            if len(words) == 2 and words[1].isdigit():
                reported[words[0]] = max(reported[words[0]], int(words[1]))
        writer.wait()
        writer.stdout.close()
        check(directory, reported)


def check(directory: Path, reported: dict[str, int]) -> None:
    with Ledger.open(directory) as ledger:
        proposals = ledger.proposals()
        candidates = ledger.candidates()
        rows = ledger.rollouts()
        assert len(proposals) in (reported["p"] + 1, reported["p"] + 2)
        assert proposals == [proposal(number, number + 1) for number in range(len(proposals))]
        assert candidates == [candidate(0), *(candidate(number + 1, 0) for number in range(len(proposals)))]
        of = sorted({int(row.unit.candidate[1:]) for row in rows})
        assert rows == [rollout(unit(one, attempt=attempt)) for one in of for attempt in range(3)]
        assert max(of, default=0) - 1 >= reported["r"]
        assert reported["m"] < 0 or ledger.reply_cache("x").get_reply(f"key-{reported['m']}") is not None
        replies = sum(
            ledger.reply_cache("x").get_reply(f"key-{number}") is not None for number in range(len(proposals))
        )
        assert ledger.spent_by_account().get("rollouts", Usage()) == Usage(
            rollouts=len(rows), model_calls=replies, output_tokens=7 * replies
        )
        assert ledger.spent().proposals == len(proposals)
        events = [event for event in ledger.events() if isinstance(event, ProposalRecord)]
        assert events == proposals
        assert ledger._database.all("PRAGMA integrity_check") == [("ok",)]
        assert ledger._database.all("PRAGMA foreign_key_check") == []
