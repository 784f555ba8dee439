"""Strategies by name: built-in ones, and those of packages' entry points ``topocast.strategies``."""

import pkgutil
import re
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from simulator.collectives.communicator import Planned, Strategy
from simulator.constants import DEFAULT, Constants
from simulator.effects import effect, has_effects
from simulator.errors import mention, nearest, one_line, refused
from simulator.questions.where import Software
from simulator.records import own_data, replace

if TYPE_CHECKING:
    from importlib import metadata

ENTRY_POINT_GROUP = "topocast.strategies"
# Strategies, in the order of output, those not compared, and what makes one of a pattern; a text is an entry point.
_BUILT_IN, _NAMED_ONLY, _NUMBERED = own_data("simulator.collectives", "strategies.json").values()


def strategy_names(*, named_only: bool = False) -> list[str]:
    """Return the names of strategies to compare, *named_only* ones too; no code where a data file asks."""
    return [*_BUILT_IN, *(_NAMED_ONLY if named_only else {}), *(_registered() if has_effects() else ())]


def unlisted_strategies() -> list[str]:
    """Return the names of registered strategies that :func:`strategy_names` leaves out here."""
    return [] if has_effects() else _registered()


def find_strategy(name: str) -> Strategy:
    """Return the strategy *name*, of GPU N, N servers, or ``-sharded`` or ``-colocated`` ones; or raise InputError."""
    if (own := _BUILT_IN.get(name) or _NAMED_ONLY.get(name)) is not None:
        return _made(name, own)  # type: ignore[no-any-return]
    for pattern, maker in _NUMBERED.items():
        if (found := re.fullmatch(pattern, name, re.ASCII)) is None:
            continue
        if (like := _BUILT_IN.get(maker)) is not None:
            return _made(name, like | {"options": {"number": int(found[1])}})  # type: ignore[no-any-return]
        return pkgutil.resolve_name(maker)(name)  # type: ignore[no-any-return]
    plugins = _plugins()
    if name in plugins:
        effect("runs code", mention("strategy", one_line(name, 60)))
        loaded = plugins[name].load()
        return loaded() if isinstance(loaded, type) or not hasattr(loaded, "plan") else loaded  # type: ignore[no-any-return]
    hint = nearest(name, strategy_names(named_only=True))
    raise refused("strategy", f"no strategy is called '{one_line(name, 60)}'; {hint} (simulate strategies)")


def _made(name: str, said: Any) -> Any:
    if isinstance(said, str):
        return pkgutil.resolve_name(said)
    fields = dict(said)
    write = partial(pkgutil.resolve_name(fields.pop("write")), **fields.pop("options", {}))
    return Planned(name, write=write, **fields)


@lru_cache(maxsize=64)
def strategy_of(
    name: str,
    software: Software,
    *,
    algorithm: str | None = None,
    protocol: str | None = None,
    in_switch: bool = True,
    nvls: bool = True,
    servers: tuple[str, ...] = (),
    constants: Constants = DEFAULT,
) -> Strategy:
    """Return the strategy *name* as *software* runs it, the same each time, as forced and costed; or InputError."""
    if servers and name.startswith("parameter-server"):
        found: Any = find_strategy(name)  # colocated servers stay on the workers
        return found if getattr(found, "places", servers) else replace(found, places=servers)  # type: ignore[no-any-return]
    if name != "nccl":
        return find_strategy(name)
    from simulator.collectives.nccl.cost import costs_of
    from simulator.collectives.nccl.strategy import Nccl

    costs = costs_of(software.nccl, constants)
    return Nccl(algorithm, costs, in_switch=in_switch, nvls=nvls, protocol=protocol, version=software.nccl)


def _registered() -> list[str]:
    return sorted(set(_plugins()) - set(_BUILT_IN) - set(_NAMED_ONLY))


def _plugins() -> "dict[str, metadata.EntryPoint]":
    from importlib import metadata  # built-in strategies need no packages

    return {point.name: point for point in metadata.entry_points(group=ENTRY_POINT_GROUP)}
