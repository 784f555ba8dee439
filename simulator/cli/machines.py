"""The machines of ``--topology``, the GPUs of ``--gpus``, the file of ``--calibration`` (docs/decisions/console.md)."""

import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from simulator.api.session import Session
from simulator.cli.options import fields_of, read_all, wants_best
from simulator.cli.output import tell, warn
from simulator.cli.written import CommandOptions
from simulator.console import Progress, Style
from simulator.errors import Fault, InputError, mention, one_line, refused
from simulator.questions.where import Where
from simulator.records import dataclass, replace
from simulator.results import ranges
from simulator.results.comparison import TIE
from simulator.topology.catalogue import part_names
from simulator.topology.load import topology_from_text
from simulator.topology.parts import CpuPart, GpuPart
from simulator.topology.yaml_source import MAX_BYTES
from simulator.units import format_duration, whole_number

if TYPE_CHECKING:
    from simulator.questions.collective import CollectiveQuestion
    from simulator.questions.step import StepQuestion


def find_machines(written: CommandOptions, session: Session) -> list[Where]:
    """Load the machines in *written* (``-``: standard input) into *session*, and return them; raises InputError."""
    if not written.topology:
        example = f"{mention('topology', 'p3.16xlarge.yaml')} (simulate machines)"
        raise InputError(f"{mention('topology')} is needed, for example {example}")
    usual = Where(**fields_of(written, Where))
    names = _names(written.topology)

    def loaded(name: str) -> Where:
        where = replace(usual, topology=name)
        try:
            if name == "-":
                _know_input(session, where)
            warn(written, session.machine(where).notes)
        except InputError as error:
            raise on_machine(error, name) if len(names) > 1 else error from None
        return where

    found = read_all(*(partial(loaded, name) for name in names))
    files = dict[str, str]()  # of what rows and columns call a machine
    for where in found:
        name = session.machine(where).name
        if other := files.get(name):
            both = f"{one_line(other, 1000)} and {one_line(where.topology, 1000)} are both named {one_line(name, 60)}"
            raise refused("topology", f"{both}; answers tell machines apart by name: give one another")
        files[name] = where.topology
    return found


def on_machine(error: InputError, name: str) -> InputError:
    """Return *error* of one of several machines, with the machine's *name* where it says none."""

    def named(fault: Fault) -> Fault:
        known = fault.file or fault.message.startswith(f"{name}:")
        return fault if known else replace(fault, message=f"{name}: {fault.message}")

    return error.changed(named)


def _names(text: str) -> list[str]:
    if "," not in text or os.path.exists(text):
        return [text]
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise refused("topology", "a name is missing; write for example p3.16xlarge,dgx-h100", one_line(text, 60))
    if len(set(names)) < len(names):
        raise refused("topology", "a machine is named twice", one_line(text, 60))
    return names


def _know_input(session: Session, where: Where) -> None:
    """Load standard input, which can be read only once, as the machine of *where*."""
    if sys.stdin is None:
        raise refused("topology", "standard input is closed", "-")
    try:
        topology = topology_from_text(sys.stdin.buffer.read(MAX_BYTES + 1), n_nodes=where.nodes, fabric=where.fabric)
        session.know(where, topology)
    except InputError as error:
        raise error.changed(lambda f: replace(f, file="<stdin>") if f.file == "<text>" else f) from None


def with_calibration(written: CommandOptions, session: Session, places: Sequence[Where]) -> Session:
    """Return *session* with the calibrations of ``--calibration``; raises InputError if none is of a device there."""
    path = written.calibration
    if path is None:
        return session.calibrated({})
    from simulator.devices.calibration_file import read_calibration

    machines = [session.machine(where) for where in places]
    parts = {node.part_name for m in machines for node in m.nodes if isinstance(node.part, GpuPart | CpuPart)}
    found = read_calibration(path, {*parts, *part_names("gpu"), *part_names("cpu")}).devices
    if not parts.intersection(found):
        names = " and ".join(machine.name for machine in machines)
        has = ", ".join(sorted(parts))
        raise InputError(Fault(f"calibrates {', '.join(found)}; {names} has {has}", one_line(path)))
    for name, device in found.items():
        if device.certificate is not None and name in parts:
            tell(written, device.certificate.words(name))
    return session.calibrated({name: device.calibration for name, device in found.items()})


