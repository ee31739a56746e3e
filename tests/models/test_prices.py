"""Prices: the table, the spec's override, and what is unknown."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaharness.errors import SpecError
from metaharness.models.prices import AS_OF, FREE, PRICES, Price, price_of
from metaharness.spec import ModelSpec, PriceSpec


def test_the_table_is_dated_and_plausible() -> None:
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", AS_OF)
    for table in PRICES.values():
        for name, price in table.items():
            assert 0 < price.cached_usd_per_mtok <= price.input_usd_per_mtok < price.output_usd_per_mtok, name


@pytest.mark.parametrize(
    ("ref", "row"),
    [
        ("anthropic/claude-haiku-4-5", ("anthropic", "claude-haiku-4-5")),
        ("anthropic/claude-haiku-4-5-20251001", ("anthropic", "claude-haiku-4-5")),
        ("openai/gpt-5.4-mini-2026-03-17", ("openai", "gpt-5.4-mini")),
        ("openai/gpt-4o-2024-05-13", ("openai", "gpt-4o-2024-05-13")),
    ],
)
def test_models_of_the_table(ref: str, row: tuple[str, str]) -> None:
    assert price_of(ModelSpec(ref=ref)) is PRICES[row[0]][row[1]]


@pytest.mark.parametrize("ref", ["local/smollm2-135m", "replay/calls.jsonl", "scripted/echo"])
def test_what_runs_here_is_free(ref: str) -> None:
    assert price_of(ModelSpec(ref=ref)) is FREE


def test_an_unknown_price_is_refused_unless_allowed_or_given() -> None:
    with pytest.raises(SpecError) as caught:
        price_of(ModelSpec(ref="openai/qwen3"))
    assert "\n" not in str(caught.value)
    for needed in ("model.price", "model.allow_unknown_price", "openai/qwen3", AS_OF):
        assert needed in str(caught.value)
    assert price_of(ModelSpec(ref="openai/qwen3", allow_unknown_price=True)) is FREE
    given_price = PriceSpec(input_usd_per_mtok=2.0, output_usd_per_mtok=3.0)
    price = price_of(ModelSpec(ref="openai/gpt-4.1", price=given_price))
    assert price == Price(
        input_usd_per_mtok=2.0, output_usd_per_mtok=3.0, cached_usd_per_mtok=2.0, cache_write_usd_per_mtok=2.5
    )
    cheap = PriceSpec(input_usd_per_mtok=2.0, output_usd_per_mtok=3.0, cached_usd_per_mtok=0.5)
    assert price_of(ModelSpec(ref="local/x", price=cheap)).cached_usd_per_mtok == 0.5


def test_long_prompts_cost_more_on_all_tokens() -> None:
    price = PRICES["anthropic"]["claude-haiku-5-5"]
    assert price.cost_usd(input_tokens=100_000, output_tokens=1_000) == pytest.approx(0.0100 + 0.0005)
    assert price.cost_usd(input_tokens=100_001, output_tokens=1_000) == pytest.approx(0.0500005 + 0.0025)


@given(
    st.sampled_from([price for table in PRICES.values() for price in table.values()]),
    st.integers(0, 400_000),
    st.integers(0, 100_000),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_no_split_of_the_input_costs_more_than_the_bound(
    price: Price, input_tokens: int, output_tokens: int, cached: float, written: float
) -> None:
    cached_tokens = int(input_tokens * cached)
    write_tokens = int((input_tokens - cached_tokens) * written)
    cost_usd = price.cost_usd(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_tokens=cached_tokens,
        cache_write_tokens=write_tokens,
    )
    assert cost_usd <= price.most_usd(input_tokens=input_tokens, output_tokens=output_tokens) + 1e-12
