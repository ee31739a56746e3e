"""Texts of tasks inside a harness: what is copied from val or test is fatal, what is copied from train is flagged."""

from __future__ import annotations

import ast
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum

from metaharness.candidate import Finding
from metaharness.environments.text import words
from metaharness.gate.parse import ParsedTree
from metaharness.protocols import Environment
from metaharness.source import SourceTree
from metaharness.task import Split, Task

SHINGLE_WORDS = 8
MIN_PHRASE_CHARS = 20
MIN_SHORT_WORDS = 5
MAX_FINDINGS_PER_FILE = 5

_ESCAPE = re.compile(r"\\[abfnrtv]")


class _Origin(IntEnum):
    """Where a run of words comes from; where it comes from several, the later one here decides."""

    SEALED_SHORT = 1
    SEALED = 2
    TRAIN = 3
    PUBLIC = 4


_MESSAGES = {
    _Origin.SEALED: (f"{SHINGLE_WORDS} words in a row, or a whole answer, of a val or test task", True),
    _Origin.SEALED_SHORT: ("all words of a short val or test input: by accident, or copied", False),
    _Origin.TRAIN: ("copied from a train task: it may know that one by heart", False),
}


class LeakIndex:
    """The texts of all tasks, as runs of words; built once for a campaign.

    A run that also stands in the instructions or choices that every harness is given, or in train, is no secret.

    Args:
        environments: The campaign's environments.
    """

    def __init__(self, environments: Iterable[Environment]) -> None:
        origins: dict[int, _Origin] = {}
        canaries: set[str] = set()
        lengths: set[int] = {SHINGLE_WORDS}
        train: list[Task] = []
        sealed: list[Task] = []
        for environment in environments:
            train.extend(_texts(environment, Split.TRAIN))
            sealed.extend([*_texts(environment, Split.VAL), *_texts(environment, Split.TEST)])
            canaries.update(_canary_forms(environment.info.canary))
        for task in sealed:
            for run, origin in _runs(task, _Origin.SEALED, _Origin.SEALED_SHORT):
                lengths.add(len(run))
                key = _key(run)
                origins[key] = max(origin, origins.get(key, origin))
        for task in train:
            for run, origin in _runs(task, _Origin.TRAIN, None):
                lengths.add(len(run))
                origins[_key(run)] = origin
        for text in dict.fromkeys(text for task in train for text in (task.instruction, *(task.choices or ()))):
            found = words(text)
            for length in lengths:
                origins.update((_key(run), _Origin.PUBLIC) for run in _windows(found, length))
        self._origins = origins
        self._lengths = sorted(lengths, reverse=True)
        self._canaries = frozenset(canaries)

    def scan(self, tree: SourceTree, parsed: ParsedTree) -> list[Finding]:
        """Return findings that name file and line, never the task.

        Args:
            tree: The files.
            parsed: Syntax trees of the Python files, whose texts are also read as Python would read them.
        """
        findings: list[Finding] = []
        for path in tree:
            text = tree.text(path)
            findings.extend(self._canary_findings(path, text))
            lines = self._lines(_numbered(text, parsed.modules.get(path)))
            for origin, (message, fatal) in _MESSAGES.items():
                at = sorted(line for line, found in lines.items() if found is origin)
                findings.extend(
                    Finding(check="leak", path=path, line=line, message=message, fatal=fatal)
                    for line in at[:MAX_FINDINGS_PER_FILE]
                )
        return findings

    def _canary_findings(self, path: str, text: str) -> Iterator[Finding]:
        if not self._canaries:
            return
        for number, line in enumerate(text.casefold().splitlines(), 1):
            if any(canary in line for canary in self._canaries):
                yield Finding(check="leak", path=path, line=number, message="the canary of a val or test file")

    def _lines(self, texts: Iterable[list[tuple[str, int]]]) -> dict[int, _Origin]:
        """Return the lines at which known runs begin, with the gravest origin of each."""
        found: dict[int, _Origin] = {}
        for numbered in texts:
            tokens = [token for token, _ in numbered]
            for length in self._lengths:
                for start, run in enumerate(_windows(tokens, length)):
                    origin = self._origins.get(_key(run))
                    if origin is None or origin is _Origin.PUBLIC:
                        continue
                    line = numbered[start][1]
                    if _graver(origin, found.get(line)):
                        found[line] = origin
        return found


def _texts(environment: Environment, split: Split) -> Sequence[Task]:
    tasks = environment.tasks(split)
    if environment.info.protocol == "online":
        # The answer of a stream is the list of its labels: runs of a few words in any order, found in any code.
        return [replace(task, answer=None) for task in tasks]
    return tasks


def _graver(origin: _Origin, than: _Origin | None) -> bool:
    order = (None, _Origin.TRAIN, _Origin.SEALED_SHORT, _Origin.SEALED)
    return order.index(origin) > order.index(than)


def _runs(task: Task, origin: _Origin, short: _Origin | None) -> Iterator[tuple[Sequence[str], _Origin]]:
    """Yield the runs of words that give a task away."""
    texts = [task.input] if origin is _Origin.TRAIN else [task.input, task.instruction]
    for text in texts:
        found = words(text)
        for run in _windows(found, SHINGLE_WORDS):
            yield run, origin
        if short and MIN_SHORT_WORDS <= len(found) < SHINGLE_WORDS and len(text.strip()) >= MIN_PHRASE_CHARS:
            yield found, short
    answer = task.answer or ""
    if len(answer.strip()) < MIN_PHRASE_CHARS or answer in (task.choices or ()):
        return
    found = words(answer)
    if len(found) < SHINGLE_WORDS:
        if found:
            yield found, origin
        return
    for run in _windows(found, SHINGLE_WORDS):
        yield run, origin


def _windows(found: Sequence[str], length: int) -> Iterator[Sequence[str]]:
    for start in range(len(found) - length + 1):
        yield found[start : start + length]


def _key(run: Sequence[str]) -> int:
    return hash(" ".join(run))


def _numbered(text: str, module: ast.Module | None) -> Iterator[list[tuple[str, int]]]:
    """Yield the words of a file with their lines; then those of each text constant, escapes and joins resolved."""
    yield [(word, number) for number, line in enumerate(text.splitlines(), 1) for word in words(_ESCAPE.sub(" ", line))]
    for node in ast.walk(module) if module is not None else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield [(word, node.lineno) for word in words(node.value)]


def _canary_forms(canary: str) -> set[str]:
    folded = unicodedata.normalize("NFC", canary).casefold()
    return {part for part in (folded, *folded.split()) if len(part) >= MIN_PHRASE_CHARS or (part and part == folded)}
