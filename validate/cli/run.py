"""The command ``validate run``."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from simulator.api import load_machine
from simulator.cli.written import DEFAULTS, CommandOptions, option_spelt
from simulator.console.files import write_output
from simulator.errors import InputError, MissingDependency, TopocastError, nearest, one_line
from simulator.topology.catalogue import find_topology
from simulator.topology.load import load_topology
from simulator.user_files import open_user_file, read_user_file
from validate.cli import asking
from validate.cli.command import Given
from validate.compare.folder import RECORD, TOPOLOGY, busy
from validate.machine.measure.duration import duration_s, fraction
from validate.machine.measure.host import cpu_facts
from validate.machine.measure.table import COLUMNS

_MOST_BYTES = 64_000_000  # of a record


def run_command(given: Given) -> int:
    """Measure this machine: operators, steps, copies, collectives."""
    out, topology, device, parts, prepare = given.out, given.topology, given.device or "", given.parts, given.prepare
    if not out:
        raise InputError("--out needs the name of a folder")
    written = _written(vars(given))
    budget_s = None if given.budget is None else _parsed("--budget", duration_s, given.budget)
    interval = 0.01 if given.within is None else _parsed("--within", fraction, given.within)
    source = None
    if topology is not None:
        source = load_topology(topology).name, find_topology(topology)[0].read_text(encoding="utf-8")
    if written is not None:
        asking.check_twin(written)
    groups = _groups(written, given.only or "", parts=parts)
    folder = Path(out)
    kept = folder / TOPOLOGY
    if source is not None and topology is not None and not prepare:
        from validate.compare.comparison import check_contradiction

        check_contradiction("--topology", topology, _reported(device))
    asked: list[asking.StepToMeasure] = []
    exchanges: list[dict[str, Any]] = []
    if written is not None and asking.is_exchange(written):
        exchanges = _exchanges(written, device, given)
    elif written is not None:
        asked = _ask(written, device, prepare=prepare)
    name = _rows_machine_name(folder, given.machine or "", source[0] if source else "", _name_in(kept))
    given.remark(filter(None, [] if prepare else [_load_warning()]))
    status = 0
    with _refused(out), _kept(kept, source[1] if source else None):
        for each in asked:
            asking.keep(each, folder, parts=parts)
        if exchanges:
            folder.mkdir(parents=True, exist_ok=True)
            asking.write_exchanges(folder, exchanges)
        if not prepare:
            from validate.machine.measure.run import Settings, measure
            from validate.machine.measure.timing import Effort

            settings = Settings(folder, groups, device, budget_s, name, Effort(interval=interval))
            status = measure(settings, (lambda _: None) if given.quiet else None)
    if prepare:
        given.remark([_prepared(out, name, groups[0], asked, exchanges)])
        return status
    if written is not None and not parts:
        _check_measured(folder, status, groups[0])
    following = f"; next: validate compare {one_line(out)}" if _has_rows(folder) else ", which holds no row"
    given.remark([f"wrote {one_line(out)}{following}"])
    return status


def _written(given: Mapping[str, Any]) -> CommandOptions | None:
    """Return the step or exchange asked, None without ``--workload``; raises InputError for options of it alone."""
    own = {name: given[name] for name in DEFAULTS if name in given and name != "device"}  # here the measured one
    own |= {name: tuple(own[name] or ()) for name in ("sizes", "parallel")}
    if given["workload"] is not None:
        return CommandOptions(**own)
    for name, usual in DEFAULTS.items():
        if name not in ("topology", "quiet") and own.get(name) not in (None, usual):
            raise InputError(f"{option_spelt(name)}: applies to your own step; name its network with --workload")
    return None


def _parsed(option: str, parse: Callable[[str], float], text: str) -> float:
    try:
        return parse(text)
    except ValueError as error:
        raise InputError(f"{option}: {one_line(error)}") from None


def _groups(written: CommandOptions | None, only: str, *, parts: bool) -> tuple[str, ...]:
    try:
        from validate.machine.measure.case import GROUPS
    except ImportError as error:
        told = f"torch is needed to measure ({one_line(error)}); pip install 'topocast[torch]'"
        raise MissingDependency(told) from None
    if written is not None:
        if parts and asking.is_exchange(written):
            raise InputError("--parts: applies to a step, but --workload is an exchange; --batch makes it a step")
        return ("strategies" if asking.is_exchange(written) else "asked",)
    groups = tuple(name.strip() for name in only.split(",") if name.strip())
    if unknown := next((name for name in groups if name not in GROUPS), ""):
        raise InputError(f"--only: no group '{one_line(unknown, 40)}'; {nearest(unknown, GROUPS)}")
    return groups


@contextmanager
def _refused(out: str) -> Iterator[None]:
    """Raise InputError for what a run refuses, and where the folder *out* cannot be written."""
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        raise InputError(one_line(error, 300)) from None
    except OSError as error:
        raise InputError(f"--out {one_line(out)}: {error.strerror}") from None


def _prepared(
    out: str, machine: str, group: str, asked: list[asking.StepToMeasure], exchanges: list[dict[str, Any]]
) -> str:
    ranks = [len(each.question.gpus or (0,)) for each in asked] + [int(each["n_ranks"]) for each in exchanges]
    command = f"-m validate.measure --out {one_line(out)} --only {group} --machine {one_line(machine)}"
    launcher = f"torchrun --nproc-per-node {max(ranks)}" if max(ranks) > 1 and group == "asked" else "python3"
    return f"wrote {one_line(out)}; to measure it, where torch is all there is too: {launcher} {command}"


def _ask(written: CommandOptions, device: str, *, prepare: bool) -> list[asking.StepToMeasure]:
    if written.topology is None:
        raise InputError("--workload needs --topology, the machine to predict (validate describe drafts one)")
    if prepare:
        return asking.asked_steps(written, None)
    import torch

    gpus = 1 if device.startswith("cuda:") else torch.cuda.device_count()
    if device.startswith("cuda:") and written.gpus is None:
        written = written.but(gpus="1" if load_machine(written.topology).gpus else None)
    return asking.asked_steps(written, max(1, 0 if device == "cpu" else gpus))


def _exchanges(written: CommandOptions, device: str, given: Given) -> list[dict[str, Any]]:
    if written.topology is None:
        raise InputError("--strategy needs --topology, the machine whose ranks exchange (validate describe drafts one)")
    if device.startswith("cuda:"):
        raise InputError(f"--device {device}: is one GPU, and an exchange takes two or more; --gpus says which")
    import torch

    there = given.prepare or torch.cuda.device_count() > 0
    found, left = asking.ask_exchanges(written, on_gpus=device != "cpu" and there)
    given.remark(f"not measured: {why}" for why in left)
    return found


def _check_measured(folder: Path, status: int, group: str) -> None:
    record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    left = [row for row in record.get("left", ()) if row.get("group") == group]
    if left and not status:
        raise InputError(f"--workload: could not be measured: {one_line(left[0].get('reason', ''), 200)}")


@contextmanager
def _kept(path: Path, text: str | None) -> Iterator[None]:
    """Keep *text* as topology of a folder of rows, and restore what was there if the run is refused."""
    folder = path.parent
    made = [folder, *folder.parents][: sum(not os.path.exists(each) for each in (folder, *folder.parents))]
    before = path.read_bytes() if text is not None and path.is_file() else None
    if text is not None:
        folder.mkdir(parents=True, exist_ok=True)
        write_output("--out", path, text.encode())
    try:
        yield
    except ValueError:
        if before is not None:
            write_output("--out", path, before)
        elif text is not None:
            path.unlink(missing_ok=True)
            with suppress(OSError):  # a folder with other files stays
                for each in made:
                    each.rmdir()
        raise


def _name_in(path: Path) -> str:
    try:
        return load_topology(str(path)).name if os.path.isfile(path) else ""
    except TopocastError:
        return ""


def _reported(device: str) -> dict[str, Any]:
    """Return what *device* ("": the first GPU, else the CPU) reports, in a record's form; {} without it."""
    import torch

    if device.startswith("cuda") or (not device and torch.cuda.device_count()):
        try:
            properties = torch.cuda.get_device_properties("cuda:0" if device in ("", "cuda") else device)
        except (RuntimeError, AssertionError, ValueError):
            return {}  # the run itself refuses the device, with the reason
        gpu = {"name": properties.name, "sm_count": properties.multi_processor_count}
        return {"device": properties.name, "gpu": gpu | {"memory_bytes": properties.total_memory}}
    return {"device": cpu_facts()[0].get("model name") or "of this machine"} if device in ("", "cpu") else {}


