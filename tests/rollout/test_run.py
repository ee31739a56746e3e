from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from metaharness.errors import ModelRefused, UnsupportedRequest
from metaharness.exchange import CompleteRequest, ModelReply, Request
from metaharness.task import Part
from metaharness.trajectory import RolloutStatus, Trajectory
from tests.rollout.support import Bench, MemoryEnvironment, gateway, harness, task

MakeBench = Callable[..., Bench]


async def test_a_harness_asks_the_model_and_is_scored(bench: MakeBench) -> None:
    made = bench(model=gateway(lambda request, seed: "4"))
    outcome = await made.run("return self.model.complete(task.input, max_tokens=9).text")
    assert outcome.status is RolloutStatus.SCORED
    assert outcome.score is not None
    assert outcome.score.reward == 1
    assert (outcome.answer, outcome.error, outcome.stderr) == ("4", "", "")
    assert outcome.usage.model_calls == 1
    assert outcome.usage.rollouts == 0
    assert made.environment.closed == 1
    assert made.engine.jobs[0].labels["campaign"] == "tests"


async def test_the_trajectory_is_written_by_the_host_and_survives_its_file(bench: MakeBench) -> None:
    outcome = await bench().run("print('thinking'); return self.model.complete(task.input, system='Add.').text")
    assert outcome.trajectory is not None
    read = Trajectory.model_validate_json(outcome.trajectory.to_text())
    said, asked, replied = read.steps
    assert (said.source, said.message) == ("user", "2 + 2")
    assert asked.message == [{"type": "text", "text": "Add."}, {"type": "text", "text": "2 + 2"}]
    assert asked.extra == {"metaharness": {"call": 1, "roles": ["system", "user"]}}
    assert (replied.source, replied.message, replied.model_name) == ("agent", "4", "scripted/function")
    assert read.agent.name == "tested"
    assert read.session_id == "tests/c0001"
    assert read.final_metrics is not None
    assert read.final_metrics.total_steps == 3
    ours = read.ours
    assert (ours["status"], ours["answer"], ours["log"], ours["error"]) == ("scored", "4", "thinking\n", "")
    assert ours["unit"]["part"] == Part.PRACTICE
    assert ours["score"] == {"reward": 1.0, "components": {}, "feedback": ""}
    assert len(ours["runtime"]) == 64


async def test_async_harnesses_gather(bench: MakeBench) -> None:
    outcome = await bench(model=gateway(lambda request, seed: request.messages[0]["content"][-1])).run(
        """
import asyncio

class Harness:
    def __init__(self, model):
        self.model = model

    async def solve(self, task, shell):
        replies = await asyncio.gather(*(self.model.complete(f"say {n}") for n in range(5)))
        return "".join(reply.text for reply in replies)
""",
        of=task(answer="01234"),
    )
    assert outcome.score is not None
    assert outcome.score.reward == 1
    assert outcome.usage.model_calls == 5


async def test_a_hundred_calls_in_threads(bench: MakeBench) -> None:
    made = bench(model=gateway(lambda request, seed: request.messages[0]["content"], latency_s=0.01))
    outcome = await made.run(
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(60) as pool:\n"
        "    texts = list(pool.map(lambda n: self.model.complete(str(n)).text, range(100)))\n"
        "return ' '.join(texts)",
        of=task(answer=" ".join(map(str, range(100)))),
    )
    assert outcome.status is RolloutStatus.SCORED, outcome.error
    assert outcome.score is not None
    assert outcome.score.reward == 1
    assert outcome.usage.model_calls == 100


async def test_the_task_is_what_a_harness_may_see(bench: MakeBench) -> None:
    made = bench()
    body = "import json\nreturn json.dumps([vars(task), shell is None, sorted(os.environ), os.getcwd()])"
    of = task("in", "secret label", instruction="do", choices=("a", "b"))
    seen = [json.loads((await made.run(body, of=of)).answer or "") for _ in range(2)]
    shown, no_shell, environment, cwd = seen[0]
    assert shown.keys() == {"id", "instruction", "input", "choices", "deadline"}
    assert (shown["instruction"], shown["input"], shown["choices"]) == ("do", "in", ["a", "b"])
    assert shown["id"] != seen[1][0]["id"]
    assert len(shown["id"]) == 16
    assert no_shell
    assert set(environment) <= {"HOME", "LANG", "LC_CTYPE", "PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED"}
    assert "tests" not in cwd


