"""Properties of every network, checked on random networks and random documents."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import InputError
from simulator.workload.backward import backward_steps, one_format, peak_forward_bytes, saved_tensors, training_flop
from simulator.workload.layers_yaml import KINDS, LayerSpec, load_network
from simulator.workload.network import Network
from simulator.workload.zoo.builder import NetworkBuilder, SizeError, Tensor

_STEPS = ("conv", "norm", "relu", "in-place", "gelu", "pool", "avg", "add", "concat", "dropout", "mul")


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Draw an image network of some layers that may read any earlier result."""
    b = NetworkBuilder("random", training=draw(st.booleans()))
    found: list[Tensor] = [b.input(2, 3, 12, 12)]
    for i, step in enumerate(draw(st.lists(st.sampled_from(_STEPS), min_size=1, max_size=12))):
        x, y = draw(st.sampled_from(found)), draw(st.sampled_from(found))
        name = f"{step}{i}"
        try:
            found.append(_step(step, name, x, y, draw(st.integers(1, 8))))
        except SizeError:
            continue
    if draw(st.booleans()):
        found[-1].flatten().linear("fc", 7).cross_entropy()
    return b.build(2)


def _step(step: str, name: str, x: Tensor, y: Tensor, size: int) -> Tensor:
    plain = {"norm": x.batch_norm, "dropout": x.dropout}
    if step == "conv":
        return x.conv(name, size, 3, pad=1, bias=size > 4)
    if step in plain:
        return plain[step](name)
    if step in ("relu", "in-place"):
        return x.relu(name, in_place=step == "in-place")
    if step == "gelu":
        return x.apply(name, "gelu")
    if step in ("pool", "avg"):
        return x.pool(name, 2, kind="max" if step == "pool" else "avg")
    if step == "concat":
        return x.concat(name, y)
    if x.shape != y.shape:
        raise SizeError("sizes differ")
    return x.apply(name, step, y)


@given(networks())
def test_every_parameter_is_ready_once_and_flop_are_bounded(network: Network) -> None:
    ready = [p for step in backward_steps(network) for p in step.ready]
    assert sorted(p.name for p in ready) == sorted(p.name for p in network.parameters)
    assert network.flop <= training_flop(network) <= 3 * network.flop
    order = [step.index for step in backward_steps(network)]
    assert order == sorted(order, reverse=True)


@given(networks())
def test_memory_is_bounded_by_all_tensors_and_grows_with_the_precision(network: Network) -> None:
    whole = 4 * sum(network.elements) + 8 * 2  # labels take 8 bytes
    wide, half = (one_format(network, element_bytes) for element_bytes in (4, 2))
    peak, half_peak = peak_forward_bytes(network, wide), peak_forward_bytes(network, half)
    read = {tensor for layer in network.layers for tensor in layer.inputs}
    assert (4 * network.elements[0] if 0 in read else 0) <= peak <= whole
    assert half_peak <= peak <= 2 * half_peak
    kept = saved_tensors(network, wide)
    assert sum(kept.by_tensor.values()) <= whole
    assert len(kept.by_layer) == len(network.layers)
    assert saved_tensors(network, half).total_bytes <= kept.total_bytes


_VALUES = st.one_of(
    st.integers(-2, 9),
    st.booleans(),
    st.sampled_from(["previous", "input", "a", "b", "eager", "1.5", "[a, b]", "[3, 3]", "[]", "{}", "~", "x y"]),
)
_KEYS = st.sampled_from([key for key in LayerSpec.model_fields if key != "kind"])
_LAYERS = st.builds(
    lambda kind, keys: ", ".join([f"kind: {kind}", *(f"{k}: {str(v).lower()}" for k, v in keys.items())]),
    st.sampled_from([*KINDS, "nothing"]),
    st.dictionaries(_KEYS, _VALUES, max_size=4),
)
_INPUTS = st.sampled_from(["image: [3, 9, 9]", "tokens: 6", "sequence: [6, 8]", "features: 8", "features: 0", ""])


@given(_INPUTS, st.lists(_LAYERS, max_size=6))
def test_a_document_is_a_network_or_its_faults_have_places(fed: str, layers: list[str]) -> None:
    lines = "".join(f"  - {{{layer}}}\n" for layer in layers)
    text = f"schema_version: 1\nname: random\ninput: {{{fed}}}\nlayers:\n{lines}"
    try:
        with TemporaryDirectory() as folder:
            (path := Path(folder, "network.yaml")).write_text(text, encoding="utf-8")
            network = load_network(str(path), batch=2, loss=True)
    except InputError as error:
        for fault in error.faults:
            assert fault.line >= 1
            assert fault.column >= 1
            assert "\n" not in fault.message
    else:
        assert network.flop >= 0
        assert saved_tensors(network, one_format(network, 4)).total_bytes >= 0
