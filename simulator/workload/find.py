"""Networks by what the command line writes: a name of the zoo, a YAML file of layers, a torch module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from simulator.errors import InputError
from simulator.workload.network import Network

__all__ = ["NetworkSource", "find_network"]


@dataclass(frozen=True, slots=True)
class NetworkSource:
    """What ``--workload`` named: ``build`` returns the network for a batch size."""

    text: str
    build: Callable[[int], Network]


def find_network(text: str, *, sequence_length: int | None = None, image: int | None = None) -> NetworkSource:
    """Return the network that *text* names.

    Raises
    ------
    InputError
        Where there is none, or the sizes do not suit it; names the nearest.

    """
    scheme, colon, _ = text.partition(":")
    if colon and scheme == "torch":
        from simulator.workload.torch_import import load_torch_workload

        def traced(batch: int) -> Network:
            return load_torch_workload(text, batch=batch, sequence_length=sequence_length).network

        return NetworkSource(text, traced)
    if colon and scheme in ("bytes", "sweep"):
        raise InputError(f"--workload {text}: a size is exchanged, not computed; --batch needs a network")
    if text.endswith((".yaml", ".yml")):
        from simulator.workload.layers_yaml import load_network

        return NetworkSource(text, lambda batch: load_network(text, batch=batch))
    from simulator.workload.zoo.registry import build_network

    def built(batch: int) -> Network:
        try:
            return build_network(text, batch=batch, sequence_length=sequence_length, image=image)
        except InputError as error:
            raise InputError(
                [replace(fault, message=f"--workload: {fault.message}") for fault in error.faults]
            ) from None

    return NetworkSource(text, built)
