"""What model calls cost: a dated table of token prices, which `model.price` of a spec overrides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from metaharness.errors import SpecError
from metaharness.spec import ModelSpec

AS_OF = "2026-11-30"
FREE_PROVIDERS = frozenset({"local", "replay", "scripted"})

# Both providers bill tokens that they write into a prompt cache at this multiple of the input price.
CACHE_WRITE_FACTOR = 1.25

_DATE_SUFFIX = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2})$")


@dataclass(frozen=True, slots=True, kw_only=True)
class LongPrompt:
    """Dearer rates for all tokens of a call whose input exceeds a length."""

    above_tokens: int
    input_factor: float
    output_factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars per million tokens.

    Attributes:
        input_usd_per_mtok: Input that is neither read from nor written to a prompt cache.
        output_usd_per_mtok: Output, hidden reasoning included.
        cached_usd_per_mtok: Input read from a prompt cache.
        cache_write_usd_per_mtok: Input written to a prompt cache.
        long_prompt: Other rates for long inputs.
    """

    input_usd_per_mtok: float = 0.0
    output_usd_per_mtok: float = 0.0
    cached_usd_per_mtok: float = 0.0
    cache_write_usd_per_mtok: float = 0.0
    long_prompt: LongPrompt | None = None

    def cost_usd(
        self, *, input_tokens: int, output_tokens: int, cached_tokens: int = 0, cache_write_tokens: int = 0
    ) -> float:
        """Return the dollars of one call.

        Args:
            input_tokens: All input, what was read from and written to a cache included.
            output_tokens: All output.
            cached_tokens: Part of the input that was read from a cache.
            cache_write_tokens: Part of the input that was written to a cache.
        """
        plain = max(0, input_tokens - cached_tokens - cache_write_tokens)
        into = (
            plain * self.input_usd_per_mtok
            + cached_tokens * self.cached_usd_per_mtok
            + cache_write_tokens * self.cache_write_usd_per_mtok
        )
        out = output_tokens * self.output_usd_per_mtok
        if self.long_prompt is not None and input_tokens > self.long_prompt.above_tokens:
            into *= self.long_prompt.input_factor
            out *= self.long_prompt.output_factor
        return (into + out) / 1e6

    def most_usd(self, *, input_tokens: int, output_tokens: int) -> float:
        """Return the most that a call of at most so many tokens can cost, whatever a cache does."""
        dearest = max(self.input_usd_per_mtok, self.cached_usd_per_mtok, self.cache_write_usd_per_mtok)
        return Price(
            input_usd_per_mtok=dearest, output_usd_per_mtok=self.output_usd_per_mtok, long_prompt=self.long_prompt
        ).cost_usd(input_tokens=input_tokens, output_tokens=output_tokens)


FREE = Price()


def _price(into: float, out: float, cached: float | None = None, long_prompt: LongPrompt | None = None) -> Price:
    return Price(
        input_usd_per_mtok=into,
        output_usd_per_mtok=out,
        cached_usd_per_mtok=into if cached is None else cached,
        cache_write_usd_per_mtok=into * CACHE_WRITE_FACTOR,
        long_prompt=long_prompt,
    )


_HAIKU_LONG = LongPrompt(above_tokens=100_000, input_factor=5.0, output_factor=5.0)
_SONNET_LONG = LongPrompt(above_tokens=200_000, input_factor=2.0, output_factor=1.5)
_GPT_LONG = LongPrompt(above_tokens=272_000, input_factor=2.0, output_factor=1.5)

