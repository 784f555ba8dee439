"""Rates in the units of the field: against Megatron-LM's closed form, over layouts."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from simulator import simulate
from simulator.errors import InputError
from simulator.results import plain
from simulator.results.rates import days_words, energy_words, rates_from, rates_of
from simulator.results.step_view import step_view
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


def memory_for(tmp_path: Path, size: str) -> str:
    file = tmp_path / "unlike.yaml"
    file.write_text(
        """schema_version: 1
name: unlike
devices:
  gpu[0-1]: {part: rtx-3090}
  gpu2: {part: rtx-4090, memory_size: SIZE}
  cpu0: {part: xeon-e5-2686-v4}
links:
  - {between: ["gpu[0-2]", cpu0], part: pcie4-x16}
""".replace("SIZE", size)
    )
    return str(file)


@pytest.mark.parametrize("way", [{"divide": "best", "global_batch": 9}, {"batch": 3}])
def test_unlike_devices_have_the_sum_of_their_peaks(way: dict[str, object], tmp_path: Path) -> None:
    result = simulate(memory_for(tmp_path, "24 GB"), workload="gpt2", sizes={"layers": 2}, **way)
    rates = rates_of(result)
    peaks = [each.peak_flops_per_s for each in result.memory for _ in range(each.count)]
    assert len(peaks) == 3
    assert len(set(peaks)) == 2
    assert rates.mfu == pytest.approx(3 * rates.model_flops_per_s_per_device / sum(peaks))
    (said,) = [fact.said for fact in step_view(result) if fact.label == "achieved"]
    assert f"of {sum(peaks) / 3e12:.3g} TFLOP/s per GPU, on average" in said


@pytest.mark.parametrize("size", ["0 GB", "1 kB", "2 PB", "1000 PB"])
def test_memory_has_a_range(size: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"memory_size: .*must be"):
        simulate(memory_for(tmp_path, size), workload="gpt2", batch=1)


def test_products_with_frozen_weights_count_without_their_gradients() -> None:
    """Two passes of a frozen layer, three of an adapter and of attention, one of what comes before all adapters."""
    whole, lora = answer_alone(), answer_alone(lora=16)
    flop = [rates_of(each).model_flops_per_s_per_device * each.step_time_s for each in (whole, lora)]
    hidden = 4096  # as is the length
    frozen = 2 * (4 * hidden**2 + 3 * hidden * 11008) + hidden * 4096
    scores, first = 2 * hidden**2, 3 * hidden**2  # products with halved scores; queries, keys and values of a block
    assert flop[1] / flop[0] == pytest.approx((2 * frozen - first + 3 * scores) / (3 * frozen + 3 * scores), rel=0.01)


@cache
def answer_alone(recompute: str = "", **sizes: object) -> object:
    again = {recompute: True} if recompute else {}
    small = {"layers": 2, "vocabulary": 4096, **sizes}
    return simulate("1x-rtx-3090", workload="llama2-7b", batch=1, compiled=True, sizes=small, **again)


@pytest.mark.parametrize("lora", [0, 16])
@pytest.mark.parametrize("recompute", ["", "recompute", "recompute_attention", "recompute_operators"])
def test_hardware_does_no_more_than_it_can(lora: int, recompute: str) -> None:
    result = answer_alone(recompute, **({"lora": lora} if lora else {}))
    rates = rates_of(result)
    assert rates.mfu <= rates.hfu <= 1.0
    # torch counts all scores of attention, and those that its backward pass computes again: never less than Megatron-LM
    assert rates.mfu <= result.step.utilisation
    assert rates.hfu <= result.step.utilisation * (1 + 1 / 2)
