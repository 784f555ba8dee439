"""What Megatron-Core runs as one function: rotary positions and gates, by bytes counted by hand."""

from __future__ import annotations

from simulator.api import Session
from simulator.questions.options import StepOptions
from simulator.questions.where import Where
from simulator.step.issue import launches_of
from simulator.step.megatron_passes import fused_passes
from simulator.workload.zoo.registry import build_network

LENGTH, HIDDEN, INNER, KEYS = 512, 4096, 14336, 1024
LLAMA = build_network("llama3-8b", batch=1, sequence_length=LENGTH, layers=1, loss=True)
H100 = Session().device(Where("dgx-h100"))
MEGATRON = StepOptions(precision="master-bf16", optimizer="adam", fused_optimizer=True, framework="megatron")


def moved(name: str, way: str) -> list[tuple[int, int]]:
    extra = fused_passes(LLAMA, 2)[f"layers.0.{name}", way]
    assert extra.own is not None
    return [(kernel.read_bytes, kernel.written_bytes) for kernel in extra.own]


def test_a_rotation_reads_and_writes_its_tensor_once() -> None:
    for part, size in (("q", HIDDEN), ("k", KEYS)):
        whole = 2 * LENGTH * size
        for way in ("forward", "backward"):
            assert moved(f"rotate_{part}.add", way) == [(whole, whole)]
            for inside in ("neg", "cat", "cos", "sin"):
                assert moved(f"rotate_{part}.{inside}", way) == []


def test_a_gate_is_one_function() -> None:
    whole = 2 * LENGTH * INNER
    assert (moved("silu", "forward"), moved("mul", "forward")) == ([], [(2 * whole, whole)])
    assert (moved("silu", "backward"), moved("mul", "backward")) == ([], [(3 * whole, 2 * whole)])


def test_the_framework_decides() -> None:
    counts = {}
    for framework in ("pytorch", "megatron"):
        options = StepOptions(
            **{
                **{n: getattr(MEGATRON, n) for n in ("precision", "optimizer", "fused_optimizer")},
                "framework": framework,
            }
        )
        issues = launches_of(H100, LLAMA, options)
        counts[framework] = sum(".rotate_" in issue.name for issue in issues if issue.part == "forward")
    assert counts == {"pytorch": 10, "megatron": 2}


def test_latent_attention_and_experts_have_passes_of_their_own() -> None:
    deepseek = build_network("deepseek-v3", batch=1, sequence_length=512, layers=4, loss=True)
    found = {name for name, _ in fused_passes(deepseek, 2)}
    assert not any("rotate_" in name for name in found)
    assert not any("experts" in name for name in found)
    assert {"layers.0.mul", "layers.3.shared.mul"} <= found


def test_weights_are_cast_to_8_bits_once_a_step() -> None:
    def cast_bytes(device: object, precision: str) -> list[int]:
        options = StepOptions(precision=precision, optimizer="adam", fused_optimizer=True, framework="megatron")  # type: ignore[arg-type]
        issues = launches_of(device, LLAMA, options)  # type: ignore[arg-type]
        return [int(cost.bytes) for issue in issues if issue.name == "weights to fp8" for cost in issue.work.costs]

    in_blocks = 2 * HIDDEN * (HIDDEN + KEYS) + 3 * HIDDEN * INNER
    assert cast_bytes(H100, "master-fp8") == [in_blocks * (2 + 1 + 1)]
    assert cast_bytes(H100, "master-bf16") == []
    assert cast_bytes(Session().device(Where("dgx-a100-80gb")), "master-fp8") == []  # which has no fp8
