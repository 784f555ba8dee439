"""Networks as YAML lists of layers: their meaning, compared with zoo networks, and errors for mistakes."""

from __future__ import annotations

import contextlib
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

from simulator.errors import InputError
from simulator.workload.backward import training_flop
from simulator.workload.layers_yaml import KINDS, InputSpec, LayerSpec, NetworkFile, load_network
from simulator.workload.network import Network
from simulator.workload.operators import Attention, Copy, CrossEntropy, Elementwise, Pool
from simulator.workload.parse import parse_workload
from simulator.workload.zoo.registry import build_network

DOCUMENT = Path(__file__).parents[2] / "docs" / "networks.md"
HEAD = "schema_version: 1\nname: test\n"


def written_network(text: str, **options: Any) -> Network:
    """Return the network of a file that holds *text*."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("n.yaml").write_text(text, encoding="utf-8")
        return load_network("n.yaml", **options)


def network(given: str, *layers: str, batch: int = 2) -> Network:
    """Return the network with input *given* and one line per layer."""
    lines = "".join(f"  - {layer}\n" for layer in layers)
    return written_network(f"{HEAD}input: {given}\nlayers:\n{lines}", batch=batch)


def faults(given: str, *layers: str) -> list[str]:
    """Return the faults without the document's name; the first layer is on line 5."""
    with pytest.raises(InputError) as raised:
        network(given, *layers)
    return [str(fault).removeprefix("n.yaml:") for fault in raised.value.faults]


def examples() -> dict[str, str]:
    """Return the files in the document, by name."""
    text = DOCUMENT.read_text(encoding="utf-8")
    return dict(re.findall(r"<!-- file: (\S+) -->\n```yaml\n(.*?)```", text, re.DOTALL))


def test_the_transformer_of_the_document_is_gpt2() -> None:
    written = written_network(examples()["my-gpt.yaml"], batch=4, loss=True)
    zoo = build_network("gpt2", batch=4, attention="fused", loss=True)
    assert (written.parameter_count, written.flop) == (zoo.parameter_count, zoo.flop)
    assert training_flop(written) == training_flop(zoo)
    assert written.name == "my-gpt"
    assert written.sample == "sequences"
    assert isinstance(written.layers[-1].operator, CrossEntropy)


def test_the_residual_network_of_the_document() -> None:
    written = written_network(examples()["my-resnet.yaml"], batch=4)
    assert written.sample == "images"
    assert written.parameter_count == build_network("resnet20", batch=4).parameter_count
    assert written.flop == build_network("resnet20", batch=4).flop


