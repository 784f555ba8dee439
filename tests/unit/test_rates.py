"""Rates in the units of the field: against Megatron-LM's closed form, over layouts."""

from __future__ import annotations

from functools import cache

import pytest

from simulator import simulate
from simulator.results import plain
from simulator.results.rates import days_words, energy_words, rates_from, rates_of
from simulator.topology.schema import Price

LAYERS, HIDDEN, HEADS, LENGTH, WORDS = 4, 1024, 16, 512, 50432


def logged_flop(tokens: float, inner: float, gated: bool, kv_heads: int) -> float:
    """FLOPs of num_floating_point_operations (Megatron-LM, megatron/training/training.py, dense, halved scores)."""
    return (
        tokens * 12 * LAYERS * HIDDEN**2
        * (
            1 + kv_heads / HEADS + LENGTH / HIDDEN / 2
            + inner / HIDDEN * (1.5 if gated else 1.0)
            + WORDS / (2 * LAYERS * HIDDEN)
        )
    )  # fmt: skip


@cache
def answer(parallel: str, **more: object) -> object:
    return simulate(
        "dgx-a100-80gb", workload="gpt", parallel=parallel, batch=2, micro_batches=4, framework="megatron",
        seq_len=LENGTH,
        sizes={"layers": LAYERS, "hidden": HIDDEN, "heads": HEADS, "vocabulary": WORDS}, **more,
    )  # fmt: skip


@pytest.mark.parametrize("parallel", ["dp", "zero=1", "tp=2,sp", "tp=2", "pp=2", "pp=2,vp=2", "cp=2", "fsdp"])
def test_tflops_are_those_of_megatrons_log(parallel: str) -> None:
    result = answer(parallel)
    rates = rates_of(result)
    flop = logged_flop(result.tokens, 4 * HIDDEN, gated=False, kv_heads=HEADS)
    assert rates.model_flops_per_s_per_device == pytest.approx(flop / result.step_time_s / 8, rel=1e-3)
    assert rates.mfu == pytest.approx(rates.model_flops_per_s_per_device / 312e12, rel=1e-3)
    assert rates.hfu == rates.mfu


def test_scores_that_a_masking_kernel_writes_are_halved_too() -> None:
    sizes = {"layers": LAYERS, "hidden": HIDDEN, "heads": HEADS, "vocabulary": WORDS, "attention": "fused-softmax"}
    result = simulate("dgx-a100-80gb", workload="gpt", device="gpu0", batch=4, seq_len=LENGTH, sizes=sizes)
    flop = logged_flop(result.tokens, 4 * HIDDEN, gated=False, kv_heads=HEADS)
    found = rates_of(result).model_flops_per_s_per_device
    assert found == pytest.approx(flop / result.step_time_s, rel=1e-3)


def test_hfu_counts_what_runs_again() -> None:
    result = answer("dp", recompute=True)
    rates = rates_of(result)
    logits = result.tokens * 12 * LAYERS * HIDDEN**2 * WORDS / (2 * LAYERS * HIDDEN)
    flop = logged_flop(result.tokens, 4 * HIDDEN, gated=False, kv_heads=HEADS)
    # A block's forward pass again; its last product's result is the block's, which nobody reads twice.
    assert 1.0 + (flop - logits) / flop / 3 * 0.7 < rates.hfu / rates.mfu <= 1.0 + (flop - logits) / flop / 3 + 1e-9


def test_tokens_days_energy_and_price_follow_from_the_step() -> None:
    result = answer("dp")
    rates = rates_of(result)
    assert rates.tokens_per_s == pytest.approx(8 * 2 * 4 * LENGTH / result.step_time_s)
    assert rates.tokens_per_s_per_device == pytest.approx(rates.tokens_per_s / 8)
    assert rates.days_per_trillion_tokens == pytest.approx(1e12 / rates.tokens_per_s / 86400)
    assert rates.energy_J == pytest.approx(8 * 400.0 * result.step_time_s)
    assert rates.energy_J_per_token == pytest.approx(rates.energy_J / result.tokens)
    assert rates.price_per_million_tokens is None
    assert rates_from(plain(rates)) == rates
    assert result.to_dict()["results"][0]["rates"] == plain(rates)


def test_a_price_survives_plain_data() -> None:
    rates = rates_of(answer("dp"))
    import dataclasses

    priced = dataclasses.replace(rates, price_per_million_tokens=Price(1.5, "USD"))
    assert rates_from(plain(priced)) == priced


@pytest.mark.parametrize(
    ("days", "words"), [(0.5, "12 h"), (1.0, "1 days"), (79.66, "79.7 days"), (1234.0, "1,234 days")]
)
def test_days(days: float, words: str) -> None:
    assert days_words(days) == words


@pytest.mark.parametrize(("joules", "words"), [(10.0, "10 J"), (3.6e6, "1 kWh"), (3.6e9, "1,000 kWh")])
def test_energy(joules: float, words: str) -> None:
    assert energy_words(joules) == words
