"""`wrap_retry`: ask again, with the problem named, when the answer cannot be read."""

from __future__ import annotations

from metaharness.proposers.codemods.imports import Binding
from metaharness.proposers.codemods.material import Material, Move
from metaharness.proposers.codemods.transplant import Site
from metaharness.proposers.codemods.wrap import ASK, ask_sites, wrap_function
from metaharness.source import SourceTree

NAME = "wrap_retry"
RENAMED = "ask_unchecked"

_CONSTANTS = (
    "RETRIES = 1  # range: 1..4",
    'RETRY_PROMPT = "That cannot be used: {problem}. Give the answer again, and nothing else."',
)
_HELPER = '''
def answer_problem(answer: str, task: Task) -> str:
    """Return what is wrong with the form of an answer, or an empty text."""
    wanted = f"{task.instruction} {task.input}".lower()
    if not answer.strip():
        return "it is empty"
    if task.choices:
        return "" if answer in task.choices else f"it must be one of {', '.join(task.choices)}"
    if "json" in wanted:
        try:
            json.loads(answer)
        except (ValueError, RecursionError):
            return "it must be a JSON object"
        return ""
    if "number" in wanted and not re.fullmatch(r"-?[\\d.,]+", answer.strip()):
        return "it must be a number, in digits"
    return ""
'''
_NEW = '''
def ask({signature}){returns}:
    """Ask, and ask again with the problem named while the answer cannot be read."""
    reply = ask_unchecked({given})
    for _ in range(RETRIES):
        problem = answer_problem(parse_answer(reply, task), task)
        if not problem:
            break
        complaint = RETRY_PROMPT.format(problem=problem)
        prompt = [*prompt, {{"role": "assistant", "content": reply}}, {{"role": "user", "content": complaint}}]
        reply = ask_unchecked({given})
    return reply
'''


def moves(material: Material) -> list[Move]:
    """Return a move for every `ask` whose prompt is a chat and which does not check its answer yet."""
    found: list[Move] = []
    for path, site, given in ask_sites(material):
        chat = "list[dict" in site.module.signatures[ASK]
        if chat and "prompt" in given and RENAMED not in site.module.functions and "Task" in site.module.bound_names:
            found.append(_move(material, path, site, given))
    return found


def _move(material: Material, path: str, site: Site, given: list[str]) -> Move:
    def apply() -> SourceTree | None:
        node = site.module.functions[ASK]
        returns = f" -> {site.module.code_of(node.returns.annotation)}" if node.returns else ""
        new = _NEW.format(signature=site.module.code_of(node.params), returns=returns, given=", ".join(given))
        module = wrap_function(
            site.module,
            ASK,
            renamed=RENAMED,
            new=new,
            helpers=[_HELPER],
            constants=_CONSTANTS,
            imports=[Binding(module="json", bound="json"), Binding(module="re", bound="re")],
        )
        return material.changed(path, module, f"`{ASK}`, retry", "when the answer cannot be read")

    share = material.evidence.share(material.evidence.unusable)
    return Move(
        mechanism=f"{NAME} {ASK}",
        hypothesis="Answers that cannot be read may come right when the model is told what is wrong with them.",
        apply=apply,
        details={"target": ASK, "path": path, "unusable_share": round(share, 3)},
    )