async def test_nothing_of_the_hosts_packages_can_be_imported(bench: MakeBench) -> None:
    outcome = await bench().run(
        "import metaharness.runtime\n"
        "found = []\n"
        "for name in ('pydantic', 'metaharness.task', 'metaharness.models', 'pip'):\n"
        "    try:\n"
        "        __import__(name)\n"
        "    except ImportError:\n"
        "        continue\n"
        "    found.append(name)\n"
        "return ' '.join(found)"
    )
    assert (outcome.answer, outcome.error) == ("", "")


async def test_prints_never_touch_the_stream(bench: MakeBench) -> None:
    outcome = await bench().run(
        "print('one')\n"
        "os.write(1, b'two\\n')\n"
        "print('\\ud800')\n"
        "import subprocess\n"
        "subprocess.run(['echo', 'three'])\n"
        "print(repr(sys.stdin.read()), end='')\n"
        "return self.model.complete('x').text"
    )
    assert outcome.status is RolloutStatus.SCORED
    assert outcome.stderr == "one\ntwo\n\\ud800\nthree\n''"


async def test_files_of_the_harness_are_beside_it(bench: MakeBench) -> None:
    source = (
        "from pathlib import Path\nfrom parts.more import double\n\n\n"
        "class Harness:\n    def __init__(self, model): ...\n\n"
        "    def solve(self, task, shell):\n        return double(Path(__file__).with_name('prompt.txt').read_text())\n"
    )
    tree = harness(source, **{"prompt.txt": "é", "parts/more.py": "def double(text): return 2 * text\n"})
    assert (await bench().run(tree)).answer == "éé"


async def test_random_depends_on_task_and_attempt_alone(bench: MakeBench) -> None:
    made = bench()
    at_import = harness(
        "import random\nFIRST = random.random()\n\n\nclass Harness:\n    def __init__(self, model): ...\n\n"
        "    def solve(self, task, shell):\n        return f'{FIRST} {random.random()} {hash(task.input)}'\n"
    )

    async def answer(attempt: int = 0, text: str = "x", label: str = "y") -> str | None:
        return (await made.run(at_import, of=task(text, label), attempt=attempt)).answer

    first = await answer()
    assert first == await answer()
    assert first == await answer(label="another label")  # or a harness could find the label out
    assert len({first, await answer(attempt=1), await answer(text="z")}) == 3


async def test_what_the_model_cannot_do_can_be_caught(bench: MakeBench) -> None:
    made = bench(model=gateway("4", can_choose=False, can_schema=False))
    outcome = await made.run(
        "from metaharness.runtime import Unsupported\n"
        "try:\n"
        "    self.model.choose('p', ['a'])\n"
        "except Unsupported as error:\n"
        "    first = error.kind\n"
        "try:\n"
        "    self.model.complete('p', schema={'type': 'object'})\n"
        "except Unsupported:\n"
        "    return first + self.model.complete('p').text\n",
        of=task(answer="unsupported4"),
    )
    assert outcome.status is RolloutStatus.SCORED, outcome.error
    assert outcome.score is not None
    assert outcome.score.reward == 1


@pytest.mark.parametrize(
    ("error", "kind"), [(ModelRefused("too long"), "refused"), (UnsupportedRequest("no tools"), "unsupported")]
)
async def test_errors_of_the_model_reach_the_harness(bench: MakeBench, error: Exception, kind: str) -> None:
    body = (
        "from metaharness.runtime import ModelError\n"
        "try:\n    self.model.complete('x')\nexcept ModelError as error:\n    return f'{error.kind}: {error}'"
    )
    outcome = await bench(model=gateway(failures=[error])).run(body)
    assert outcome.answer == f"{kind}: {error}"
    assert outcome.trajectory is not None
    extra = outcome.trajectory.steps[-1].extra
    assert extra is not None
    assert extra["metaharness"]["error"] == f"{type(error).__name__}: {error}"


