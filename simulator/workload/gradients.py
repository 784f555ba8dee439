"""Gradients of networks by name: how many numbers a data-parallel step exchanges."""

from __future__ import annotations

from simulator.errors import InputError

__all__ = ["FP32_BYTES", "gradient_count", "known_networks"]

FP32_BYTES = 4
# Kept, so that a command that asks for the usual ones need not import the zoo; as it counts them.
_KEPT: dict[str, int] = {
    "alexnet": 61_100_840,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "vgg16": 138_357_544,
}


def gradient_count(name: str) -> int | None:
    """Return the trained numbers of the network called *name*, as it is where no sizes are given; None for no such.

    *name* may be a YAML file of layers; raises InputError for the faults in it.
    """
    if name in _KEPT:
        return _KEPT[name]
    if name.endswith((".yaml", ".yml")):
        from simulator.workload.layers_yaml import load_network

        return load_network(name, batch=1).parameter_count
    from simulator.workload.zoo.registry import build_network, find_entry

    try:
        find_entry(name)
    except InputError:
        return None
    return build_network(name, batch=1).parameter_count


def known_networks() -> list[str]:
    """Return the names of all networks."""
    from simulator.workload.zoo.registry import network_names

    return network_names()
