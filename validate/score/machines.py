"""Which topology a table's machine is, and the machine compiled, each once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simulator.api import load_machine
from simulator.errors import InputError, nearest, one_line
from simulator.network.machine import Machine
from simulator.network.routing import Router
from simulator.topology.catalogue import builtin_topologies
from simulator.topology.yaml_source import read_yaml
from validate.score.query import NotScored

__all__ = ["Compiled", "MachineBook"]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A machine with its router, and the topology that it was made of."""

    topology: str
    machine: Machine
    router: Router


class MachineBook:
    """Machines by the names that tables give them.

    Parameters
    ----------
    topology : str, optional
        A path or a built-in name that stands for every machine.
    named : mapping of str to str
        Paths or built-in names by the table's name; taken first.

    Otherwise a built-in topology of that name, or one that lists it among its ``aliases``.

    """

    def __init__(self, topology: str | None = None, named: Mapping[str, str] | None = None) -> None:
        self._topology = topology
        self._named = dict(named or {})
        self._builtin: dict[str, str] | None = None
        self._compiled: dict[tuple[str, int], Compiled | str] = {}
        for file in dict.fromkeys([*([topology] if topology else []), *self._named.values()]):
            load_machine(file)  # a mistake in what the user names is told before any work

    @property
    def needs_names(self) -> bool:
        """Whether rows must name their machine."""
        return self._topology is None

    def topology(self, name: str) -> str | None:
        """Return the topology that the table's machine *name* is, None where there is none."""
        return self._named.get(name) or self._topology or self._builtins().get(name)

    def get(self, name: str, n_nodes: int) -> Compiled:
        """Return *n_nodes* of the table's machine *name*.

        Raises
        ------
        NotScored
            Where it is not known or cannot be composed.

        """
        topology = self.topology(name)
        if topology is None:
            if not name:
                raise NotScored("machine missing")
            close = nearest(name, [*self._named, *self._builtins()])
            hint = close if close.startswith("did") else "--machine NAME=FILE gives one"
            raise NotScored(f"no topology of machine '{one_line(name, 60)}'; {hint}")
        key = (topology, n_nodes)
        found = self._compiled.get(key)
        if found is None:
            try:
                machine = load_machine(topology, n_nodes=n_nodes)
                found = Compiled(topology, machine, Router(machine))
            except InputError as error:
                found = one_line(error)
            self._compiled[key] = found
        if isinstance(found, str):
            raise NotScored(found)
        return found

    def check_used(self, seen: set[str]) -> None:
        """Refuse names given by the user that no row of the tables has.

        Raises
        ------
        InputError
            Names the nearest of *seen*.

        """
        for name in self._named:
            if name not in seen:
                raise InputError(f"--machine: no row is of machine '{one_line(name, 60)}'; {nearest(name, seen)}")

    def _builtins(self) -> dict[str, str]:
        """Return the built-in topologies by name and by alias; a name goes before an alias."""
        if self._builtin is None:
            self._builtin = {name: name for name in builtin_topologies()}
            for name, path in builtin_topologies().items():
                data = read_yaml(path, path.name).data
                aliases = data.get("aliases") if isinstance(data, dict) else None
                for alias in aliases if isinstance(aliases, list) else ():
                    self._builtin.setdefault(str(alias), name)
        return self._builtin
