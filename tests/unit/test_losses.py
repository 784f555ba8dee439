"""Losses in place of their scores, or with the output layer in chunks: kernels, memory, and where they are refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from simulator import simulate
from simulator.api import Session
from simulator.devices.predict import Device
from simulator.errors import InputError
from simulator.launch.launch import read_launch
from simulator.questions.options import StepOptions
from simulator.questions.where import Where
from simulator.step.issue import launches_of
from simulator.step.memory import memory_need
from simulator.step.moments import tape_of
from simulator.workload.backward import training_flop
from simulator.workload.kernels import Gemm, Rowwise, Streaming
from simulator.workload.network import Network
from simulator.workload.operators import InPlaceCrossEntropy, LinearCrossEntropy
from simulator.workload.variants import LOSS_WAYS, LossWay, with_losses
from simulator.workload.zoo.builder import NetworkBuilder
from simulator.workload.zoo.registry import build_network
from tests.unit.test_launch_refused import TRAINER

ROWS, WIDTH, WORDS = 512, 64, 4096
SCORES = ROWS * WORDS
HALF = StepOptions(precision="bf16", optimizer="none", mode="backward")
OTHERS = LOSS_WAYS[1:]
MEGATRON = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 "
    "--seq-length 128 --max-position-embeddings 128 --micro-batch-size 1 --global-batch-size 8 --vocab-size 1000 --bf16"
)


@pytest.fixture(scope="module")
def device() -> Device:
    return Session().device(Where("dgx-h100"))


def network(way: LossWay = "plain", frozen: bool = False) -> Network:
    """Return an embedding, a linear layer, an output layer and a loss."""
    sizes = {"hidden": WIDTH, "heads": 4, "layers": 1, "vocabulary": WORDS, "sequence_length": ROWS, "inner": 128}
    lora = {"lora": 4} if frozen else {}
    return build_network("llama2-7b", batch=1, loss=True, **sizes, kv_heads=4, cross_entropy=way, **lora)


@pytest.mark.parametrize("way", OTHERS)
def test_the_network_is_the_same_but_its_loss(way: LossWay) -> None:
    plain, other = network(), network(way)
    assert other.parameters == plain.parameters
    assert training_flop(other) == training_flop(plain)
    assert other.fed_elements == plain.fed_elements
    names = [layer.name for layer in plain.layers if way in ("half", "in-place") or layer.name != "lm_head"]
    assert [layer.name for layer in other.layers] == names


@pytest.mark.parametrize(
    ("rows", "inputs", "classes", "chunk"),
    [(16384, 4096, 32000, 2048), (8192, 4096, 128256, 256), (512, 4096, 128256, 16), (100, 64, 64, 100), (7, 2, 64, 1)],
)
def test_scores_of_a_chunk_of_ligers_take_about_as_much_as_the_input(
    rows: int, inputs: int, classes: int, chunk: int
) -> None:
    # 16384, 4096, 32000 is the example in fused_linear_cross_entropy.py
    assert LinearCrossEntropy(rows, inputs, classes).chunk_rows == chunk
    assert LinearCrossEntropy(rows, inputs, classes, chunks=8).chunk_rows == -(-rows // 8)


def test_each_chunk_has_three_products_and_one_kernel_between() -> None:
    operator = LinearCrossEntropy(1000, 64, 4096)  # of 16 rows
    kernels = operator.kernels("fwd", "bf16")
    assert len(kernels) == 4 * 63
    assert kernels[:4] == (
        Gemm(16, 4096, 64, "bf16", 1, "NT"),
        Rowwise("log_softmax", 16, 4096, "bf16"),
        Gemm(16, 64, 4096, "bf16", 1, "NN"),
        Gemm(4096, 64, 16, "bf16", 1, "TN", out_bytes=4),  # reads and writes each element of the gradient
    )
    assert sum(kernel.flop for kernel in kernels if isinstance(kernel, Gemm)) == 3 * operator.flop
    assert [kernel.bytes for kernel in operator.kernels("bwd", "bf16")] == [4 * 1000 * 64, 4 * 4096 * 64]
    assert operator.host_reads("fwd")
    assert operator.host_reads("bwd")


def test_in_chunks_torchs_operators_run_as_they_do_on_all_scores() -> None:
    operator = LinearCrossEntropy(1000, 64, 4096, chunks=8)
    kernels = operator.kernels("fwd", "bf16")
    assert sum(kernel.flop for kernel in kernels if isinstance(kernel, Gemm)) == 3 * operator.flop
    assert sum(kernel.rows for kernel in kernels if isinstance(kernel, Rowwise)) == 2 * 1000
    added = [kernel for kernel in kernels if isinstance(kernel, Streaming) and kernel.function == "add"]
    assert [kernel.bytes for kernel in added] == [3 * 2 * 4096 * 64] * 7  # to the gradient of the chunks before
    casts = Counter(k.bytes for k in kernels if isinstance(k, Streaming) and k.function == "copy")
    assert casts == {125 * 4096 * 6: 16, 125 * 64 * 6: 8, 1000 * 64 * 6: 1}
    assert operator.kernels("bwd", "bf16") == ()
    assert not operator.host_reads("fwd")


def test_in_place_scores_are_read_once_forward_and_overwritten_backward() -> None:
    operator = InPlaceCrossEntropy(ROWS, WORDS)
    sums, loss = operator.kernels("fwd", "bf16")
    assert (sums.bytes, loss.bytes) == (2 * SCORES, ROWS * (12 + 4))
    assert [kernel.bytes for kernel in operator.kernels("bwd_data", "bf16")] == [4 * SCORES]


def test_frozen_output_layers_have_no_gradient() -> None:
    trained, frozen = (network("fused-linear", lora).layers[-1] for lora in (False, True))
    assert len(trained.operator.kernels("fwd", "bf16")) == 4 * 64
    assert len(frozen.operator.kernels("fwd", "bf16")) == 3 * 64
    assert not frozen.trained


@pytest.mark.parametrize(("way", "each"), [("half", 6.0), ("in-place", 2.0), ("chunked", 14 / 8)])
def test_bytes_of_a_score_at_the_loss(way: LossWay, each: float, device: Device) -> None:
    """Of one in half precision: 12 in torch, 6 if not cast; 2 in place; in eight chunks 12, and those of the scores."""
    assert _at_loss("plain") - _at_loss(way) == pytest.approx((12 - each) * SCORES, rel=0.05)
    assert memory_need(network(way), HALF, device).allocated_bytes >= _at_loss(way)


def _at_loss(way: LossWay) -> int:
    """Return the most bytes besides parameters and their gradients in the passes of the loss."""
    tape = tape_of(network(way), HALF, 2)
    last = len(network(way).layers) - 1
    return max(m.working_bytes + m.activations_bytes for m in (*tape.layers, *tape.moments) if m.place in (-1, last))


def test_of_ligers_loss_gradients_are_there_from_the_forward_pass_on() -> None:
    tape = tape_of(network("fused-linear"), HALF, 2)
    after = tape.moments[0]
    before = tape_of(network(), HALF, 2).moments[0]
    of_weight, of_hidden = 2 * WORDS * WIDTH, 2 * ROWS * WIDTH
    in_torch = 4 * SCORES + of_hidden  # the log-softmax, and the input of the output layer
    assert after.activations_bytes - before.activations_bytes == of_weight + of_hidden - in_torch
    graded = [
        moment.gradients_bytes for moment in tape.moments if moment.place == len(network("fused-linear").layers) - 1
    ]
    assert graded == [of_weight]
    assert (
        tape.moments[2].activations_bytes == after.activations_bytes - of_weight - of_hidden
    )  # they became the gradients


@pytest.mark.parametrize("precision", ["bf16", "amp-bf16", "master-bf16", "fp32"])
def test_less_memory_than_torchs_and_in_place_less_time(precision: str, device: Device) -> None:
    options = StepOptions(precision=precision, optimizer="none", mode="backward")  # type: ignore[arg-type]
    needs = {way: memory_need(network(way), options, device).allocated_bytes for way in LOSS_WAYS}
    assert needs["plain"] == max(needs.values())
    assert needs["fused-linear"] < needs["in-place"]
    if precision == "bf16":
        return  # in plain half precision, the plain loss is timed in half precision
    plain, other = (
        sum(each.device_s for each in launches_of(device, network(way), options)) for way in ("plain", "in-place")
    )
    assert other < plain


@pytest.mark.parametrize("way", ["in-place", "fused-linear"])
def test_the_host_waits_at_the_loss(way: LossWay, device: Device) -> None:
    waits = [
        (each.layer, each.part) for each in launches_of(device, network(way), replace(HALF, mode="train")) if each.waits
    ]
    assert waits == [("loss", part) for part in ("forward", "backward") if way != "in-place" or part == "backward"]


def test_autocast_casts_the_input_and_the_weight_and_no_gradient_of_the_weight(device: Device) -> None:
    """Liger's gradient of the weight is in the format of the parameter."""
    options = StepOptions(precision="amp-bf16", optimizer="none")
    built = network("fused-linear")
    casts = [each for each in launches_of(device, built, options) if each.name == "loss (cast)"]
    moved = [(each.part, sum(cost.bytes for cost in each.work.costs)) for each in casts]
    assert sorted(moved) == [
        ("backward", 6 * ROWS * WIDTH),
        ("forward", 6 * ROWS * WIDTH),
        ("forward", 6 * WORDS * WIDTH),
    ]
    last = len(built.layers) - 1
    at_loss = [moment.working_bytes for moment in tape_of(built, options, 4).moments[2:] if moment.place == last]
    assert max(at_loss) < 2 * WORDS * WIDTH  # a gradient of the weight in half precision


