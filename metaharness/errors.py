"""The error tree.

::

    MetaharnessError
    ├── UserError               you asked wrongly: one clear line, exit code 2
    │   ├── SpecError           campaign.toml: names the file and the field
    │   ├── HarnessError        a harness directory that breaks its contract
    │   ├── EnvironmentFormatError  an environment directory that breaks its format
    │   ├── ArchiveError        an archive or campaign that cannot be used as asked
    │   ├── MissingDependency   an optional package or engine is absent; says what to install
    │   └── ModelAccessError    key, model name or account: no call can work, so the campaign stops
    ├── InfraError              the world around a rollout failed: never a score; retried, then missing
    │   ├── ModelUnavailable    provider 5xx, rate limit, time-out, local server gone
    │   ├── SandboxUnavailable  the engine could not start or lost a sandbox
    │   └── ScoringFailed       a scorer or verifier broke
    ├── ModelRefused            the provider rejected the request itself (4xx): the harness's fault
    ├── UnsupportedRequest      a backend or environment cannot do this; a harness sees `Unsupported`
    ├── ProposalFailed          a proposer gave nothing usable; recorded, the search goes on
    ├── BudgetExhausted         a reservation did not fit the budget
    └── ProtocolError           the bytes from a sandbox break the stream's rules

What a harness catches inside its sandbox (`Unsupported`, `ModelError`) lives in `metaharness.runtime`.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class MetaharnessError(Exception):
    """Root of everything that metaharness raises on purpose."""


class UserError(MetaharnessError):
    """The request is wrong. The message is one line: what is wrong, where, and what to do."""


class SpecError(UserError):
    """A campaign specification that cannot be used."""


class HarnessError(UserError):
    """A harness directory that breaks the harness contract."""


class EnvironmentFormatError(UserError):
    """An environment that breaks its format."""


class ArchiveError(UserError):
    """An archive, campaign or candidate that cannot be used as asked."""


class MissingDependency(UserError):
    """An optional package, engine or model is absent; the message says how to get it."""


class ModelAccessError(UserError):
    """The provider lets no call through: key absent or wrong, model unknown, account without credit."""


class InfraError(MetaharnessError):
    """Infrastructure failed around a rollout: never a score."""


class ModelUnavailable(InfraError):
    """The model could not be asked: provider 5xx, rate limit after retries, time-out, local server gone.

    Args:
        message: One line.
        retry_after_s: Seconds that the provider asked to wait before the next try, where it said so.
    """

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class SandboxUnavailable(InfraError):
    """A sandbox could not be started, or its engine was lost."""


class ScoringFailed(InfraError):
    """A scorer or verifier broke, or gave a reward outside its declared range."""


class ModelRefused(MetaharnessError):
    """The provider rejected the request itself (for example a context overflow); asking again does not help."""


class UnsupportedRequest(MetaharnessError):
    """The backend or environment cannot do what was asked; inside the sandbox this is `Unsupported`."""


class ProposalFailed(MetaharnessError):
    """A proposer gave nothing usable; the message is recorded with the proposal."""


class BudgetExhausted(MetaharnessError):
    """A reservation did not fit into what is left of the budget."""


class ProtocolError(MetaharnessError):
    """Bytes from a sandbox break the rules of the stream."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Return one line which says that `name` is no known `kind`, and names the nearest and all known ones."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"unknown {kind} {name!r}{hint} (known: {', '.join(names) or 'none'})"
