"""`wrap_vote`: let several answers vote, sampled at a temperature or each with other examples left out."""

from __future__ import annotations

import libcst as cst

from metaharness.proposers.codemods.imports import Binding, add_bindings, bindings
from metaharness.proposers.codemods.material import Material, Move
from metaharness.proposers.codemods.module import StepModule
from metaharness.proposers.codemods.transplant import Site
from metaharness.proposers.codemods.wrap import ASK, ask_sites, statement, wrap_function
from metaharness.source import SourceTree

NAME = "wrap_vote"
RENAMED = "ask_once"
SOLVE = "solve"
SOLVE_ONCE = "solve_once"

_COUNTER = Binding(module="collections", name="Counter", bound="Counter")
_CONSTANTS = ("VOTES = 5  # range: 2..15", "VOTE_TEMPERATURE = 0.7  # range: 0.2..1.4")
_SAMPLER = '''
class Sampler:
    """The model, asked at a temperature wherever the caller names none."""

    def __init__(self, model: Model) -> None:
        self.choose = model.choose
        self._model = model

    def complete(self, messages, **options):
        """Ask once."""
        return self._model.complete(messages, **{"temperature": VOTE_TEMPERATURE, **options})
'''
_NEW = '''
def ask({signature}){returns}:
    """Ask several times at a temperature, and return a reply with the answer given most often, choices first."""
    model = Sampler(model)
    replies = [ask_once({given}) for _ in range(VOTES)]
    answers = [parse_answer(reply, task) for reply in replies]
    votes = Counter(answers)
    best = max(answers, key=lambda answer: (answer in (task.choices or ()), votes[answer]))
    return replies[answers.index(best)]
'''
_EXAMPLE_VOTES = "EXAMPLE_VOTES = 3  # range: 2..9"
_SOLVE = '''
def solve({signature}){returns}:
    """Return the answer given most often, each time with another part of the examples left out."""
    everything, votes = self.examples, Counter()
    for number in range(EXAMPLE_VOTES):
        self.examples = [example for i, example in enumerate(everything) if i % EXAMPLE_VOTES != number]
        votes[self.solve_once({given})] += 1
    self.examples = everything
    return votes.most_common(1)[0][0]
'''


def moves(material: Material) -> list[Move]:
    """Return a move for every step that can vote and does not yet."""
    found: list[Move] = []
    for path, site, given in ask_sites(material):
        module = site.module
        code = "\n".join(module.plain[name] for name in module.closure([ASK]))
        # Log-probabilities are the same every time; a vote only helps where replies are sampled.
        sampled = ".complete(" in code and "temperature=" not in code and ".choose(" not in code
        if sampled and RENAMED not in module.functions and "Model" in module.bound_names:
            found.append(_vote(material, path, site, given))
    for path, site in material.sites.items():
        method = _solve_method(site)
        if method is not None:
            found.append(_example_vote(material, path, site, method))
    return found


def _vote(material: Material, path: str, site: Site, given: list[str]) -> Move:
    def apply() -> SourceTree | None:
        node = site.module.functions[ASK]
        returns = f" -> {site.module.code_of(node.returns.annotation)}" if node.returns else ""
        new = _NEW.format(signature=site.module.code_of(node.params), returns=returns, given=", ".join(given))
        module = wrap_function(
            site.module,
            ASK,
            renamed=RENAMED,
            new=new,
            helpers=[_SAMPLER],
            constants=_CONSTANTS,
            imports=[_COUNTER],
        )
        return material.changed(path, module, f"`{ASK}`, vote", "over samples")

    return Move(
        mechanism=f"{NAME} {ASK}",
        hypothesis="The answer given most often over several samples may be right where a single reply wavers.",
        apply=apply,
        details={"target": ASK, "path": path},
    )


def _example_vote(material: Material, path: str, site: Site, method: cst.FunctionDef) -> Move:
    def apply() -> SourceTree | None:
        return material.changed(path, _voting(site, method), f"`{SOLVE}`, vote", "over parts of the examples")

    return Move(
        mechanism=f"{NAME} {SOLVE}",
        hypothesis="Answers that hang on single examples may be outvoted when each vote leaves out a part of them.",
        apply=apply,
        weight=0.7,
        details={"target": SOLVE, "path": path},
    )


def _solve_method(site: Site) -> cst.FunctionDef | None:
    """Return the harness's plain `solve`, where it works with examples that it has learned."""
    if site.entry is None:
        return None
    node = site.module.classes[site.entry]
    methods = {item.name.value: item for item in node.body.body if isinstance(item, cst.FunctionDef)}
    method = methods.get(SOLVE)
    if method is None or method.asynchronous or "learn" not in methods or SOLVE_ONCE in methods:
        return None
    reads = "self.examples" in site.module.code_of(method)
    return method if reads and len(method.params.params) == 3 else None


def _voting(site: Site, method: cst.FunctionDef) -> StepModule | None:
    module, entry = site.module, site.entry
    here = bindings(module)
    taken = "EXAMPLE_VOTES" in module.bound_names or here.get("Counter", _COUNTER) != _COUNTER
    if entry is None or taken or "Counter" in module.pieces:
        return None
    names = [param.name.value for param in method.params.params]
    returns = f" -> {module.code_of(method.returns.annotation)}" if method.returns else ""
    code = _SOLVE.format(signature=module.code_of(method.params), returns=returns, given=", ".join(names[1:]))
    new = cst.ensure_type(statement(code.replace("self.", f"{names[0]}.")), cst.FunctionDef)
    once = method.with_changes(name=cst.Name(SOLVE_ONCE))
    voting = new.with_changes(leading_lines=[cst.EmptyLine(indent=False)])
    node = module.classes[entry]
    body = [part for item in node.body.body for part in ((once, voting) if item is method else (item,))]
    changed = module.replace(entry, node.with_changes(body=node.body.with_changes(body=body)))
    line = cst.ensure_type(statement(_EXAMPLE_VOTES), cst.SimpleStatementLine)
    return add_bindings(changed.add_constants([line]), [] if "Counter" in here else [_COUNTER])