def test_a_loss_of_no_linear_layer() -> None:
    b = NetworkBuilder("without")
    b.input(4, 8).linear("one", 8).relu("relu").cross_entropy()
    with pytest.raises(InputError, match="cross_entropy=chunked needs a linear layer whose result only the loss reads"):
        with_losses(b.build(4), "chunked")


@pytest.mark.parametrize(
    ("way", "asked", "told"),
    [
        ("fused-linear", {"framework": "megatron"}, "has none; pytorch, deepspeed-zero3 have"),
        (
            "half",
            {"precision": "amp-bf16"},
            "as with fp16, bf16, master-fp16, master-bf16, not with precision='amp-bf16'",
        ),
        ("in-place", {"framework": "tensorflow"}, "has none; pytorch, deepspeed-zero3, megatron have"),
        ("chunked", {"mode": "inference"}, "is about the loss, which this step does not compute"),
        ("in-place", {"parallel": "dataparallel"}, "one process drives all GPUs"),
        ("fused-linear", {"parallel": "tp=4", "gpus": 4}, "tp=4 divides the output layer"),
        ("chunked", {"parallel": "tp=4", "gpus": 4}, "divides the output layer, and"),
        ("fused-linear", {"cuda_graph": True}, "waits for the device"),
        ("in-place", {"device": "cpu0"}, "applies to GPUs, but a CPU computes"),
    ],
)
def test_where_it_is_refused(way: str, asked: dict[str, object], told: str) -> None:
    sizes = ["layers=1", f"cross_entropy={way}"]
    with pytest.raises(InputError) as error:
        simulate("dgx-h100", workload="gpt2", batch=1, seq_len=128, sizes=sizes, **asked)  # type: ignore[arg-type]
    assert told in str(error.value)