async def test_choose_and_its_step(bench: MakeBench) -> None:
    def script(request: Request, seed: int) -> ModelReply:
        return ModelReply(logprobs=(-2.5, float("-inf"), -0.25))

    outcome = await bench(model=gateway(script)).run("return repr(self.model.choose('p', ['a', 'b', 'c']))")
    assert outcome.answer == "[-2.5, -inf, -0.25]"
    assert outcome.trajectory is not None
    step = outcome.trajectory.steps[-1]
    assert step.message == "c"
    assert step.extra is not None
    assert step.extra["metaharness"]["choices"] == ["a", "b", "c"]
    assert step.extra["metaharness"]["logprobs"] == [-2.5, None, -0.25]
    Trajectory.model_validate_json(outcome.trajectory.to_text())


async def test_the_shell_is_recorded(bench: MakeBench) -> None:
    environment = MemoryEnvironment(shell=lambda command: (f"ran {command}", 3))
    outcome = await bench().run(
        "result = shell.run('ls -l', timeout_s=5)\nreturn f'{result.output} {result.exit_code}'",
        environment=environment,
    )
    assert outcome.answer == "ran ls -l 3"
    assert outcome.trajectory is not None
    step = outcome.trajectory.steps[-1]
    assert step.tool_calls is not None
    assert step.observation is not None
    assert step.tool_calls[0].function_name == "shell"
    assert step.tool_calls[0].arguments == {"command": "ls -l", "timeout_s": 5.0}
    assert step.observation.results[0].content == "ran ls -l"


async def test_long_shell_output_is_cut_in_the_middle(bench: MakeBench) -> None:
    environment = MemoryEnvironment(shell=lambda command: ("a" * 200_000 + "b" * 200_000, 0))
    outcome = await bench().run("return shell.run('x').output", environment=environment)
    assert outcome.answer is not None
    assert "\n[137856 characters left out]\n" in outcome.answer
    assert outcome.answer.startswith("a")
    assert outcome.answer.endswith("b")


async def test_what_is_left_over_is_cancelled_when_the_answer_is_there(bench: MakeBench) -> None:
    def slow(request: Request, seed: int) -> str:
        assert isinstance(request, CompleteRequest)
        return "late"

    made = bench(model=gateway(slow, latency_s=30))
    outcome = await made.run(
        "import threading\nthreading.Thread(target=self.model.complete, args=('x',)).start()\n"
        "time.sleep(0.2)\nreturn '4'"
    )
    assert outcome.status is RolloutStatus.SCORED
    assert outcome.seconds < 10
    assert outcome.usage.model_calls == 0


async def test_the_check_reports_methods_without_a_model(bench: MakeBench) -> None:
    made = bench()
    result = await made.runner.check(harness("return 'x'"))
    assert result.ok
    assert (result.methods, result.asynchronous) == (("solve",), False)
    learner = harness(
        "class Harness:\n    def __init__(self, model): print('made')\n    async def solve(self, task, shell): ...\n"
        "    def learn(self, examples): ...\n    def save(self): ...\n    def load(self, state): ...\n"
    )
    result = await made.runner.check(learner)
    assert (result.methods, result.asynchronous) == (("learn", "save", "load", "solve"), True)
    assert result.stderr == "made\n"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (
            "import nothing_here\nclass Harness: ...",
            "ModuleNotFoundError: No module named 'nothing_here' (harness.py, line 1",
        ),
        ("class Harness:\n  def solve(self, task, shell)", "SyntaxError: expected ':' (harness.py, line 2)"),
        ("class Harness:\n  x = 1", "Harness has no method solve"),
        (
            "class Harness:\n  def __init__(self, model): model.complete('x')\n  def solve(self, task, shell): ...",
            "the model cannot be asked while a harness is constructed",
        ),
        ("class Harness:\n  def __init__(self, model): 1/0\n  def solve(self, task, shell): ...", "ZeroDivisionError"),
    ],
)
async def test_the_check_says_what_is_wrong(bench: MakeBench, source: str, says: str) -> None:
    result = await bench().runner.check(harness(source))
    assert not result.ok
    assert result.status is RolloutStatus.HARNESS_ERROR
    assert says in result.error
    assert "\n" not in result.error