Question = TypeVar("Question", "CollectiveQuestion", "StepQuestion")
_MOST_LOOKED_AT = 16  # GPUs of a machine; beyond it, only best: searches for others


@dataclass(frozen=True, slots=True)
class FasterGpus:
    """Other ``gpus``, as many as asked for, that take ``seconds``."""

    gpus: tuple[int, ...]
    seconds: float

    def document(self, key: str) -> dict[str, Any]:
        """Return them as they stand in ``--json``, with their seconds under *key*."""
        return {"faster_gpus": {"gpus": list(self.gpus), key: self.seconds}}

    def lines(self, taken_s: float, style: Style) -> list[str]:
        """Return the hint at them, given the time *taken_s* of the GPUs asked for."""
        which, count = ranges(self.gpus), len(self.gpus)
        times = f"{format_duration(self.seconds)} in place of {format_duration(taken_s)}"
        said = f"other {count} GPUs are faster: {which} take {times} (--gpus best:{count} finds them)"
        return ["", *style.wrap(said, "bold")]


def on_fastest(written: CommandOptions, session: Session, questions: Sequence[Question]) -> list[Question]:
    """Return *questions*, on the fastest GPUs of each machine if ``--gpus best:`` asks for them; raises InputError.

    Those of one machine share one set: the fastest with NCCL, or else with the first strategy.
    """
    if not wants_best(written.gpus):
        return list(questions)
    from simulator.api.subsets import fastest_gpus

    found: list[Question] = []
    chosen: dict[object, tuple[int, ...]] = {}
    with Progress(0, "choosing GPUs", quiet=written.quiet) as progress:
        for question in questions:
            if question.where not in chosen:
                leads = [other for other in questions if other.where == question.where]
                lead = next((other for other in leads if other.strategy == "nccl"), question)
                choice = fastest_gpus(session, lead, len(question.gpus or (0,)), progress.advance)
                chosen[question.where] = choice.gpus
                machine, all_of = session.machine(question.where), "" if choice.is_whole else ", not all there are"
                gpus = f"{len(choice.gpus)} of {len(machine.gpus)} GPUs of {machine.name}"
                of = f"of {choice.kinds} sets that symmetry tells apart{all_of}"
                tell(written, f"the fastest {gpus} by {lead.strategy}: {ranges(choice.gpus)} ({of})")
            found.append(replace(question, gpus=chosen[question.where]))
    return found


def faster_gpus(written: CommandOptions, session: Session, taken_s: float, asked: Question) -> FasterGpus | None:
    """Return GPUs faster than the first *n*, which take *taken_s*, by more than a tie.

    None if GPUs are chosen otherwise, or if there are too many to search.
    """
    from simulator.api.subsets import fastest_gpus

    machine, count = session.machine(asked.where), len(asked.gpus or ())
    if written.gpus is None or whole_number(written.gpus) is None or not 1 < count < len(machine.gpus):
        return None
    if len(machine.gpus) > _MOST_LOOKED_AT or getattr(asked, "input", None) is not None:
        return None
    with Progress(0, "looking for faster GPUs", quiet=written.quiet) as progress:
        try:
            choice = fastest_gpus(session, asked, count, progress.advance)
        except InputError:
            return None
        if choice.gpus == asked.gpus:
            return None
        seconds = session.time_s(replace(asked, gpus=choice.gpus))
    return FasterGpus(choice.gpus, seconds) if seconds * (1 + TIE) < taken_s else None
