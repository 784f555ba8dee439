"""The zoo: every network compared with torch's counts, and the errors for networks that cannot be built."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from simulator.errors import InputError
from simulator.workload.backward import training_flop
from simulator.workload.network import Network
from simulator.workload.operators import Attention, Conv2d, CrossEntropy, Elementwise, Linear, MatMul
from simulator.workload.parse import parse_workload
from simulator.workload.zoo.registry import build_network, find_entry, network_names

_FIGURES = json.loads((Path(__file__).parents[1] / "oracles" / "network_figures.json").read_text(encoding="utf-8"))
_NETWORKS = _FIGURES["networks"]
# Relative positions are projected once, whatever the batch.
_ALIKE = ("transformer-xl-base", "transformer-xl-large")


def results(network: Network) -> list[int]:
    """Return the sizes of the outputs, in elements."""
    read = {i for layer in network.layers for i in layer.inputs}
    return [network.elements[layer.output] for layer in network.layers if layer.output not in read]


# Networks that no module of torch is compared with: their parameters are counted by their blocks, in
# test_mobile_networks and test_names_of_networks.
BY_BLOCKS = ("gpunet-0", "gpunet-1", "gpunet-2", "mobilefacenet", "unet-industrial", "unet3d-brats", "vnet")


def test_every_network_has_figures_to_be_compared_with() -> None:
    assert sorted([*_NETWORKS, *BY_BLOCKS]) == sorted(network_names())


@pytest.mark.parametrize("name", _NETWORKS)
def test_a_network_is_what_torch_says_it_is(name: str) -> None:
    figures = _NETWORKS[name]
    network = build_network(name, batch=_FIGURES["batch"], **figures["options"])
    assert network.samples == _FIGURES["batch"]
    assert network.parameter_count == figures["parameters"]
    assert network.flop == figures["forward_flop"]
    sizes = []
    for shape in figures["outputs"]:
        size = 1
        for side in shape:
            size *= side
        sizes.append(size)
    assert sorted(results(network)) == sorted(sizes)
    # torch counts the filter gradients of a grouped convolution as if each filter saw all channels.
    convolutions = [layer.operator for layer in network.layers if isinstance(layer.operator, Conv2d)]
    beyond = sum((c.groups - 1) * c.flop for c in convolutions)
    assert training_flop(network) + beyond == figures["training_flop"]


@pytest.mark.parametrize("name", network_names())
def test_numbers_of_tensors_are_sound(name: str) -> None:
    network = build_network(name, batch=3, loss=True)
    written: set[int] = set()
    outputs = {layer.output for layer in network.layers}
    for layer in network.layers:
        assert all(i in written or i not in outputs for i in layer.inputs), layer
        assert layer.output not in written
        written.add(layer.output)
        if not isinstance(layer.operator, CrossEntropy):
            assert network.elements[layer.output] == layer.operator.output_elements, layer
        if isinstance(layer.operator, Elementwise):
            assert layer.operator.inputs <= len(layer.inputs)
    names = [layer.name for layer in network.layers]
    assert len(names) == len(set(names))
    by_name = {p.name: p for layer in network.layers for p in layer.parameters}
    assert len(by_name) == len(network.parameters)  # parameter names are unique
    losses = sum(isinstance(layer.operator, CrossEntropy) for layer in network.layers)
    two = ("inception3", "bert-base", "bert-large", "electra-base", "ssd-resnet34", "ssd-resnet50", "tacotron2")
    of_clusters = 4 if name.startswith("transformer-xl") else 1
    assert losses == (5 if name == "mask-rcnn" else 2 if name in two else of_clusters)


@pytest.mark.slow
@pytest.mark.parametrize("name", network_names())
def test_flop_grow_with_the_batch_and_parameters_do_not(name: str) -> None:
    one, eight = build_network(name, batch=1), build_network(name, batch=8)
    of_all = sum(layer.operator.flop for layer in one.layers if name in _ALIKE and layer.name.endswith(".r"))
    # Rare words of an adaptive softmax are whole tokens, rounded up.
    exact = 0.01 if name in _ALIKE else 0
    assert eight.flop == pytest.approx(8 * one.flop - 7 * of_all, rel=exact, abs=0)
    assert eight.parameters == one.parameters
    # Work that does not depend on samples has no input gradient.
    assert training_flop(eight) == pytest.approx(8 * training_flop(one) - 7 * 2 * of_all, rel=exact, abs=0)


def test_dropout_and_the_second_classifier_are_there_in_training_alone() -> None:
    for name in ("alexnet", "inception3", "gpt2"):
        inference = build_network(name, batch=2, training=False)
        functions = {layer.operator.function for layer in inference.layers if isinstance(layer.operator, Elementwise)}
        assert "dropout" not in functions
        assert len(results(inference)) == 1
    assert len(results(build_network("inception3", batch=2))) == 2
    # 23,834,568: torchvision's model without its auxiliary classifier.
    assert build_network("inception3", batch=2, training=False).parameter_count == 23_834_568


def test_ways_of_attention_differ_in_kernels_and_not_in_flop() -> None:
    ways = {w: build_network("gpt2", batch=2, attention=w) for w in ("eager", "fused-softmax", "fused")}
    assert len({n.flop for n in ways.values()}) == 1
    assert len(ways["eager"].layers) > len(ways["fused-softmax"].layers) > len(ways["fused"].layers)
    fused = [layer.operator for layer in ways["fused"].layers if isinstance(layer.operator, Attention)]
    assert fused == [Attention(2, 12, 1024, 1024, 64, 12, causal=True)] * 12
    assert not any(isinstance(layer.operator, MatMul) for layer in ways["fused"].layers)


def test_grouped_queries_share_keys() -> None:
    network = build_network("llama3-8b", batch=1, layers=1)
    attention = next(layer.operator for layer in network.layers if isinstance(layer.operator, Attention))
    assert (attention.heads, attention.kv_heads) == (32, 8)
    keys = next(layer.operator for layer in network.layers if layer.name == "layers.0.k")
    assert isinstance(keys, Linear)
    assert keys.outputs == 1024


def test_products_of_one_sequence_need_no_copies() -> None:
    names = {layer.name for layer in build_network("gpt2", batch=1, layers=1).layers}
    assert "layers.0.merge" in names
    assert "layers.0.split_q" not in names
    assert "layers.0.split_q" in {layer.name for layer in build_network("gpt2", batch=2, layers=1).layers}


def test_the_head_of_bert_is_chosen() -> None:
    heads = {h: build_network("bert-base", batch=2, head=h) for h in ("classification", "none")}
    # transformers: BertModel, and BertForSequenceClassification with two labels.
    assert heads["none"].parameter_count == 109_482_240
    assert heads["classification"].parameter_count == 109_482_240 + 2 * 768 + 2
    assert results(heads["classification"]) == [4]
    used = build_network("bert-base", batch=2, training=False)
    assert used.parameters == heads["classification"].parameters


def test_sizes_can_be_changed() -> None:
    assert build_network("resnet50", batch=1, classes=10).parameter_count == 25_557_032 - 990 * 2049
    written, given = (build_network("mlp", batch=1, inputs=512, widths=w) for w in ("2048,512,1", (2048, 512, 1)))
    assert vars(written) == vars(given)
    assert build_network("vgg11", batch=1, image=(224, 448)).flop > build_network("vgg11", batch=1).flop
    # Megatron-LM's table 1: 1.7 billion parameters.
    gpt = build_network("gpt", batch=1, hidden=2304, heads=24, layers=24, sequence_length=2048)
    assert gpt.parameter_count == pytest.approx(1.7e9, rel=0.03)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("resnt50", {}, "no network is called 'resnt50'; did you mean 'resnet50'?"),
        ("RESNET50", {"batch": 0}, "RESNET50: batch must be a whole number, 1 to 1000000000; got 0"),
        ("alexnet", {"image": 20}, "alexnet: features.5: a kernel of 3 is larger than what it gets, 1"),
        ("resnet50", {"image": -1}, "resnet50: image must be a whole number, 1 to 1000000000; got -1"),
        ("resnet50", {"image": (1, 2, 3)}, "resnet50: image is a side, or height and width; got (1, 2, 3)"),
        ("resnet50", {"sequence_length": 7}, "resnet50: sequence_length does not apply to this network; allowed:"),
        ("gpt2", {"sequence_length": 1025}, "gpt2: it has 1024 positions; a sequence of 1025 is longer"),
        ("gpt2", {"heads": 7}, "gpt2: 7 heads do not divide a hidden size of 768"),
        ("llama3-8b", {"kv_heads": 5}, "llama3-8b: 5 heads of keys and values do not divide 32 heads"),
        ("gpt2", {"layers": 5000}, "gpt2: layers must be a whole number, 1 to 1024; got 5000"),
        (
            "gpt2",
            {"attention": "flash"},
            "gpt2: attention 'flash'; allowed: eager, fused, fused-first, fused-fourth, fused-native, fused-softmax",
        ),
        ("gpt2", {"hiden": 64}, "gpt2: hiden does not apply to this network; did you mean 'hidden'?"),
        ("mlp", {"widths": "12,x"}, "mlp: widths must be a whole number, 1 to 1000000000; got 12,x"),
        ("lenet", {"image": 8}, "lenet: 3: a kernel of 5x5 is larger than what it gets, 4x4"),
    ],
)
def test_what_cannot_be_built_is_explained(name: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError) as raised:
        build_network(name, **{"batch": 1, **options})
    assert str(raised.value).startswith(words)


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("resnet-50", "resnet50"),
        ("inception-v3", "inception3"),
        ("llama3.1-405b", "llama3-405b"),
        ("gpt3", "gpt3-175b"),
    ],
)
def test_aliases(alias: str, name: str) -> None:
    assert find_entry(alias) is find_entry(name)


def test_the_zoo_needs_nothing_but_the_standard_library() -> None:
    code = "import sys, simulator.workload.zoo.registry; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded & {"pydantic", "yaml", "numpy", "torch", "simpy"} == set()


# Models of the measurements, which the zoo must know.
_NAMES = """
alexnet alexnet-owt alexnet-r alexnet-r-lrn alexnet-s alexnet-s-caffe alexnet-s-mxnet alexnet-s-tensorflow
bert-base bert-base-squad bert-large bert-large-squad densenet161
fcn-r fcn-s googlenet gpt gpt2-large gpt3-175b gpt3-2.7b gpt3-xl inception-bn inception3 lenet-fashion-mnist
llama-3.1-8b llama3-405b llama3-70b llama3-8b llama3.1-405b lstm-shi2016 maxtext-llama2-70b maxtext-llama3-70b
mpt-125m mpt-13b mpt-1b mpt-30b mpt-350m mpt-3b mpt-70b mpt-760m mpt-7b opt-1.3b overfeat-fast resnet101
resnet152 resnet18 resnet18-cifar resnet18-fashion-mnist resnet200 resnet34 resnet50 resnet56 resnext101-32x4d
vgg11 vgg16 vgg19
"""
_KNOWN = _NAMES.split()


def test_models_of_measurements_are_known() -> None:
    for name in _KNOWN:
        find_entry(name)


@pytest.mark.slow
@pytest.mark.corpus
def test_the_parameters_that_measurements_state_are_met(corpus: Path) -> None:
    with (corpus / "training.csv").open(newline="", encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["params_billion"] and row["model"] in _KNOWN]
    checked = 0
    for row in {(r["model"], r["seq_len"], r["params_billion"]): r for r in rows}.values():
        if row["model"] == "gpt":  # as people round
            keys = {"hidden": "hidden", "heads": "heads", "layers": "layers", "vocabulary": "vocab"}
            options = {key: int(row[column]) for key, column in keys.items() if row[column]}
            options["tied"] = int(row["vocab"] != "131072")  # NVIDIA's runs of 2024
            tolerance = 0.07
        elif row["model"].startswith("mpt"):
            options, tolerance = {}, 2e-6
        else:
            options, tolerance = {}, 0.01
        if row["seq_len"]:
            options["sequence_length"] = int(row["seq_len"])
        network = build_network(row["model"], batch=1, **options)
        stated = 1e9 * float(row["params_billion"])
        assert network.parameter_count == pytest.approx(stated, rel=tolerance), row
        checked += 1
    assert checked > 30


def test_gradients_are_those_of_the_zoo() -> None:
    for name in ("resnet50", "alexnet", "vgg16", "resnet18", "resnet101", "resnet152", "bert-large", "resnet-34"):
        assert parse_workload(name).gradients == build_network(name, batch=1).parameter_count
    with pytest.raises(InputError, match="no such workload"):
        parse_workload("resnet51")


def test_the_usual_gradients_are_known_without_the_zoo() -> None:
    code = "import sys, simulator.workload.parse as p; p.parse_workload('resnet50'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "simulator.workload.zoo.registry" not in done.stdout.split()


def test_bert_predicts_only_what_is_masked_where_it_is_gathered():
    all_of_them = build_network("bert-base", batch=2, sequence_length=128)
    masked = build_network("bert-base", batch=2, sequence_length=128, predicted=20)
    (whole,), (part,) = ([x.operator for x in n.layers if x.name == "predictions"] for n in (all_of_them, masked))
    assert (whole.rows, part.rows) == (2 * 128, 2 * 20)
    assert masked.parameter_count == all_of_them.parameter_count
    with pytest.raises(InputError, match="129 tokens cannot be predicted of a sequence of 128"):
        build_network("bert-base", batch=2, sequence_length=128, predicted=129)


def test_an_adaptive_softmax_scores_rare_words_only_where_they_stand() -> None:
    def head_flop(**options: Any) -> float:
        network = build_network("transformer-xl-base", batch=8, **options)
        return sum(layer.operator.flop for layer in network.layers if layer.name.startswith("out."))

    tokens, wide = 8 * 192, 2 * 512
    assert head_flop(cutoffs=267735) == tokens * wide * 267735
    assert head_flop(cutoffs="267735") == head_flop(cutoffs=267735)
    rare = head_flop(cutoffs=20000) - tokens * wide * 20001
    assert rare / (wide * 247735) == pytest.approx(0.037 * tokens, rel=0.05)  # of English text (arXiv 1609.07843)
    with pytest.raises(InputError, match="cutoffs must rise, up to a vocabulary of 267735; got \\(9, 5\\)"):
        build_network("transformer-xl-base", batch=8, cutoffs=(9, 5))
    assert build_network("transformer-xl-large", batch=1).parameter_count == 285_167_482
