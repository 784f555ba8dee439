"""GELU of GPT's code: the formula, a kernel for each operation (Hugging Face), or one kernel (everybody else)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest

from simulator.api import load_machine
from simulator.cli import run
from simulator.errors import InputError
from simulator.questions.options import StepOptions
from simulator.workload.find import find_network
from simulator.workload.zoo.registry import build_network
from simulator.workload.zoo.sizes import Gelu
from tests.asked import alone_on
from tests.unit.test_score_training import sizes

FORMULA = ["half", "cube", "cube_scale", "inner", "inner_scale", "tanh", "one", "mul"]


def of_gelu(name: str, **options: object) -> list[str]:
    """Return the layers between the two products of the first feed-forward layer, without dropout."""
    network = build_network(name, batch=1, training=False, sequence_length=64, layers=1, **options)
    names = [layer.name for layer in network.layers]
    return names[names.index("layers.0.up") + 1 : names.index("layers.0.down")]


@pytest.mark.parametrize("name", ["gpt2", "gpt2-xl", "gpt3-125m"])
def test_gpt2_is_hugging_faces_unless_said_otherwise(name: str) -> None:
    assert of_gelu(name) == of_gelu(name, gelu="eager") == [f"layers.0.gelu.{part}" for part in FORMULA]
    assert of_gelu(name, gelu="fused") == ["layers.0.gelu"]


@pytest.mark.parametrize("name", ["gpt", "megatron-1.2b", "mpt-125m", "bloom-560m"])
def test_others_run_one_kernel(name: str) -> None:
    assert of_gelu(name) == ["layers.0.gelu"]
    assert len(of_gelu(name, gelu="eager")) == len(FORMULA)


def test_a_network_without_gelu_has_no_such_setting() -> None:
    for name in ("llama2-7b", "opt-125m", "resnet50"):
        with pytest.raises(InputError, match="gelu does not apply to this network"):
            build_network(name, batch=1, gelu="fused")
    with pytest.raises(InputError, match="gelu 'one'; allowed: eager, fused"):
        build_network("gpt2", batch=1, gelu="one")


def test_one_kernel_saves_the_memory_traffic_of_seven() -> None:
    """Forward, eight passes read and write 18 tensors, and one pass 2; all of a step in fp32 is 5 % faster."""
    machine = load_machine("dgx-a100-40gb")
    networks = [build_network("gpt2", batch=8, sequence_length=1024, loss=True, gelu=kind) for kind in get_args(Gelu)]
    eager, fused = (alone_on(machine, network, StepOptions(precision="fp32")).step_time_s for network in networks)
    assert 0.90 * eager < fused < 0.99 * eager


@pytest.mark.parametrize(
    ("function", "kernels"), [("gelu_new", 8), ("gelu_pytorch_tanh", 1), ("gelu", 1), (None, 8), ("gelu_fast", 8)]
)
def test_a_configuration_names_its_function(function: str | None, kernels: int, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    given = {} if function is None else {"activation_function": function}
    path.write_text(json.dumps({"model_type": "gpt2", "n_embd": 64, "n_layer": 1, "n_head": 4, **given}))
    network = find_network(str(path), training=False, sequence_length=64).build(1)
    assert sum(".gelu" in layer.name for layer in network.layers) == kernels


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "shown"),
    [
        ("", "amp-bf16, fused attention, adam"),
        ("--set gelu=fused", "amp-bf16, fused attention, fused GELU, adam"),
        ("--framework megatron", "bf16, fp32 master weights, cuDNN 9 attention, fused GELU, fused adam"),
        (
            "--framework megatron --set gelu=eager",
            "bf16, fp32 master weights, cuDNN 9 attention, eager GELU, fused adam",
        ),
    ],
)
def test_the_first_line_says_which(more: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = "--topology dgx-a100-80gb --device gpu0 --workload gpt2 --batch 1 --seq-len 128 --set layers=1"
    assert run([*words.split(), *more.split()]) == 0
    assert shown in capsys.readouterr().out.partition("\n")[0]


@pytest.mark.parametrize(
    ("cells", "gelu"),
    [
        ({"model": "gpt3-175b", "framework": "nemo-megatron"}, "fused"),
        ({"model": "gpt3", "framework": "mlperf"}, "fused"),
        ({"model": "gpt2", "software": "nanoGPT, PyTorch 2.1"}, "fused"),
        ({"model": "gpt2", "framework": "llm.c", "software": "llm.c"}, "fused"),
        ({"model": "gpt2-large", "framework": "pytorch"}, None),
        ({"model": "gpt", "framework": "megatron-lm"}, None),  # its own, and so not said
    ],
)
def test_tables_that_name_the_software_choose(cells: dict[str, str], gelu: str | None) -> None:
    assert sizes(**cells, seq_len="1024").get("gelu") == gelu
