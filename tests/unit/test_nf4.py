"""QLoRA: frozen weights in nf4, their memory, and what it takes to multiply them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from simulator import simulate
from simulator.api import Session
from simulator.devices.predict import Device
from simulator.errors import InputError
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.search.parts import RankWork
from simulator.step.issue import launches_of
from simulator.step.memory import ALL, Shares, held_in, memory_need
from simulator.step.moments import tape_of
from simulator.step.reserved import RankState, reserved_and_allocated
from simulator.workload.network import Network, packed_weights, unit_elements
from simulator.workload.operators import Linear, Nf4Linear
from simulator.workload.variants import LoraWeights, with_lora
from simulator.workload.zoo.builder import NetworkBuilder
from simulator.workload.zoo.registry import build_network

OPTIONS = StepOptions(precision="bf16", optimizer="adam")
WIDTH, ROWS = 1024, 64
N = WIDTH * WIDTH
NF4, NESTED = N // 2 + N // 64 * 4, N // 2 + N // 64 + N // 64 // 256 * 4


@pytest.fixture(scope="module")
def device() -> Device:
    return Session().device(Where("dgx-h100"))


def network(weights: LoraWeights) -> Network:
    """Return a block of two linear layers with adapters, between two other linear layers."""
    b = NetworkBuilder("two")
    x = b.input(ROWS, WIDTH).linear("embed", WIDTH)
    with b.part("attention"):
        x = x.linear("layers.0.q", WIDTH, split="columns")
        x = x.linear("layers.0.out", WIDTH, split="rows")
    x.linear("head", 8, bias=False)
    return with_lora(b.build(ROWS), 4, weights=weights)


@pytest.mark.parametrize(("weights", "kept"), [("nf4", NF4), ("nf4-nested", NESTED)])
def test_weights_of_linear_layers_in_blocks_take_four_bits_and_scales(
    weights: LoraWeights, kept: int, device: Device
) -> None:
    assert packed_weights(network(weights)) == {"layers.0.q.weight": kept, "layers.0.out.weight": kept}
    plain, packed = (memory_need(network(each), OPTIONS, device) for each in ("plain", weights))
    assert plain.parameters_bytes - packed.parameters_bytes == 2 * (2 * N - kept)
    assert plain.optimizer_bytes == packed.optimizer_bytes
    inference = replace(OPTIONS, mode="inference", optimizer="none")
    plain, packed = (memory_need(network(each), inference, device) for each in ("plain", weights))
    assert plain.parameters_bytes - packed.parameters_bytes == 2 * (2 * N - kept)
    assert packed.working_bytes > plain.working_bytes


def test_odd_sizes_are_rounded_up() -> None:
    odd = Nf4Linear(4, 9, 7)  # 63 weights: 32 bytes and one scale
    assert odd.packed_bytes == 32 + 4
    assert replace(odd, inputs=13, nested=True).packed_bytes == 46 + 2 + 4  # 91 weights, two scales
    assert Nf4Linear(8, 64, 64, experts=4).packed_bytes == 4 * (2048 + 256)


def test_a_weight_is_there_in_the_format_of_products_while_it_is_multiplied() -> None:
    plain, packed = (tape_of(network(each), OPTIONS, 2) for each in ("plain", "nf4"))
    of = {layer.name: place for place, layer in enumerate(network("nf4").layers)}
    more = {name: packed.layers[place].working_bytes - plain.layers[place].working_bytes for name, place in of.items()}
    assert {name for name, n_bytes in more.items() if n_bytes} == {"layers.0.q", "layers.0.out"}
    assert more["layers.0.q"] == 2 * N
    backward = [
        [each.working_bytes for each in tape.moments[2:] if each.place == of["layers.0.out"]]
        for tape in (plain, packed)
    ]
    assert max(backward[1]) - max(backward[0]) == 2 * N
    nested = network("nf4-nested").layers[of["layers.0.q"]].operator
    assert nested.temporary_bytes(2) == nested.scratch_bytes(2) == 2 * N + N // 16


def test_the_allocator_holds_what_is_kept() -> None:
    held = RankState((2.0,), 2.0, 1.0, 0.0, 0, 0.0, 1.0, 1.0, False)
    plain, packed = (reserved_and_allocated(network(each), OPTIONS, 2, held)[1] for each in ("plain", "nf4"))
    fewer = 2 * (2 * N - NF4)
    assert fewer - 2 * N <= plain - packed < fewer  # less at most one weight as it is multiplied


@pytest.mark.parametrize(("precision", "size"), [("bf16", 2), ("fp32", 4)])
def test_each_product_first_writes_its_weight(precision: str, size: int, device: Device) -> None:
    options = StepOptions(precision=precision, optimizer="none")  # type: ignore[arg-type]
    written = N // 2 + N // 64 * 4 + N * size
    moved: dict[str, Counter[tuple[str, str]]] = {}
    for weights in ("plain", "nf4"):
        found = launches_of(device, network(weights), options)  # type: ignore[arg-type]
        moved[weights] = Counter()
        for each in found:
            moved[weights][each.layer, each.part] += sum(cost.bytes for cost in each.work.costs)
    more = {key: n_bytes - moved["plain"][key] for key, n_bytes in moved["nf4"].items()}
    assert {key: n_bytes for key, n_bytes in more.items() if n_bytes} == {
        ("layers.0.q", "forward"): written,
        ("layers.0.out", "forward"): written,
        ("layers.0.out", "backward"): written,  # nothing before layers.0.q is trained
    }


def test_nested_scales_are_written_first() -> None:
    plain, nested = Nf4Linear(8, 256, 256), Nf4Linear(8, 256, 256, nested=True)
    more = [kernel.bytes for kernel in nested.kernels("fwd", "bf16")[:2]]
    assert more == [1024 + 4096, 2 * 4096]  # 1,024 scales to fp32, and their mean added
    assert nested.kernels("fwd", "bf16")[2:] == plain.kernels("fwd", "bf16")
    assert plain.kernels("bwd_data", "bf16")[1:] == Linear(8, 256, 256).kernels("bwd_data", "bf16")


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_step_takes_longer_by_what_writes_weights(recompute: str, device: Device) -> None:
    options = StepOptions(precision="bf16", optimizer="adam", recompute=recompute)  # type: ignore[arg-type]
    sizes = {"batch": 1, "sequence_length": 256, "layers": 2, "lora": 8, "loss": True}
    busy = {}
    for weights in ("plain", "nf4"):
        built = build_network("llama3-8b", **sizes, lora_weights=weights)  # type: ignore[arg-type]
        busy[weights] = sum(each.device_s for each in launches_of(device, built, options))
    passes = 3 if recompute == "full" else 2
    n = sum(p.elements for p in built.parameters if p.name in packed_weights(built))
    least = passes * n * (2 + 0.5625) / 3.35e12
    assert 0.8 * least < busy["nf4"] - busy["plain"] < 1.5 * least


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"framework": "megatron"}, "is of bitsandbytes, for PyTorch"),
        ({"precision": "master-fp8"}, "is multiplied in 16 or 32 bits"),
        ({"parallel": "fsdp", "precision": "fp32"}, "is gathered as numbers of 16 bits"),
        ({"parallel": "tp=8"}, "tp=8 divides layers.0.q, whose weight is in nf4"),
        ({"parallel": "loop"}, "one process drives all GPUs"),
    ],
)
def test_what_it_is_not_combined_with(asked: dict[str, object], told: str) -> None:
    sizes = {"layers": 1, "lora": 4, "lora_weights": "nf4"}
    with pytest.raises(InputError, match=told):
        simulate("dgx-h100", workload="llama3-8b", batch=1, sizes=[f"{k}={v}" for k, v in sizes.items()], **asked)  # type: ignore[arg-type]


def test_without_adapters_nothing_is_frozen() -> None:
    with pytest.raises(InputError, match="lora_weights is about the frozen weights beside adapters; add lora=16"):
        build_network("llama3-8b", batch=1, lora_weights="nf4")
    with pytest.raises(InputError, match="did you mean 'nf4'"):
        build_network("llama3-8b", batch=1, lora=4, lora_weights="nf5")


def test_the_output_layer_and_embeddings_stay_as_they_are() -> None:
    built = build_network("llama3-8b", batch=1, layers=1, lora=4, lora_weights="nf4")
    linear = {layer.name for layer in built.layers if isinstance(layer.operator, Nf4Linear)}
    assert linear == {f"layers.0.{name}" for name in ("q", "k", "v", "out", "gate", "up", "down")}
    packed = [layer.operator for layer in built.layers if isinstance(layer.operator, Nf4Linear)]
    assert held_in(built, OPTIONS).packed == sum(operator.inputs * operator.outputs for operator in packed)


def asked(**more: object) -> StepQuestion:
    """Return a step of a Llama with adapters beside weights in nf4."""
    sizes = (("lora", 8), ("lora_weights", "nf4"), ("sequence_length", 64), *more.pop("sizes", ()))  # type: ignore[misc]
    options = StepOptions(precision="fp16", optimizer="adam")
    return StepQuestion(batch=1, sizes=sizes, options=options, **{"where": Where("p3.16xlarge"), **more})  # type: ignore[arg-type]


def test_of_shards_each_rank_has_its_part_of_the_weights_and_all_scales(device: Device) -> None:
    whole, parts = (memory_need(network("nf4"), OPTIONS, device, shares) for shares in (ALL, Shares(kept=0.25)))
    fewer = 0.75 * (2 * N // 2 + 2 * (network("nf4").parameter_count - 2 * N))
    assert whole.parameters_bytes - parts.parameters_bytes == fewer
    held = (RankState((2.0 * kept,), 2.0 * kept, 1.0, 0.0, 0, 0.0, 1.0, 1.0, False) for kept in (1.0, 0.25))
    most, least = (reserved_and_allocated(network("nf4"), OPTIONS, 2, each)[1] for each in held)
    assert most - least == pytest.approx(fewer, rel=1e-3)


def test_weights_in_nf4_are_gathered_in_four_bits() -> None:
    plain, packed = (unit_elements(network(each)) for each in ("plain", "nf4"))
    assert plain["layers.0"] - packed["layers.0"] == 2 * (N - N // 4)  # in elements of 16 bits
    assert plain[""] == packed[""]
    steps = {
        weights: simulate(
            "dgx-h100", workload="llama3-8b", batch=1, seq_len=64, precision="bf16", parallel="fsdp",
            sizes=["layers=4", "lora=4", f"lora_weights={weights}"],
        )
        for weights in ("plain", "nf4")
    }  # fmt: skip
    assert steps["nf4"].exchanging_s < 0.7 * steps["plain"].exchanging_s


def test_a_search_adds_up_weights_in_nf4() -> None:
    session = Session()
    question = asked(workload="llama2-7b", sizes=(("layers", 8), ("hidden", 512), ("heads", 8)))
    part = RankWork(session, question, session.group(question.where, None))
    assert part.short.left_out
    found, whole = part.held(range(part.short.unit_count)), held_in(session.network(question), question.options)
    assert (found.packed, found.packed_bytes) == (whole.packed, whole.packed_bytes)
