"""A network as plain data, of one batch size: every operator with its sizes, readable without this package.

``validate run`` builds the module that it measures from such a file, on machines that may have only torch.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from simulator.errors import Fault, InputError, mention, nearest, one_line
from simulator.user_files import read_user_file
from simulator.workload.network import Layer, Network, Parameter, Part, Split
from simulator.workload.operators import Exchange, Operator, known_operators

T = TypeVar("T")
_VERSION = 1
_MOST_BYTES = 256 << 20
_MOST = 2**53  # integers up to this are exact in every JSON reader


def network_document(network: Network) -> dict[str, Any]:
    """Return *network* as plain data; raises InputError if it is one rank's part of a divided network."""
    for layer in network.layers:
        if isinstance(layer.operator, Exchange):
            raise InputError(f"{network.name}: {layer.name} exchanges with other devices; a whole network is described")
    return {
        "schema_version": _VERSION,
        "network": network.name,
        "samples": network.samples,
        "sample": network.sample,
        "elements": list(network.elements),
        "layers": [_layer(layer) for layer in network.layers],
    }


def _layer(layer: Layer) -> dict[str, Any]:
    kind = type(layer.operator)
    sizes = ((field, getattr(layer.operator, field.name)) for field in fields(kind))
    found: dict[str, Any] = {
        "name": layer.name,
        "operator": kind.__name__,
        "sizes": {field.name: value for field, value in sizes if value != field.default},
        "inputs": list(layer.inputs),
        "output": layer.output,
    }
    if layer.parameters:
        found["parameters"] = [[p.name, p.elements, p.trained] for p in layer.parameters]
    said = {name: getattr(layer, name) for name in ("in_place", "part", "split")}
    return found | {name: value for name, value in said.items() if value}


def read_described(path: str, *, batch: int, training: bool) -> Network:
    """Return the network in the file *path*.

    Raises InputError if the file cannot be read or holds no network, if it was written for another *batch*, or if
    *training* is asked of a network without trained parameters.
    """

    def fault(message: str) -> InputError:
        return InputError(Fault(message, one_line(path)))

    raw = read_user_file(path, _MOST_BYTES)
    try:
        found = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise fault(f"is not JSON: {one_line(error)}") from None
    try:
        network = network_of(found)
    except ValueError as error:
        raise fault(f"is not a network: {one_line(error)}") from None
    if network.samples != batch:
        raise fault(f"is written out for a batch of {network.samples}, and {batch} are asked for")
    if training and not any(layer.trained for layer in network.layers):
        raise fault(f"trains nothing; {mention('mode', 'inference')} runs it")
    return network


def network_of(found: Any) -> Network:
    """Return the network in *found*, which is as :func:`network_document` returns; raises ValueError."""
    top = _typed(dict, found, "the file")
    if top.get("schema_version") != _VERSION:
        raise ValueError(f"schema_version must be {_VERSION}")
    elements = tuple(_whole(size, "elements", least=1) for size in _typed(list, top.get("elements"), "elements"))
    written: set[int] = set()
    layers = []
    for position, raw in enumerate(_typed(list, top.get("layers"), "layers")):
        what = f"layer {position}"
        layer = _read_layer(_typed(dict, raw, what), what, len(elements))
        if layer.output in written:
            raise ValueError(f"{what}: tensor {layer.output} is written twice")
        written.add(layer.output)
        layers.append(layer)
    if not layers:
        raise ValueError("it has no layer")
    name, samples = _typed(str, top.get("network"), "network"), _whole(top.get("samples"), "samples", least=1)
    return Network(name, tuple(layers), elements, samples, _typed(str, top.get("sample"), "sample"))


def _read_layer(raw: Mapping[str, Any], what: str, tensors: int) -> Layer:
    kind = raw.get("operator")
    known = {name: cls for name, cls in known_operators().items() if cls is not Exchange}
    if not isinstance(kind, str) or kind not in known:
        raise ValueError(f"{what}: no operator '{one_line(kind, 40)}'; {nearest(str(kind), known)}")
    numbers = [_whole(n, f"{what}: inputs") for n in _typed(list, raw.get("inputs"), f"{what}: inputs")]
    output = _whole(raw.get("output"), f"{what}: output")
    needed = known[kind].least_inputs
    if len(numbers) < needed:
        raise ValueError(f"{what}: {kind} needs {needed} input{'s' if needed > 1 else ''}; got {len(numbers)}")
    for number in (*numbers, output):
        if number >= tensors:
            raise ValueError(f"{what}: there is no tensor {number}")
    parameters = []
    for given in _typed(list, raw.get("parameters", []), f"{what}: parameters"):
        parameter = _typed(list, given, f"{what}: a parameter")
        if len(parameter) != 3 or not isinstance(parameter[2], bool):
            raise ValueError(f"{what}: a parameter is [name, elements, trained]")
        count = _whole(parameter[1], f"{what}: parameter", least=1)
        parameters.append(Parameter(_typed(str, parameter[0], what), count, parameter[2]))
    return Layer(
        _typed(str, raw.get("name"), f"{what}: name"),
        _operator(known[kind], _typed(dict, raw.get("sizes", {}), f"{what}: sizes"), what),
        tuple(numbers),
        output,
        tuple(parameters),
        raw.get("in_place") is True,
        _choice(raw.get("part"), get_args(Part), f"{what}: part"),
        _choice(raw.get("split"), get_args(Split), f"{what}: split"),
    )


def _operator(kind: type[Any], sizes: Mapping[str, Any], what: str) -> Operator:
    known, hints = {field.name: field for field in fields(kind)}, get_type_hints(kind)
    for name in sizes:
        if name not in known:
            raise ValueError(f"{what}: {kind.__name__} has no '{one_line(name, 40)}'; {nearest(name, known)}")
    for name, field in known.items():
        if name not in sizes and field.default is MISSING:
            raise ValueError(f"{what}: {kind.__name__} needs '{name}'")
    for name, value in sizes.items():
        wanted = hints[name]
        if wanted is int:
            _whole(value, f"{what}: {name}", least=0 if known[name].default == 0 else 1)
        elif get_origin(wanted) is Literal:
            _choice(value or "", get_args(wanted), f"{what}: {name}")
        elif type(value) is not wanted:
            raise ValueError(f"{what}: {name} '{one_line(value, 40)}' is no {wanted.__name__}")
    operator: Operator = kind(**sizes)
    try:
        operator.check()
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
    return operator


def _typed(kind: type[T], value: Any, what: str) -> T:
    if not isinstance(value, kind):
        raise ValueError(f"{what} must be {'an object' if kind is dict else 'a list' if kind is list else 'a text'}")
    return value


def _whole(value: Any, what: str, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= _MOST:
        raise ValueError(f"{what} must be whole numbers from {least}; got '{one_line(value, 40)}'")
    return value


def _choice(value: Any, allowed: Sequence[Any], what: str) -> Any:
    if value is not None and (not isinstance(value, str) or value not in allowed):
        raise ValueError(f"{what} '{one_line(value, 40)}'; {', '.join(allowed)}")
    return value
