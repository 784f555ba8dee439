"""The machine that ``--topology`` names, from a file, the catalogue or standard input."""

from __future__ import annotations

import sys
from dataclasses import replace

from simulator.api import load_machine
from simulator.errors import InputError
from simulator.network.machine import Machine, compile_machine
from simulator.topology.load import topology_from_text

__all__ = ["machine_of"]


def machine_of(topology: str, n_nodes: int | None = None, fabric: str | None = None) -> Machine:
    """Return the machine called *topology*, ``-`` being standard input.

    Raises
    ------
    InputError
        With every fault of the file.

    """
    if topology != "-":
        return load_machine(topology, n_nodes=n_nodes, fabric=fabric)
    if sys.stdin is None:
        raise InputError("--topology -: standard input is closed")
    try:
        written = sys.stdin.buffer.read().decode("utf-8")
        return compile_machine(topology_from_text(written, n_nodes=n_nodes, fabric=fabric))
    except UnicodeDecodeError as error:
        raise InputError(f"--topology -: standard input is no UTF-8 text at byte {error.start}") from None
    except InputError as error:
        raise InputError([replace(f, file="<stdin>") if f.file == "<text>" else f for f in error.faults]) from None
