"""Networks by what the command line writes: a name of the zoo, a YAML file of layers, a torch module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial

from simulator.errors import InputError
from simulator.workload.network import Network

__all__ = ["NetworkSource", "find_network"]


@dataclass(frozen=True, slots=True)
class NetworkSource:
    """What ``--workload`` named: ``build`` returns the network for a batch size, the same one each time.

    ``variants`` are other ways to compute the same: the words that ask for each, and the size that it sets.
    """

    text: str
    build: Callable[[int], Network]
    variants: tuple[tuple[str, tuple[str, str]], ...] = ()


def find_network(
    text: str,
    *,
    training: bool = True,
    sequence_length: int | None = None,
    image: int | None = None,
    settings: Mapping[str, int | str] | None = None,
) -> NetworkSource:
    """Return the network that *text* names.

    *training*: with the loss, and with layers that are there in training alone (dropout).
    *settings*: sizes of a network of the zoo other than its own: ``layers``, ``attention``, ...; and ``loss``, 0 where
        no cross-entropy comes last.

    Raises InputError where there is none, or the sizes do not suit it; names the nearest.
    """
    scheme, colon, _ = text.partition(":")
    if colon and scheme in ("bytes", "sweep"):
        raise InputError(f"--workload {text}: a size is exchanged, not computed; --batch needs a network")
    is_file = text.endswith((".yaml", ".yml"))
    if settings and (colon or is_file):
        raise InputError(f"--set {next(iter(settings))}=...: is for networks of the zoo; {text} says its own sizes")
    if is_file and (sequence_length or image):
        option = "--seq-len" if sequence_length else "--image"
        raise InputError(f"{option}: is for networks of the zoo and torch modules; {text} says its own sizes")
    if colon and scheme == "torch":
        from simulator.workload.torch_import import load_torch_workload

        def traced(batch: int) -> Network:
            return load_torch_workload(
                text, batch=batch, training=training, sequence_length=sequence_length, image=image
            ).network

        return NetworkSource(text, cache(traced))
    if is_file:
        from simulator.workload.layers_yaml import load_network

        def read(batch: int) -> Network:
            return load_network(text, batch=batch, training=training, loss=training)

        return NetworkSource(text, cache(read))
    from simulator.workload.zoo.registry import find_entry

    sizes = {"sequence_length": sequence_length, "image": image, **(settings or {})}
    built = partial(_from_zoo, text, training, sizes)
    variants = []
    with suppress(InputError):
        own = find_entry(text).defaults.get("attention", "fused")
        if (settings or {}).get("attention", own) not in ("fused", "fused-first", "fused-native"):
            variants.append(("--set attention=fused", ("attention", "fused")))
    return NetworkSource(text, cache(built), tuple(variants))


def _from_zoo(text: str, training: bool, sizes: Mapping[str, int | str | None], batch: int) -> Network:
    from simulator.workload.zoo.registry import build_network, find_entry

    try:
        find_entry(text)
    except InputError as error:
        raise InputError(f"--workload: {error} (--list-networks)") from None
    sizes = dict(sizes)
    loss = bool(sizes.pop("loss", training))
    try:
        return build_network(text, batch=batch, training=training, loss=loss, **sizes)
    except InputError as error:
        raise InputError([replace(fault, message=f"--workload: {fault.message}") for fault in error.faults]) from None
