"""What the backends of HTTP providers share: keys, error classes, texts at which a reply ends."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from metaharness.errors import MetaharnessError, ModelAccessError, ModelRefused, ModelUnavailable, SpecError
from metaharness.spec import ModelSpec

_MESSAGE_LIMIT = 300
_RETRIED = frozenset({408, 409, 425, 429})
# How providers say that the account is out of money; asking again does not help. Codes, apart from one sentence:
# messages may quote what a harness sent, and no harness may stop a campaign.
_NO_CREDIT_CODES = ("insufficient_quota", "billing_error", "billing_hard_limit_reached", "billing_not_active")
_NO_CREDIT = "credit balance is too low"
_MODERATED = ("moderation", "flagged", "content policy")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key and the environment variable that it came from; never shows itself."""

    variable: str
    value: str

    def __repr__(self) -> str:
        return f"ApiKey({self.variable})"

    def scrub(self, text: str) -> str:
        """Return `text` without the key."""
        return text.replace(self.value, "***") if self.value else text


def read_key(spec: ModelSpec, *, default_variable: str, needed: bool = True) -> ApiKey:
    """Return the key of a provider from the environment.

    Args:
        spec: The model; `api_key_env` names another variable.
        default_variable: The provider's own variable.
        needed: False where an endpoint may work without a key (then an absent one is empty).

    Raises:
        ModelAccessError: The variable is not set, or holds no key.
    """
    variable = spec.api_key_env or default_variable
    value = os.environ.get(variable, "").strip()
    if not value and (needed or spec.api_key_env):
        raise ModelAccessError(
            f"model.ref {spec.ref!r}: the environment variable {variable} is not set "
            "(set it to the provider's key, or name another variable with model.api_key_env)"
        )
    if not value.isascii() or not value.isprintable():
        raise ModelAccessError(f"model.ref {spec.ref!r}: {variable} holds characters that no key has: set it anew")
    return ApiKey(variable, value)


def refuse_unused_temperature(spec: ModelSpec, model: str) -> None:
    """Refuse a temperature which someone chose for a model that takes none.

    Raises:
        SpecError: `model.temperature` is neither the default nor the provider's own.
    """
    if spec.temperature not in (ModelSpec.model_fields["temperature"].default, 1.0):
        raise SpecError(f"model.temperature: {model} takes no sampling temperature; remove this line")


def shown_url(url: str) -> str:
    """Return a URL without user, password and query, for identities and messages."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    netloc = f"{host}:{parts.port}" if parts.port else host
    return urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), "", ""))


def one_line(text: str, limit: int = _MESSAGE_LIMIT) -> str:
    """Return `text` on one line of at most `limit` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the pause in seconds that a provider asks for, or None. Reads seconds and HTTP dates."""
    for name, unit_s in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        given = headers.get(name, "").strip()
        if not given:
            continue
        try:
            seconds = float(given) * unit_s
        except ValueError:
            try:
                seconds = parsedate_to_datetime(given).timestamp() - time.time()
            except (ValueError, OverflowError):
                continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def status_error(
    *,
    ref: str,
    status: int,
    message: str,
    code: str,
    headers: Mapping[str, str],
    key: ApiKey,
    base_url: str,
) -> MetaharnessError:
    """Return the error that stands for an HTTP status of a provider.

    Args:
        ref: Model reference.
        status: HTTP status, at least 400.
        message: The provider's explanation.
        code: The provider's error type or code, or empty.
        headers: Headers of the response, names in lower case or case-insensitive.
        key: The key, to be kept out of the message.
        base_url: Where the request went.
    """
    said = one_line(key.scrub(message)) or "no explanation"
    hint = f"{code} {message}".lower()
    if status == 402 or any(mark in code for mark in _NO_CREDIT_CODES) or (status == 400 and _NO_CREDIT in hint[:120]):
        return ModelAccessError(f"model.ref {ref!r}: the account at {base_url} has no credit left: {said}")
    if status in (401, 403) and not any(mark in hint for mark in _MODERATED):
        return ModelAccessError(
            f"model.ref {ref!r}: {base_url} rejects the key in {key.variable} (HTTP {status}): check it, "
            "and that it may use this model"
        )
    if status == 404:
        return ModelAccessError(
            f"model.ref {ref!r}: {base_url} knows no such model (HTTP 404): {said}; check the name and model.base_url"
        )
    if status in _RETRIED or status >= 500:
        return ModelUnavailable(f"{ref}: HTTP {status}: {said}", retry_after_s=retry_after_s(headers))
    return ModelRefused(f"{ref}: HTTP {status}: {said}")


def cut_at_stop(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """Return `text` up to the first of the `stop` texts, and whether there was one.

    For stops that a provider does not take itself.
    """
    places = [place for mark in stop if mark and (place := text.find(mark)) >= 0]
    return (text[: min(places)], True) if places else (text, False)


def tool_arguments(value: Any) -> dict[str, Any]:
    """Return the arguments of a tool call as an object; what is none is kept under `invalid_arguments`."""
    return dict(value) if isinstance(value, Mapping) else {"invalid_arguments": value}
