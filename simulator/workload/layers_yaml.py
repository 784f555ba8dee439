"""Read a network from a YAML file of layers: ``load_network``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simulator.errors import Fault, InputError, nearest, one_line
from simulator.records import dataclass
from simulator.topology.catalogue import validate
from simulator.topology.yaml_source import YamlSource, read_yaml
from simulator.workload.layers_build import KINDS, LayerSpec, NetworkFile, add_input, add_layer
from simulator.workload.network import Network
from simulator.workload.zoo.builder import NetworkBuilder, SizeError, Tensor

Path_ = tuple[str | int, ...]
_NEEDS = "a network needs schema_version, name, input and layers"
_INSTEAD = "write the layers again, or a block of them with repeat: 12"
_MAX_LAYERS = 100_000
_RESERVED = ("previous", "input")


@dataclass(frozen=True, slots=True)
class _Read:
    """A layer with its position in the file; for a block, with its inner layers."""

    path: Path_
    spec: LayerSpec
    layers: tuple[_Read, ...] = ()


def load_network(path: str, *, batch: int, training: bool = True, loss: bool = False) -> Network:
    """Return the network that the file at *path* describes, for a batch of *batch* samples.

    ``training`` and ``loss`` are as in :func:`simulator.workload.zoo.registry.build_network`.  Raises InputError with
    every fault of the file and its position; for sizes that do not fit together, only the first.
    """
    source = read_yaml(Path(path), path, needs=_NEEDS, instead=_INSTEAD)
    reader = _Reader(source)
    spec: NetworkFile | None = None
    try:
        spec = validate(source, NetworkFile)
    except InputError as error:
        reader.faults += error.faults
    found = source.data.get("layers") if isinstance(source.data, dict) else None
    layers = reader.layers(found, ("layers",)) if isinstance(found, list) else ()
    reader.names(found, ("layers",), [])
    if spec is not None:
        given = [key for key, value in spec.input if value is not None]
        if len(given) != 1:
            one_of = ", ".join(type(spec.input).model_fields)
            reader.fault(("input",), f"input: needs one of {one_of}; got {' and '.join(given) or 'none'}")
    if reader.faults or spec is None:
        unique = {(f.line, f.column, f.message): f for f in reader.faults}
        raise InputError([unique[place] for place in sorted(unique)])
    if batch < 1:
        raise InputError(f"batch must be 1 or more; got {batch}")
    builder = NetworkBuilder(spec.name, training=training)
    x, sample = add_input(builder, spec.input, batch)
    x = _Writer(source, x.number if spec.input.tokens is not None else -1).block(layers, x, "", {})
    if loss:
        x.cross_entropy()
    return builder.build(batch, sample)


class _Reader:
    """Validates each layer separately and collects the faults."""

    def __init__(self, source: YamlSource) -> None:
        self.source = source
        self.faults: list[Fault] = []

    def fault(self, path: Path_, message: str, *, key: bool = False) -> None:
        self.faults.append(self.source.fault(path, message, key=key))

    def layers(self, found: Sequence[Any], path: Path_) -> tuple[_Read, ...]:
        """Return the valid layers of the list *found*."""
        read: list[_Read] = []
        for i, raw in enumerate(found):
            here = (*path, i)
            if not isinstance(raw, dict):
                continue  # already reported with the list
            inner: tuple[_Read, ...] = ()
            if isinstance(raw.get("layers"), list):
                inner = self.layers(raw["layers"], (*here, "layers"))
            is_one = (raw.get("kind") is None) != (raw.get("layers") is None)
            if not is_one:
                self.fault(here, "a layer needs a kind (conv, linear, ...), or layers where it is a block of them")
            try:
                spec = validate(self.source.part(here, raw), LayerSpec)
            except InputError as error:
                self.faults += error.faults
                continue
            if is_one and self._fits(here, spec):
                read.append(_Read(here, spec, inner))
        return tuple(read)

    def _fits(self, path: Path_, spec: LayerSpec) -> bool:
        """Return whether *spec* has exactly the keys that its kind allows and needs; records faults."""
        before = len(self.faults)
        present = {key for key, value in spec if value is not None}
        required, optional = KINDS[spec.kind] if spec.kind is not None else ((), ("repeat", "layers"))
        allowed, what = {"name", "inputs", *required, *optional}, spec.kind or "a block"
        if spec.kind == "linear" and (spec.outputs is None) == (spec.tied is None):
            self.fault(path, "linear needs either outputs or tied (the name of an embedding)")
        for key in sorted(present - allowed - {"kind"}):
            takes = ", ".join(sorted(allowed - {"name", "inputs"})) or "no sizes"
            self.fault((*path, key), f"{key} does not apply to {what}, which takes {takes}", key=True)
        for key in required:
            if key not in present:
                self.fault(path, f"{what} needs the key '{key}'")
        return len(self.faults) == before

    def names(self, found: Any, path: Path_, outer: list[str]) -> None:
        """Check names and references to them, even in layers with other faults."""
        own: dict[str, int] = {}
        for i, raw in enumerate(found if isinstance(found, list) else ()):
            if not isinstance(raw, dict):
                continue
            here = (*path, i)
            known = [*_RESERVED, *outer, *own]
            for key in ("inputs", "tied"):
                value = raw.get(key)
                listed = value if isinstance(value, list) else [value]
                for j, name in enumerate(listed):
                    if isinstance(name, str) and name.strip() not in known:
                        place = (*here, key, j) if isinstance(value, list) else (*here, key)
                        hint = nearest(name, known, listed=8)
                        self.fault(place, f"no layer before this one is called '{one_line(name, 60)}'; {hint}")
            self.names(raw.get("layers"), (*here, "layers"), [*outer, *own])
            name = raw.get("name")
            if not isinstance(name, str):
                continue
            name = name.strip()
            if name in _RESERVED:
                self.fault((*here, "name"), f"'{name}' is a word of its own; take another name")
            elif name in own:
                line = self.source.place((*path, own[name], "name"))[0]
                self.fault((*here, "name"), f"the layer '{one_line(name, 60)}' is there twice; first in line {line}")
            own.setdefault(name, i)


class _Writer:
    """Appends the layers to a builder, in order; ``tokens`` is the number of the tensor that only embeddings read."""

    def __init__(self, source: YamlSource, tokens: int) -> None:
        self.source, self.tokens = source, tokens
        self.n_layers = 0

    def block(self, layers: tuple[_Read, ...], entered: Tensor, prefix: str, outer: dict[str, Tensor]) -> Tensor:
        """Append *layers* once and return the last result.  Unnamed layers are named by kind and position."""
        known = {**outer, "input": entered}
        x = entered
        for i, read in enumerate(layers):
            spec = read.spec
            name = prefix + (spec.name or f"{spec.kind or 'block'}{i}")
            known["previous"] = x
            inputs = [known[key] for key in spec.inputs or ("previous",)]
            if spec.layers is None:
                x = self._layer(read, name, inputs, known[spec.tied] if spec.tied is not None else None)
            elif len(inputs) != 1:
                raise InputError(self.source.fault((*read.path, "inputs"), f"a block has one input; got {len(inputs)}"))
            else:
                x, inside = inputs[0], {key: value for key, value in known.items() if key not in _RESERVED}
                for number in range(spec.repeat or 1):
                    x = self.block(read.layers, x, f"{name}.{number}." if spec.repeat else f"{name}.", inside)
            if spec.name is not None:
                known[spec.name] = x
        return x

    def _layer(self, read: _Read, name: str, inputs: list[Tensor], tied: Tensor | None) -> Tensor:
        self.n_layers += 1
        if self.n_layers > _MAX_LAYERS:
            raise InputError(self.source.fault(read.path, f"a network has at most {_MAX_LAYERS} layers"))
        try:
            if (read.spec.kind == "embedding") != any(x.number == self.tokens for x in inputs):
                raise SizeError("tokens go into an embedding, and nothing else does (input: {tokens: 128})")
            return add_layer(read.spec, name, inputs, tied)
        except SizeError as error:
            message = str(error).removeprefix(f"{name}: ")
            raise InputError(self.source.fault(read.path, f"{name}: {message}")) from None
