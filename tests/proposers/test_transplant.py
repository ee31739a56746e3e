from __future__ import annotations

import pytest

from metaharness.proposers.codemods.module import StepModule
from metaharness.proposers.codemods.transplant import Site, take_function, take_learning
from tests.seed_harnesses.double import seed_code

BASE = '''"""A harness."""

from __future__ import annotations

import math

LIMIT = 3


def helper(text: str) -> str:
    return text[:LIMIT]


def step(text: str) -> str:
    return helper(text) + str(math.pi)


class Harness:
    def __init__(self, model):
        self.model = model

    def solve(self, task, shell):
        return step(task.input)
'''


def module(text: str) -> StepModule:
    found = StepModule.parse(text)
    assert found is not None
    return found


def taken(donor: str, base: str = BASE, target: str = "step", source: str = "step") -> str | None:
    site = Site(module=module(base), entry="Harness")
    changed = take_function(site, target, module(donor), source, "other")
    return changed.code if changed else None


def test_leftovers_go_and_needs_come() -> None:
    donor = (
        "import json\nfrom collections import Counter\n\nSIZE = 5  # range: 1..9\n\n\n"
        "def step(text: str) -> str:\n    return json.dumps(Counter(text).most_common(SIZE))\n"
    )
    code = taken(donor)
    assert code is not None
    assert "import json\nfrom collections import Counter\n" in code
    assert "SIZE = 5  # range: 1..9" in code
    for gone in ("math", "LIMIT", "helper"):
        assert gone not in code


def test_a_helper_with_the_same_signature_is_shared() -> None:
    code = taken(
        "def helper(text: str) -> str:\n    return 'theirs'\n\n\ndef step(text: str) -> str:\n    return helper(text)\n"
    )
    assert code is not None
    assert "theirs" not in code
    assert "return text[:LIMIT]" in code


def test_a_helper_with_another_signature_is_renamed_when_ours_is_needed() -> None:
    base = BASE.replace("return step(task.input)", "return step(task.input) + helper('x')")
    donor = "def helper(n: int) -> str:\n    return 'x' * n\n\n\n"
    donor += "def step(text: str) -> str:\n    return helper(len(text))\n"
    code = taken(donor, base)
    assert code is not None
    assert "def helper_of_other(n: int) -> str:" in code
    assert "return helper_of_other(len(text))" in code
    assert "def helper(text: str) -> str:" in code


def test_a_constant_is_replaced_when_nobody_else_needs_it_and_renamed_when_somebody_does() -> None:
    donor = "LIMIT = 8\n\n\ndef step(text: str) -> str:\n    return text[:LIMIT]\n"
    code = taken(donor)
    assert code is not None
    assert "LIMIT = 8" in code
    assert "LIMIT = 3" not in code
    code = taken(donor, BASE.replace("return step(task.input)", "return step(task.input) + helper('x')"))
    assert code is not None
    assert "LIMIT = 3\nOTHER_LIMIT = 8\n" in code
    assert "return text[:OTHER_LIMIT]" in code


def test_attributes_and_keywords_are_never_renamed() -> None:
    base = BASE.replace("return step(task.input)", "return step(task.input) + helper('x')")
    donor = (
        "LIMIT = 8\n\n\ndef step(text: str) -> str:\n"
        "    return str(dict(LIMIT=LIMIT)) + str(getattr(text, 'x', None)) + text.LIMIT\n"
    )
    code = taken(donor, base)
    assert code is not None
    assert "dict(LIMIT=OTHER_LIMIT)" in code
    assert "text.LIMIT" in code


@pytest.mark.parametrize(
    "donor",
    [
        "from .files import thing\n\n\ndef step(text: str) -> str:\n    return thing(text)\n",
        "import numpy\n\n\ndef step(text: str) -> str:\n    return numpy.array(text)\n",
        "def step(text: str) -> str:\n    return nowhere(text)\n",
        "import json as math\n\n\ndef step(text: str) -> str:\n    return math.dumps(text)\n",
    ],
    ids=["its own file", "a package", "nothing", "a name that means something else"],
)
def test_what_cannot_come_along_is_refused(donor: str) -> None:
    assert taken(donor) is None


def test_a_step_that_would_call_itself_is_refused() -> None:
    base = BASE.replace("return text[:LIMIT]", "return step(text[:LIMIT]) if text else ''")
    donor = "def helper(text: str) -> str:\n    return ''\n\n\ndef step(text: str) -> str:\n    return helper(text)\n"
    assert taken(donor, base) is None


def test_code_that_nothing_used_before_stays() -> None:
    base = BASE.replace("class Harness", "def spare() -> int:\n    return UNUSED\n\n\nUNUSED = 1\n\n\nclass Harness")
    code = taken("def step(text: str) -> str:\n    return text\n", base)
    assert code is not None
    assert "def spare()" in code
    assert "UNUSED = 1" in code


def test_what_other_files_mention_stays() -> None:
    site = Site(module=module(BASE), entry="Harness", outside=frozenset({"helper"}))
    changed = take_function(site, "step", module("def step(text: str) -> str:\n    return text\n"), "step", "other")
    assert changed is not None
    assert "def helper" in changed.code
    assert "LIMIT = 3" in changed.code


def test_learning_comes_with_its_imports_and_description() -> None:
    site = Site(module=module(seed_code("direct")), entry="Harness")
    changed = take_learning(site, module(seed_code("few_shot")), "Harness")
    assert changed is not None
    assert "import json\n" in changed.code
    assert changed.code.index("def learn") < changed.code.index("def solve")
    assert "learns nothing" not in changed.code


def test_learning_does_not_come_where_nothing_keeps_it() -> None:
    site = Site(module=module(BASE), entry="Harness")
    assert take_learning(site, module(seed_code("few_shot")), "Harness") is None
    learned = Site(module=module(seed_code("vote")), entry="Harness")
    assert take_learning(learned, module(seed_code("few_shot")), "Harness") is None
