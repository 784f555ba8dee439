"""Autocast: which tensors are in fp32, where they are cast, and the cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.api import load_machine
from simulator.places import Places
from simulator.questions.options import Policy, StepOptions
from simulator.step.conversions import Cast, casts_of, wide_tensors
from simulator.step.issue import launches_of
from simulator.step.lowering import Lowering, Mix
from simulator.workload.kernels import Rowwise, Streaming
from simulator.workload.network import Layer, Network, Parameter
from simulator.workload.operators import Elementwise, LayerNorm, Linear, Softmax
from simulator.workload.zoo.registry import build_network
from tests.asked import alone_on

MACHINE = load_machine("dgx-a100-80gb")
DEVICE = Places(MACHINE).find().device
BERT = build_network("bert-base", batch=2, sequence_length=128, layers=1, head="question-answering")
CNN = build_network("resnet18", batch=2)


def names_of_wide(network: Network) -> dict[str, bool]:
    wide = wide_tensors(network)
    return {layer.name: wide[layer.output] for layer in network.layers}


def casts_by_name(network: Network) -> dict[str, list[Cast]]:
    wide = wide_tensors(network)
    return {layer.name: found for layer in network.layers if (found := list(casts_of(layer, wide)))}


def test_the_sum_along_the_residuals_is_fp32_and_what_products_give_is_half() -> None:
    wide = names_of_wide(BERT)
    for name in ("embed", "embed_norm", "embed_dropout", "layers.0.add1", "layers.0.norm1", "layers.0.add2"):
        assert wide[name], name
    for name in ("layers.0.q", "layers.0.scores", "layers.0.scale", "layers.0.out", "layers.0.out_dropout"):
        assert not wide[name], name
    assert not wide["layers.0.up"]
    assert not wide["layers.0.gelu"]


def test_a_mask_in_fp32_widens_scores_and_the_product_after_the_softmax_casts_back() -> None:
    wide, casts = names_of_wide(BERT), casts_by_name(BERT)
    assert wide["layers.0.mask"]
    assert wide["layers.0.softmax"]
    assert wide["layers.0.dropout"]
    assert "layers.0.softmax" not in casts  # its input already has the right format
    assert [cast.to_half for cast in casts["layers.0.context"]] == [True]


def test_each_product_casts_what_it_reads_again() -> None:
    casts = casts_by_name(BERT)
    (query,), (key,), (value,) = (casts[f"layers.0.{name}"] for name in "qkv")
    assert query == key == value
    assert query.to_half
    assert "layers.0.down" not in casts  # GELU keeps half precision
    (residual,) = casts["layers.0.add1"]
    assert residual.backward_alone  # the sum promotes by itself; its gradient is cast


def test_a_normalisation_casts_what_comes_in_half() -> None:
    def network(operator: LayerNorm | Softmax) -> Network:
        layers = (
            Layer("product", Linear(8, 16, 16), (0,), 1, (Parameter("product.weight", 272),)),
            Layer("over rows", operator, (1,), 2),
            Layer("power", Elementwise("pow_scalar", 128), (1,), 3),
        )
        return Network("rows", layers, (128,) * 4, 8)

    casts = casts_by_name(network(LayerNorm(8, 16)))
    assert casts["product"] == [Cast(0, to_half=True)]
    assert casts["over rows"] == casts["power"] == [Cast(1, to_half=False)]
    assert "over rows" not in casts_by_name(network(Softmax(8, 16)))


def test_images_are_cast_once_and_no_gradient_of_them_is() -> None:
    casts = casts_by_name(CNN)
    assert list(casts) == ["conv1"]
    issues = launches_of(DEVICE, CNN, StepOptions(precision="amp-bf16"))
    first = [issue for issue in issues if issue.name == "conv1 (cast)"]
    # The image and the weight in the forward pass; only the weight's gradient in the backward pass.
    assert [issue.part for issue in first] == ["forward", "forward", "backward"]


def copied_bytes(policy: Policy, **options: bool) -> float:
    issues = launches_of(DEVICE, BERT, StepOptions(precision=policy, optimizer="adam", **options))
    return sum(issue.work.costs[0].bytes for issue in issues if "(cast)" in issue.name)


def test_casts_of_one_block_on_paper() -> None:
    """Rows of 768: q, k, v, up and the head cast fp32; both sums cast a gradient; the context casts 12 scores."""
    tokens, wide = 2 * 128, wide_tensors(BERT)
    n, scores = tokens * 768, 2 * 12 * 128 * 128
    forward = backward = 0
    for layer in BERT.layers:
        for cast in casts_of(layer, wide):
            backward += BERT.elements[cast.tensor]
            forward += 0 if cast.backward_alone else BERT.elements[cast.tensor]
    assert forward == 5 * n + scores
    assert backward == 5 * n + scores + 2 * n + scores  # of the scale before the mask
    products = sum(p.elements for layer in BERT.layers if isinstance(layer.operator, Linear) for p in layer.parameters)
    assert copied_bytes("amp-bf16") == 6 * (forward + backward + 2 * products)


def test_compilers_write_what_products_read_as_these_read_it() -> None:
    products = sum(p.elements for layer in BERT.layers if isinstance(layer.operator, Linear) for p in layer.parameters)
    assert copied_bytes("amp-bf16", compiled=True) == 6 * 2 * products


def test_a_sum_reads_its_narrow_side_as_it_is() -> None:
    lowering = Lowering(DEVICE, BERT, StepOptions(precision="amp-bf16"))
    (layer,) = [layer for layer in BERT.layers if layer.name == "layers.0.add1"]
    mix = lowering.mix(layer)
    assert mix == Mix("fp32", narrow_inputs=1)
    (run,) = lowering.layer(layer.operator, "fwd", mix, has_parameters=False)
    assert isinstance(run.kernel, Streaming)
    n = layer.operator.output_elements
    assert (run.kernel.read_bytes, run.kernel.written_bytes) == (2 * n + 4 * n, 4 * n)


@pytest.mark.parametrize("policy", ["graph-fp16", "master-fp16", "fp32"])
def test_only_autocast_leaves_tensors_wide(policy: Policy) -> None:
    lowering = Lowering(DEVICE, BERT, StepOptions(precision=policy))
    formats = {lowering.mix(layer).precision for layer in BERT.layers if isinstance(layer.operator, Elementwise)}
    assert formats == {"fp32" if policy == "fp32" else "fp16"}


def test_a_cnn_takes_as_long_under_autocast_as_under_a_pass_over_its_graph() -> None:
    steps = [alone_on(MACHINE, CNN, StepOptions(precision=p)).step_time_s for p in ("amp-fp16", "graph-fp16")]
    assert steps[0] == pytest.approx(steps[1], rel=0.02)


@pytest.mark.parametrize(("policy", "found"), [("amp-fp16", []), ("amp-bf16", [Cast(1, to_half=False)])])
def test_a_softmax_reads_fp16_as_it_is_and_bf16_through_a_cast(policy: Policy, found: list[Cast]) -> None:
    layers = Layer("product", Linear(8, 16, 16), (0,), 1), Layer("softmax", Softmax(8, 16), (1,), 2)
    network = Network("rows", layers, (128,) * 3, 8)
    assert list(casts_of(layers[1], wide_tensors(network), policy)) == found


def test_the_log_softmax_of_a_loss_keeps_the_format_of_its_scores() -> None:
    network = build_network("resnet18", batch=2, loss=1)
    options = StepOptions("train", "amp-bf16", "momentum")
    new, old = (Lowering(replace(DEVICE, libraries=month), network, options) for month in (None, (2021, 6)))
    loss = network.layers[-1]
    kernels = [run.kernel for run in new.layer(loss.operator, "fwd", new.mix(loss), has_parameters=False)]
    assert [kernel.precision for kernel in kernels if isinstance(kernel, Rowwise)] == ["bf16"]
    assert old.mix(loss) == Mix("fp32")  # of torch 1.9, whose log-softmax was in fp32


def test_passes_have_the_form_of_the_kernels_that_pytorch_has_for_them() -> None:
    def forms(options: StepOptions, name: str, *, forward: bool = True) -> list[str]:
        lowering = Lowering(DEVICE, BERT, options)
        layer = next(layer for layer in BERT.layers if layer.name == name)
        own = lowering.layer(layer.operator, "fwd", lowering.mix(layer), has_parameters=False) if forward else ()
        runs = [*own, *lowering.casts(layer, forward=forward)]
        return [run.kernel.form for run in runs if isinstance(run.kernel, Streaming)]

    eager = StepOptions("train", "amp-bf16", "adam", fused_optimizer=True)
    assert forms(eager, "layers.0.split_q") == ["strided"]
    assert forms(eager, "layers.0.split_k") == ["transposed"]
    assert forms(eager, "layers.0.add1") == ["casts"]
    assert set(forms(eager, "layers.0.q")) == {""}  # to bf16
    assert "casts" in forms(eager, "layers.0.q", forward=False)  # gradients to fp32
    assert "casts" not in forms(replace(eager, compiled=True), "layers.0.q", forward=False)
    (update,) = (run.kernel for name, run in Lowering(DEVICE, BERT, eager).update() if name == "adam step")
    assert isinstance(update, Streaming)
    assert update.form == "tensors"