def _rows_machine_name(out: Path, asked: str, topology: str, before: str) -> str:
    """Return the machine name for rows in *out*: *asked*, else theirs, of the same topology; raises InputError."""
    name = asked or topology
    if not _has_rows(out):
        return name
    shown, theirs = one_line(out, 100), ""
    if topology and before and topology != before:
        held = f"{shown} holds rows measured with the topology '{one_line(before, 60)}'"
        other = f"this one is '{one_line(topology, 60)}'; name another folder with --out"
        raise InputError(f"--topology: {held}, and {other}")
    if (out / "run.json").exists():
        with suppress(ValueError, RecursionError):  # the run itself validates the record and reports the fault
            found = json.loads(read_user_file(out / "run.json", _MOST_BYTES))
            theirs = str(found.get("machine") or "") if isinstance(found, dict) else ""
    if name and theirs and name != theirs:
        held, other = one_line(theirs, 60), f"and these would be of '{one_line(name, 60)}'; name another folder"
        raise InputError(f"--out: {shown} holds rows of the machine '{held}', {other}, or go on with --machine {held}")
    return name or theirs


def _load_warning() -> str:
    """Return a one-line warning where other programs load this machine; empty where it is idle or the load unknown."""
    try:
        load, cores = os.getloadavg()[0], os.cpu_count() or 1
    except (AttributeError, OSError):
        return ""
    wanted = f"warning: in the last minute {load:.3g} processes wanted one of {cores} cores"
    return f"{wanted}; what is measured beside other work may repeat well and yet be wrong" if busy(load, cores) else ""


def _has_rows(out: Path) -> bool:
    for name in COLUMNS:
        if (out / name).exists():
            with open_user_file(out / name) as file:
                if file.readline() and file.readline():
                    return True
    return False