# Input, output, cached input; standard tier, shortest-lived cache writes. AS_OF is the day on which the rows were last
# compared with the sources below. A dated name (`…-20251001`, `…-2026-03-17`) without a row has its model's price.
#
# Source: platform.claude.com/docs/en/about-claude/pricing; Fable 5.2 and Mythos 5.2 from genai-prices 0.2.3 (PyPI).
# Source: developers.openai.com/api/docs/pricing and …/api/docs/models/<name>, compared with genai-prices 0.2.3.
PRICES: Mapping[str, Mapping[str, Price]] = MappingProxyType(
    {
        "anthropic": MappingProxyType(
            {
                "claude-fable-5-2": _price(8, 40, 0.20),
                "claude-fable-5-1": _price(10, 50, 0.25),
                "claude-fable-5": _price(10, 50, 1.00),
                "claude-mythos-5-2": _price(8, 40, 0.20),
                "claude-mythos-5-1": _price(10, 50, 0.25),
                "claude-mythos-5": _price(10, 50, 1.00),
                "claude-opus-5-5": _price(4, 20, 0.20),
                "claude-opus-5": _price(5, 25, 0.50),
                "claude-opus-4-8": _price(5, 25, 0.50),
                "claude-opus-4-7": _price(5, 25, 0.50),
                "claude-opus-4-6": _price(5, 25, 0.50),
                "claude-opus-4-5": _price(5, 25, 0.50),
                "claude-sonnet-5-5": _price(2, 10, 0.10),
                "claude-sonnet-5": _price(2, 10, 0.20),
                "claude-sonnet-4-6": _price(3, 15, 0.30),
                "claude-sonnet-4-5": _price(3, 15, 0.30, _SONNET_LONG),
                "claude-haiku-5-5": _price(0.10, 0.50, 0.01, _HAIKU_LONG),
                "claude-haiku-4-5": _price(1, 5, 0.10),
            }
        ),
        "openai": MappingProxyType(
            {
                "gpt-6.2-astra": _price(8, 40, 0.40, _GPT_LONG),
                "gpt-6.2-sol": _price(2, 10, 0.10, _GPT_LONG),
                "gpt-6.1-sol": _price(2, 10, 0.10, _GPT_LONG),
                "gpt-6.1-terra": _price(1, 5, 0.05, _GPT_LONG),
                "gpt-6-astra": _price(10, 50, 1.00, _GPT_LONG),
                "gpt-6-sol": _price(2, 10, 0.20, _GPT_LONG),
                "gpt-6-luna": _price(0.10, 0.50, 0.01, _GPT_LONG),
                "gpt-5.6-sol": _price(4, 20, 0.40, _GPT_LONG),
                "gpt-5.6-terra": _price(2, 12, 0.20, _GPT_LONG),
                "gpt-5.6-luna": _price(0.20, 1.20, 0.02, _GPT_LONG),
                "gpt-5.5": _price(5, 30, 0.50, _GPT_LONG),
                "gpt-5.4": _price(2.50, 15, 0.25, _GPT_LONG),
                "gpt-5.4-mini": _price(0.75, 4.50, 0.075),
                "gpt-5.4-nano": _price(0.20, 1.25, 0.02),
                "gpt-5.2": _price(1.75, 14, 0.175),
                "gpt-5.1": _price(1.25, 10, 0.125),
                "gpt-5": _price(1.25, 10, 0.125),
                "gpt-5-mini": _price(0.25, 2, 0.025),
                "gpt-5-nano": _price(0.05, 0.40, 0.005),
                "gpt-4.1": _price(2, 8, 0.50),
                "gpt-4.1-mini": _price(0.40, 1.60, 0.10),
                "gpt-4.1-nano": _price(0.10, 0.40, 0.025),
                "gpt-4o": _price(2.50, 10, 1.25),
                "gpt-4o-2024-05-13": _price(5, 15),
                "gpt-4o-mini": _price(0.15, 0.60, 0.075),
                "o3": _price(2, 8, 0.50),
                "o4-mini": _price(1.10, 4.40, 0.275),
                "o3-mini": _price(1.10, 4.40, 0.55),
            }
        ),
    }
)


def price_of(spec: ModelSpec) -> Price:
    """Return what calls of a model cost: the spec's price, else the table's; local, replayed and scripted are free.

    Raises:
        SpecError: No price is known, and the spec does not allow that.
    """
    if spec.price is not None:
        given = spec.price
        return _price(given.input_usd_per_mtok, given.output_usd_per_mtok, given.cached_usd_per_mtok)
    provider, _, model = spec.ref.partition("/")
    if provider in FREE_PROVIDERS:
        return FREE
    table = PRICES.get(provider, {})
    found = table.get(model) or table.get(_DATE_SUFFIX.sub("", model))
    if found is not None:
        return found
    if spec.allow_unknown_price:
        return FREE
    raise SpecError(
        f"model.ref: no price of {spec.ref!r} is known (table of {AS_OF}): set model.price, for example "
        "{ input_usd_per_mtok = 1.0, output_usd_per_mtok = 5.0 }, or model.allow_unknown_price = true, "
        "which counts its calls as 0 dollars"
    )
