"""Rows of copies that overlap computation, as questions about programs."""

from __future__ import annotations

from simulator.errors import one_line
from simulator.questions.program import ProgramQuestion
from simulator.questions.single import CopyQuestion
from validate.kinds.kind import Cell
from validate.tables.cells import NotScored, whole
from validate.tables.names import Names

_ALONE, _BESIDE = " alone", "copy and "
_MOST = 1e6


def beside_work(cell: Cell, names: Names, copy: CopyQuestion) -> ProgramQuestion:
    """Return the program that a row timed: ``work`` run ``repeats`` times, with *copy* beside it or alone.

    Raises NotScored if the row does not give the work and its repeats, or if the machine lacks the GPU.
    """
    note, work = cell("note"), cell("work")
    if not work or not cell("repeats"):
        raise NotScored("work beside a copy, and how much of it is not said (work, repeats)")
    if not (note.startswith(_BESIDE) or note.endswith(_ALONE)):
        raise NotScored(f"'{one_line(note, 40)}' says neither what runs alone nor what beside a copy")
    machine = names.machine(copy.where)
    if copy.src >= len(machine.gpus):
        raise NotScored(f"{machine.name} has no GPU {copy.src}")
    gpu = machine.nodes[machine.gpus[copy.src]].name
    first, last = ("cpu", gpu) if copy.kind == "h2d" else (gpu, "cpu")
    lines = ["schema_version: 1", "name: work and a copy", "program:"]
    if note.startswith(_BESIDE):
        lines += [
            f"- {{tensor: copied, size: {copy.size_bytes:.0f} B, device: {first}}}",
            f"- {{copy: copied, to: {last}, pinned: {str(copy.pinned).lower()}, blocking: false}}",
        ]
    run = f'{{run: "{work}", device: {gpu}}}'
    lines += [f"- {{repeat: {whole('repeats', cell('repeats'), _MOST)}, do: [{run}]}}", "- wait: all"]
    return ProgramQuestion(where=copy.where, workload="", text="\n".join(lines) + "\n", device=gpu)