@pytest.mark.parametrize("name", ["my-gpt.yaml", "my-resnet.yaml"])
def test_files_of_the_document_can_be_named_as_workloads(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(examples()[name], encoding="utf-8")
    loaded = load_network(str(tmp_path / name), batch=2)
    assert vars(loaded) == vars(written_network(examples()[name], batch=2))
    assert parse_workload(str(tmp_path / name)).gradients == loaded.parameter_count


def test_every_key_and_kind_is_explained() -> None:
    explained = set(re.findall(r"`([\w-]+)`", DOCUMENT.read_text(encoding="utf-8")))
    keys = {key for model in (NetworkFile, InputSpec, LayerSpec) for key in model.model_fields}
    assert (keys | set(KINDS)) - explained == set()


def test_every_kind_takes_keys_that_there_are() -> None:
    for required, optional in KINDS.values():
        assert {*required, *optional} <= set(LayerSpec.model_fields)


def test_blocks_repeat_and_chain() -> None:
    found = network("{features: 8}", "{name: b, repeat: 3, layers: [{kind: linear, outputs: 8}, {kind: relu}]}")
    assert [layer.name for layer in found.layers] == [f"b.{i}.{n}" for i in range(3) for n in ("linear0", "relu1")]
    assert found.parameter_count == 3 * (64 + 8)
    assert [layer.inputs for layer in found.layers] == [(i,) for i in range(6)]


def test_names_reach_out_of_a_block_and_input_is_what_enters_it() -> None:
    found = network(
        "{features: 8}",
        "{kind: linear, outputs: 8, name: first}",
        "{repeat: 2, layers: [{kind: gelu}, {kind: add, inputs: [previous, input, first]}]}",
    )
    first = found.layers[0].output
    sums = [layer for layer in found.layers if isinstance(layer.operator, Elementwise) and layer.operator.inputs == 2]
    assert [s.name for s in sums] == ["block1.0.add1.0", "block1.0.add1", "block1.1.add1.0", "block1.1.add1"]
    assert sums[1].inputs[1] == sums[3].inputs[1] == first
    assert sums[0].inputs[1] == first  # the input of the first repetition
    assert sums[2].inputs[1] == sums[1].output


def test_branches_join() -> None:
    found = network(
        "{image: [3, 8, 8]}",
        "{kind: conv, channels: 4, kernel: 3, pad: 1, name: a}",
        "{kind: max-pool, kernel: 3, stride: 1, pad: 1, inputs: input, name: b}",
        "{kind: concat, inputs: [a, b]}",
        "{kind: global-avg-pool}",
    )
    assert found.layers[2].operator == Copy(2 * 7 * 64)
    assert found.layers[3].operator == Pool("avg", 2, 7, 8, 8, 1, 1, 8, 8)


def test_attention_runs_fused_unless_asked() -> None:
    layers = ["{kind: embedding, vocabulary: 10, size: 16}", "{kind: self-attention, heads: 4, kv_heads: 2}"]
    found = network("{tokens: 5}", *layers)
    assert any(layer.operator == Attention(2, 4, 5, 5, 4, 2) for layer in found.layers)
    assert found.parameter_count == 160 + 2 * (16 * 16 + 16) + 2 * (16 * 8 + 8)
    eager = network("{tokens: 5}", layers[0], "{kind: self-attention, heads: 4, kv_heads: 2, attention: eager}")
    assert eager.flop == found.flop
    assert len(eager.layers) > len(found.layers)


def test_a_tied_layer_adds_no_weight() -> None:
    found = network("{tokens: 5}", "{kind: embedding, vocabulary: 10, size: 16, name: e}", "{kind: linear, tied: e}")
    assert found.parameter_count == 160
    assert found.elements[found.layers[-1].output] == 2 * 5 * 10


def test_every_fault_of_a_file_is_told_at_once() -> None:
    assert faults(
        "{image: [3, 32, 32]}",
        "{kind: cov, channels: 64, kernel: 3}",
        "{kind: conv, chanels: 64, kernel: 3, name: a}",
        "{kind: conv, channels: 64, kernel: 3, pad: -1}",
        "{kind: linear, outputs: 10, kernel: 3}",
        "{repeat: 3, layers: [{kind: relu, inputs: b}, {kind: add, inputs: [previous, aa]}]}",
        "{kind: add}",
        "{name: a, kind: relu}",
        "5",
    ) == [
        "5:12: kind: got 'cov'; did you mean 'conv'?",
        "6:18: unknown key 'chanels'; did you mean 'channels'?",
        "7:48: pad: must be a whole number from 0 on, or height and width as [3, 5]; got -1",
        "8:33: kernel does not apply to linear, which takes bias, outputs, tied",
        "9:47: no layer before this one is called 'b'; allowed: a, input, previous",
        "9:82: no layer before this one is called 'aa'; did you mean 'a'?",
        "10:5: add needs the key 'inputs'",
        "11:12: the layer 'a' is there twice; first in line 6",
        "12:5: layers.7: must be a mapping of keys to values; got 5",
    ]


ATTENTION = "{kind: embedding, vocabulary: 10, size: 16, name: e}"


@pytest.mark.parametrize(
    ("given", "layers", "told"),
    [
        ("{image: [3, 8, 8]}", ["{kind: conv, channels: 4, kernel: 9}"], "5:5: conv0: a kernel of 9x9 is larger than"),
        ("{image: [3, 8, 8]}", ["{kind: linear, outputs: 3}"], "5:5: linear0: linear works on features; put flatten"),
        ("{image: [3, 8, 8]}", ["{kind: lstm, hidden: 3}"], "5:5: lstm0: lstm works on sequences; it gets 3 x 8 x 8"),
        ("{image: [3, 8, 8], tokens: 3}", ["{kind: relu}"], "3:8: input: needs one of image, tokens, sequence, featur"),
        ("{}", ["{kind: relu}"], "3:8: input: needs one of image, tokens, sequence, features; got none"),
        ("{tokens: 8}", ["{kind: linear, outputs: 3}"], "5:5: linear0: tokens go into an embedding"),
        ("{features: 8}", [ATTENTION], "5:5: e: tokens go into an embedding"),
        ("{tokens: 8}", [ATTENTION, "{kind: self-attention, heads: 3}"], "6:5: self-attention1: 3 heads and 3 of keys"),
        ("{tokens: 8}", [ATTENTION, "{kind: positions, positions: 7}"], "6:5: positions1: a table of 7 positions is"),
        (
            "{tokens: 8}",
            [ATTENTION, "{kind: linear, outputs: 8}", "{kind: linear, tied: e}"],
            "7:5: linear2: the tied embedding has rows of 16, and what comes in 8",
        ),
        (
            "{tokens: 8}",
            [ATTENTION, "{kind: gelu, name: g}", "{kind: linear, tied: g}"],
            "7:5: linear2: tied must name",
        ),
        ("{features: 8}", ["{kind: linear, outputs: 3, tied: input}"], "5:5: linear needs either outputs or tied"),
        ("{features: 8}", ["{kind: relu, inputs: [input, previous]}"], "5:5: relu0: relu has one input; got 2"),
        ("{features: 8}", ["{kind: add, inputs: [input]}"], "5:5: add0: add needs two inputs"),
        (
            "{features: 8}",
            ["{kind: linear, outputs: 3}", "{kind: add, inputs: [previous, input]}"],
            "6:5: add1: add needs inputs of one size; got 3 and 8 a sample",
        ),
        ("{features: 8}", ["{repeat: 2, layers: []}"], "5:25: layers: must have 1 or more entries; got []"),
        (
            "{features: 8}",
            ["{repeat: 2, inputs: [input, previous], layers: [{kind: relu}]}"],
            "5:25: a block has one input; got 2",
        ),
        (
            "{features: 8}",
            ["{name: x}"],
            "5:5: a layer needs a kind (conv, linear, ...), or layers where it is a block",
        ),
        ("{features: 8}", ["{kind: relu, name: input}"], "5:24: 'input' is a word of its own; take another name"),
        ("{features: 8}", ["{kind: relu, name: a.b}"], "5:24: name: must be letters, digits, _ and -; got 'a.b'"),
        ("{features: 8}", ["{kind: linear, outputs: yes}"], "5:29: outputs: must be a whole number; got True"),
        ("{features: 8}", ["{kind: linear, outputs: 1.5}"], "5:29: outputs: must be a whole number; got 1.5"),
        ("{features: 8}", ["{kind: relu, inputs: 5}"], "5:26: inputs: must be the name of a layer, or a list of names"),
        (
            "{features: 8}",
            ["{repeat: 4096, layers: [{repeat: 4096, layers: [{kind: relu}]}]}"],
            "5:53: a network has at most 100000 layers",
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(given: str, layers: list[str], told: str) -> None:
    found = faults(given, *layers)
    assert len(found) == 1, found
    assert found[0].startswith(told)


def test_a_layer_without_a_kind_is_told_beside_its_unknown_keys() -> None:
    missing, unknown = faults("{features: 8}", "{op: relu}")
    assert "5:5: a layer needs a kind (conv, linear, ...), or layers where it is a block" in missing
    assert "5:6: unknown key 'op'; allowed: kind, attention, bias" in unknown


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "n.yaml:1:1: is empty; a network needs schema_version, name, input and layers"),
        ("[]", "n.yaml:1:1: must be a mapping of keys to values; got a list"),
        (HEAD, "n.yaml:1:1: the key 'input' is missing\nn.yaml:1:1: the key 'layers' is missing"),
        (
            f"{HEAD}input: 5\nlayers: 5\n",
            "n.yaml:3:8: input: must be a mapping of keys to values; got 5\nn.yaml:4:9",
        ),
        (
            f"{HEAD}input: {{features: 8}}\nlayers:\n  - &one {{kind: relu}}\n  - *one\n",
            "n.yaml:5:5: anchors that repeat a mapping or a list are not supported; write the layers again, or a block",
        ),
        (f"{HEAD}input: {{features: 8}}\nlayers: []\n", "n.yaml:4:9: layers: must have 1 or more entries; got []"),
    ],
)
def test_a_document_that_is_no_network(text: str, told: str) -> None:
    with pytest.raises(InputError) as raised:
        written_network(text, batch=1)
    assert str(raised.value).startswith(told)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"none\.yaml: cannot be read: No such file or directory"):
        load_network("none.yaml", batch=1)


def test_a_batch_is_positive() -> None:
    with pytest.raises(InputError, match="batch must be 1 or more; got 0"):
        network("{features: 8}", "{kind: relu}", batch=0)


def test_a_missing_key_hides_no_fault_of_the_input(tmp_path) -> None:
    file = tmp_path / "net.yaml"
    file.write_text("name: x\ninput: {}\nlayers: [{kind: relu}]\n")
    with pytest.raises(InputError) as caught:
        load_network(str(file), batch=1)
    assert [fault.message[:40] for fault in caught.value.faults] == [
        "the key 'schema_version' is missing",
        "input: needs one of image, tokens, seque",
    ]
