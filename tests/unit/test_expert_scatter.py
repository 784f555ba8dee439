"""Experts that read rows by index (``expert_kernels=scatter``, scattermoe), by hand count, beside grouped products."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.api import Session
from simulator.errors import InputError
from simulator.launch.launch import read_launch
from simulator.questions.layout import parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.step.memory import held_in
from simulator.training import divided
from simulator.workload import operators as ops
from simulator.workload.network import Network
from simulator.workload.zoo.registry import build_network

TOKENS, EXPERTS, CHOSEN, HIDDEN, INNER, SIZE = 2048, 128, 8, 2048, 768, 2
ROWS = CHOSEN * TOKENS
TOKEN, ROW = TOKENS * HIDDEN * SIZE, ROWS * HIDDEN * SIZE  # bytes
HALF = StepOptions(precision="bf16", optimizer="adam", fused_optimizer=True)


def network(kernels: str, layers: int = 1, **sizes: int | str) -> Network:
    name = "qwen3-30b-a3b"
    sizes |= {"sequence_length": TOKENS, "layers": layers, "expert_kernels": kernels}
    return build_network(name, batch=1, loss=True, **sizes)


SCATTER, GROUPED = network("scatter"), network("grouped")


def moved(operator: ops.Operator, phase: ops.Phase) -> int:
    return sum(kernel.bytes for kernel in operator.kernels(phase, "bf16"))


def operator(of: Network, name: str) -> ops.Operator:
    return next(layer.operator for layer in of.layers if layer.name == f"layers.0.{name}")


def test_no_copy_of_tokens_is_made_forward() -> None:
    layers = {layer.name.removeprefix("layers.0."): layer for layer in SCATTER.layers}
    assert not {"dispatch", "weigh"} & layers.keys()
    up, down = layers["experts_up"], layers["experts_down"]
    assert SCATTER.elements[up.inputs[0]] == TOKENS * HIDDEN
    assert (up.operator.output_elements, down.operator.output_elements) == (2 * ROWS * INNER, ROWS * HIDDEN)
    for name in ("experts_up", "experts_down"):
        assert moved(operator(SCATTER, name), "fwd") == moved(operator(GROUPED, name), "fwd")
    assert SCATTER.flop == GROUPED.flop
    assert SCATTER.parameter_count == GROUPED.parameter_count


def test_backward_rows_are_copied_and_summed_and_gradients_of_weights_begin_as_zeros() -> None:
    for name, zeros, copied, summed in (
        ("experts_up", 2 * EXPERTS * HIDDEN * INNER * SIZE, TOKEN + ROW, ROW + TOKEN),
        ("experts_down", EXPERTS * HIDDEN * INNER * SIZE, 0, 0),
    ):
        scattered, grouped = operator(SCATTER, name), operator(GROUPED, name)
        assert moved(scattered, "bwd_weight") - moved(grouped, "bwd_weight") == zeros + copied
        assert moved(scattered, "bwd_data") - moved(grouped, "bwd_data") == summed
    combine = operator(SCATTER, "combine")
    assert moved(combine, "fwd") == ROW + TOKEN
    assert moved(combine, "bwd_data") == (ROW + TOKEN) + (TOKEN + ROW)


def test_copies_of_tokens_are_not_saved() -> None:
    """The results of experts are, for the gradients of their weights, either way."""
    scattered, grouped = (
        held_in(network(kernels, 2), HALF).moments[0].activations_bytes
        - held_in(network(kernels, 1), HALF).moments[0].activations_bytes
        for kernels in ("scatter", "grouped")
    )
    assert grouped - scattered == pytest.approx(ROW, rel=0.01)


@pytest.mark.parametrize("words", ["ep=2", "tp=2", "ep=2,ep_comm=all_gather"])
def test_it_is_not_divided(words: str) -> None:
    with pytest.raises(InputError, match=r"reads tokens where they are \(expert_kernels=scatter\)"):
        divided(SCATTER, parse_layout(words).on(8))
    assert divided(SCATTER, parse_layout("fsdp").on(8)) is SCATTER


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        ({"expert_capacity": 125}, "expert_capacity does not apply"),
        ({"lora": 8, "lora_weights": "nf4"}, "has plain weights, not lora_weights=nf4"),
    ],
)
def test_what_it_has_not_is_refused(sizes: dict[str, int | str], why: str) -> None:
    with pytest.raises(InputError, match=why):
        network("scatter", **sizes)


def test_megatron_has_none() -> None:
    options = StepOptions(framework="megatron", precision="master-bf16")
    with pytest.raises(InputError, match="Megatron-LM has no such kernels"):
        StepQuestion(
            where=Where("dgx-h100"),
            workload="mixtral-8x7b",
            batch=1,
            sizes=(("expert_kernels", "scatter"),),
            options=options,
        )


def test_a_step_has_no_band() -> None:
    sizes = (("layers", 2), ("expert_kernels", "scatter"))
    asked = StepQuestion(where=Where("dgx-a100-80gb"), gpus=(0,), workload="qwen3-30b-a3b", batch=1, sizes=sizes)
    assert Session().step(asked).confidence.outside == ("no measured step whose experts read rows by index",)


@pytest.mark.parametrize(
    ("said", "kernels"),
    [
        ("use_scattermoe: true", "scatter"),
        ("experts_implementation: scattermoe", "scatter"),
        ("experts_implementation: eager", "loop"),
        ("experts_implementation: grouped_mm", "grouped"),
        ("use_scattermoe: false", None),
    ],
)
def test_axolotl_says_how_experts_multiply(said: str, kernels: str | None, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"base_model: mistralai/Mixtral-8x7B-v0.1\nmicro_batch_size: 1\nsequence_len: 64\n{said}\n")
    found = read_launch(f"accelerate launch --num_processes 2 -m axolotl.cli.train {file}")
    assert found.sizes.get("expert_kernels") == kernels
    assert not any("experts" in note or "scatter" in note for note in found.notes)


def test_other_kernels_are_remarked_on(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("base_model: gpt2\nmicro_batch_size: 1\nsequence_len: 64\nuse_scattermoe: true\n")
    found = read_launch(f"accelerate launch --num_processes 2 -m axolotl.cli.train {file}")
    assert any("kernels are those of transformers" in note for note in found.notes)
