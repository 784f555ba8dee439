"""The scorer of each kind of table, made when a table of that kind is met, from the options that are its."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from simulator.devices.calibration import Calibration
from simulator.devices.calibration_file import read_calibration
from simulator.errors import InputError, one_line
from validate.collectives.scorer import COLLECTIVES, CollectiveScorer
from validate.microbench.copies import COPIES, copy_scorer
from validate.microbench.launch import LAUNCH, launch_scorer
from validate.microbench.memory import MEMORY, memory_scorer
from validate.microbench.storage import STORAGE, storage_scorer
from validate.operators.devices import DeviceBook
from validate.operators.scorer import OPERATORS, OperatorScorer
from validate.score.kind import Kind, Scorer
from validate.score.machines import MachineBook
from validate.score.table import Table
from validate.training.kind import TRAINING

__all__ = ["ScorerOptions", "Scorers"]


@dataclass(frozen=True, slots=True)
class ScorerOptions:
    """What the command line says of how to predict; the default is what nobody wrote."""

    topology: str | None = None
    machines: tuple[str, ...] = ()
    strategy: str | None = None
    devices: tuple[str, ...] = ()
    calibrate: int = 0
    calibration: str | None = None
    baselines: str | None = None
    calibrations: Mapping[str, Calibration] = field(default_factory=dict)  # by part, where no file holds them


class Scorers:
    """Scorers by kind of table.

    Raises
    ------
    InputError
        Where what an option names is not known, or an option is given that no table reads.

    """

    kinds: tuple[Kind, ...] = (COLLECTIVES, OPERATORS, TRAINING, COPIES, MEMORY, LAUNCH, STORAGE)

    def __init__(self, options: ScorerOptions) -> None:
        self._options = options
        self._book = MachineBook(options.topology, _named(options.machines))
        self._seen: frozenset[str] = frozenset()
        self._calibrations: dict[str, Calibration] = dict(options.calibrations)
        if options.calibrate and options.calibration:
            raise InputError("--calibrate fits what --calibration reads; one of the two")
        if options.calibration is not None:
            known = DeviceBook(topology=options.topology).names
            read = read_calibration(options.calibration, known).devices
            self._calibrations = {known[name]: device.calibration for name, device in read.items()}
            self._seen = frozenset(key for device in read.values() for key in device.points.asked)
        self._devices = DeviceBook(options.devices, self._calibrations, options.topology)
        self._made: dict[str, Scorer] = {}

    def of(self, kind: Kind) -> Scorer:
        """Return the scorer of tables of *kind*."""
        if kind.name not in self._made:
            self._made[kind.name] = self._make(kind)
        return self._made[kind.name]

    def _make(self, kind: Kind) -> Scorer:
        if kind is OPERATORS:
            return OperatorScorer(self._devices, calibrate=self._options.calibrate, seen=self._seen)
        if kind is TRAINING:
            from validate.training.published import read_published
            from validate.training.scorer import TrainingScorer

            published = read_published(self._options.baselines) if self._options.baselines is not None else {}
            return TrainingScorer(self._book, self._calibrations, published)
        if kind in (COPIES, STORAGE):
            return copy_scorer(self._book, self._calibrations) if kind is COPIES else storage_scorer(self._book)
        if kind in (MEMORY, LAUNCH):
            return memory_scorer(self._devices) if kind is MEMORY else launch_scorer(self._devices)
        return CollectiveScorer(self._book, self._options.strategy or "nccl")

    def check(self, tables: Sequence[tuple[Table, Scorer]]) -> None:
        """Refuse options that none of *tables* reads, and names that no row has."""
        kinds = {scorer.kind.name for _, scorer in tables}
        options = self._options
        for option, value, read in (
            ("--strategy", options.strategy, ("collectives",)),
            ("--topology", options.topology, tuple(kind.name for kind in self.kinds)),
            ("--machine", options.machines, ("collectives", "training", "copies", "storage")),
            ("--device", options.devices, ("operators", "memory", "launch")),
            ("--calibrate", options.calibrate, ("operators",)),
            ("--calibration", options.calibration, ("operators", "training", "copies", "memory", "launch")),
            ("--baselines", options.baselines, ("training",)),
        ):
            if value and not kinds.intersection(read):
                given = " and ".join(sorted(kinds))
                known = " and ".join([*([", ".join(read[:-1])] if read[1:] else []), read[-1]])
                raise InputError(f"{option} is for tables of {known}; these are of {given}")
        # A name that the user explains may be in one of several tables.
        for scorer in self._made.values():
            scorer.check([table for table, _ in tables])


def _named(machines: Sequence[str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for text in machines:
        name, equals, file = (part.strip() for part in text.partition("="))
        if not (name and equals and file):
            raise InputError(f"--machine: NAME=FILE is needed; got '{one_line(text, 60)}'")
        if name in named:
            raise InputError(f"--machine: '{one_line(name, 60)}' is given twice")
        named[name] = file
    return named