def test_megatrons_is_divided_as_its_own(device: Device) -> None:
    found = simulate(
        "dgx-h100", workload="gpt2", batch=1, seq_len=128, parallel="tp=8", framework="megatron",
        precision="master-bf16", sizes=["layers=1", "heads=16", "hidden=1024", "cross_entropy=in-place"],
    )  # fmt: skip
    assert found.step_time_s > 0


@pytest.mark.parametrize(
    ("line", "sizes", "told"),
    [
        (f"{MEGATRON} --cross-entropy-loss-fusion --cross-entropy-fusion-impl te", "in-place", ""),
        (f"{MEGATRON} --cross-entropy-loss-fusion", None, ""),
        (f"{MEGATRON} --cross-entropy-loss-fusion --cross-entropy-fusion-impl native", None, ""),
        (f"{MEGATRON} --cross-entropy-fusion-impl te", None, ""),
        (f"{MEGATRON} --cross-entropy-loss-fusion --cross-entropy-fusion-impl linear", None, "simulated as native"),
        (f"{TRAINER} --use_liger_kernel True", "fused-linear", "Liger's kernels: the loss is simulated as Liger's"),
        (f"{TRAINER} --use_liger_kernel False", None, ""),
        (f"{TRAINER} --enable_liger_kernel", "fused-linear", "Liger's kernels"),
    ],
)
def test_launch_lines(line: str, sizes: str | None, told: str) -> None:
    found = read_launch(line)
    assert found.sizes.get("cross_entropy") == sizes
    notes = [note for note in found.notes if "cross-entropy" in note or "iger" in note]
    assert [told in note for note in notes] == [True] * bool(told)
