"""Which GPUs of each machine a launch line lets its processes see (docs/decisions/launch-lines.md)."""

import re
from collections.abc import Mapping, Sequence

from simulator.errors import Fault, InputError, mention, nearest, one_line
from simulator.launch.arguments import ON_CPU, Arguments, spelt_flag
from simulator.launch.command import Command
from simulator.launch.words import Word
from simulator.records import dataclass

_CONTAINER = "NVIDIA_VISIBLE_DEVICES"  # of a container, within which all others count; docker's --gpus makes it
_BASE = "ROCR_VISIBLE_DEVICES"  # of the driver below HIP, whose numbers count within it
_NAMES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
_NO_GPU = ("", "-1", "nodevfiles", "none", "void")
_COUNTS = ("num-gpus", "num-nodes")  # of DeepSpeed
_FILTERS = {"include": "include", "i": "include", "exclude": "exclude", "e": "exclude"}
_HERE = {"localhost", "127.0.0.1"}
_MOST_BYTES = 1_000_000
_HOST = re.compile(r"(?a)(?P<name>[^\s=]{1,255})(?:\s+slots\s*=\s*(?P<slots>\d{1,6}))?(?:\s+max[-_]slots\s*=\s*\d+)?")
_HOST_FILES = ("hostfile", "machinefile", "default-hostfile")
_NUMBERS = re.compile(r"\d{1,6}(?:,\d{1,6})*", re.ASCII)


@dataclass(frozen=True, slots=True)
class VisibleGpus:
    """The GPUs of each machine, or of all; what says so, how many hosts it names, whether each gets a process."""

    gpus: tuple[tuple[int, ...], ...] = ()
    said: str = ""
    hosts: int | None = None
    of_launcher: bool = False

    @property
    def each(self) -> int | None:
        """The number of GPUs of a machine; None if it is not said or not the same on all."""
        counts = {len(gpus) for gpus in self.gpus}
        return counts.pop() if len(counts) == 1 else None

    def among(self, chosen: Sequence[int], said: str) -> "VisibleGpus":
        """Return the GPUs of one machine that *chosen* counts among these; raises InputError for one too many."""
        if not self.gpus:
            return VisibleGpus((tuple(chosen),), said)
        (gpus,) = self.gpus
        if max(chosen) >= len(gpus):
            raise InputError(f"{said}: counts among the {len(gpus)} of {self.said}")
        return VisibleGpus((tuple(gpus[gpu] for gpu in chosen),), f"{said} of {self.said}")


EVERY_GPU = VisibleGpus()


def written_gpus(gpus: Sequence[int]) -> str:
    """Return *gpus*, in their order, as ``--gpus`` takes them: the first as their number, other ones as a list."""
    if tuple(gpus) == tuple(range(len(gpus))):
        return str(len(gpus))
    return ",".join(map(str, gpus)) if len(gpus) > 1 else f"{gpus[0]}-{gpus[0]}"


def visible_gpus(launcher: Arguments, command: Command, own: int | None) -> VisibleGpus:
    """Return the GPUs that processes see, of *own*; *launcher* gets faults, and notes on what is passed over."""
    environment = {name: word for name, word in command.environment.items() if name != _CONTAINER}
    if command.container is not None:
        environment[_CONTAINER] = command.container
    if command.starter == "deepspeed":
        return _of_deepspeed(launcher, environment, own)
    said = (launcher.text("gpu-ids") or "all").strip("[]").replace(" ", "")
    found = _of_environment(launcher, environment)
    if said == "all":
        return found
    gpus = _distinct(said) if _NUMBERS.fullmatch(said) else None
    if gpus is None:
        why = "a GPU is named twice" if _NUMBERS.fullmatch(said) else "write numbers of GPUs (0,1) or all"
        launcher.fault("gpu-ids", f"{one_line(said, 40)}: {why}")
        return EVERY_GPU
    if found.gpus not in ((), (gpus,)):
        launcher.notes.append(f"{found.said}: Accelerate's --gpu_ids {said} replaces it")
    return VisibleGpus((gpus,), f"--gpu_ids {said}", of_launcher=True)


def _of_deepspeed(launcher: Arguments, environment: Mapping[str, Word], own: int | None) -> VisibleGpus:
    """Return the GPUs that ``--include`` and ``--exclude`` leave; with these or counts, variables are passed over."""
    filters = [name for name in _FILTERS if launcher.text(name)]
    hosts = read_hosts(launcher, "H")
    counted = next((f"--{name.replace('-', '_')}" for name in _COUNTS if name in launcher), None)
    found = _of_environment(launcher, environment)
    named = spelt_flag(filters[0]) if filters else "--hostfile" if hosts else counted
    excluded = bool(filters) and (counted is not None or len(filters) > 1)
    if found.gpus and named is not None and not excluded:
        launcher.notes.append(f"{found.said}: DeepSpeed passes over it where {named} is given")
    if excluded:
        other = counted or spelt_flag(filters[-1])
        launcher.fault(filters[0], f"excludes {other}, as DeepSpeed has it; leave one of the two out")
    elif filters:
        said = launcher.value(filters[0]) or ""
        try:
            gpus = _filtered(_FILTERS[filters[0]], said, hosts or {}, own)
        except InputError as error:
            launcher.fault(filters[0], error.faults[0].message)
            return EVERY_GPU
        count = len(gpus) if hosts else len(said.split("@"))
        return VisibleGpus(gpus, f"{named} {one_line(said, 60)}", count, of_launcher=True)
    elif hosts:  # the GPUs of the first, as many as are asked for of each
        slots = list(hosts.values())[: launcher.number("num-nodes")]
        each = launcher.number("num-gpus")
        gpus = tuple(tuple(range(each or count)) for count in slots)
        return VisibleGpus(gpus, "the host file", len(gpus), of_launcher=True)
    elif counted is None or not found.gpus:
        return VisibleGpus(found.gpus, found.said, of_launcher=True)
    return EVERY_GPU


def _filtered(name: str, said: str, hosts: Mapping[str, int], own: int | None) -> tuple[tuple[int, ...], ...]:
    """Return the GPUs of each host of ``a:0,1@b:2,3``; without a list, all of *hosts*' own, or *own*."""
    shown = one_line(said, 60)
    listed_of: dict[str, tuple[int, ...] | None] = {}
    for host, colon, listed in (part.partition(":") for part in said.split("@")):
        gpus = _distinct(listed) if colon and _NUMBERS.fullmatch(listed) else None
        if not host or (colon and gpus is None):
            raise InputError(f"{shown}: write hosts with numbers of their GPUs, each once: localhost:0,1")
        if hosts and (host not in hosts or max(gpus or (0,)) >= hosts[host]):
            where = f"{hosts[host]} GPUs" if host in hosts else f"no host '{one_line(host, 40)}'"
            hint = "" if host in hosts else f"; {nearest(host, hosts)}"
            raise InputError(f"{shown}: the host file has {where}{hint}")
        listed_of[host] = gpus
    if name == "include" and not hosts and not any(listed_of.values()):
        return ()
    if not hosts and own is None and (name == "exclude" or not all(listed_of.values())):
        raise InputError(f"{shown}: which GPUs are left depends on the machine; add --topology, of a single machine")
    if name == "include":
        return tuple(gpus or tuple(range(hosts.get(host, own or 0))) for host, gpus in listed_of.items())
    if not hosts and (len(listed_of) > 1 or not all(listed_of.values()) or not listed_of.keys() <= _HERE):
        raise InputError(f"{shown}: the host file says what is left; add --hostfile, or write --include with all hosts")
    there = hosts or dict.fromkeys(listed_of, own or 0)
    gone = {host: gpus or range(there[host]) for host, gpus in listed_of.items()}
    left = (tuple(gpu for gpu in range(count) if gpu not in gone.get(host, ())) for host, count in there.items())
    found = tuple(gpus for gpus in left if gpus)
    if not found:
        raise InputError(f"{shown}: no GPU is left")
    return found


def _of_environment(launcher: Arguments, environment: Mapping[str, Word]) -> VisibleGpus:
    variable = _BASE
    try:
        base, shown = (_of_variable(name, launcher, environment) for name in (_BASE, _CONTAINER))
        base = shown.among(base.gpus[0], base.said) if base.gpus else shown
        found = [each for each in (_of_variable(name, launcher, environment) for name in _NAMES) if each.gpus]
        if not found:
            return base
        variable = _NAMES[1]
        if len(found) > 1 and found[0].gpus != found[1].gpus:
            raise InputError(f"{found[1].said}: contradicts {found[0].said}")
        variable = found[0].said.partition("=")[0]
        return base.among(found[0].gpus[0], found[0].said)
    except InputError as error:
        _fault(launcher, environment[variable], error.faults[0].message)
        return EVERY_GPU


def _of_variable(name: str, launcher: Arguments, environment: Mapping[str, Word]) -> VisibleGpus:
    word = environment.get(name)
    if word is None or word.text.strip() in ("all", "-1" if name == _CONTAINER else "all"):
        return EVERY_GPU
    value = word.text.replace(" ", "")
    said = f"{name}={one_line(word.text, 60)}"
    if value.lower() in _NO_GPU:
        _fault(launcher, word, f"{said}: {ON_CPU}")
    elif _NUMBERS.fullmatch(value):
        gpus = _distinct(value)
        if gpus is not None:
            return VisibleGpus((gpus,), said)
        _fault(launcher, word, f"{said}: a GPU is named twice")
    elif "$" in value or "`" in value:
        launcher.notes.append(f"{said}: is known only at run time; the first GPUs of the machine are simulated")
    else:
        named = "names GPUs, but not by number; as many, the first of the machine, are simulated"
        launcher.notes.append(f"{said}: {named}")
        return VisibleGpus((tuple(range(len(value.split(",")))),), said)
    return EVERY_GPU


def _distinct(listed: str) -> tuple[int, ...] | None:
    numbers = tuple(map(int, listed.split(",")))
    return numbers if len(set(numbers)) == len(numbers) else None


def _fault(launcher: Arguments, word: Word, message: str) -> None:
    place = (word.line, word.column) if launcher.file != mention("launch") else (0, 0)
    launcher.faults.append(Fault(message, launcher.file, *place))


def read_hosts(launcher: Arguments, *more: str) -> dict[str, int] | None:
    """Return the slots of each host in the file that *launcher* names (as in *more*); None if none is read."""
    path = launcher.text(*_HOST_FILES, *more)
    if path is None:
        return None
    if not launcher.files.has(path):
        told = "is not here; the machines are those that the line tells"
        launcher.notes.append(f"--hostfile {one_line(path, 60)}: {told}")
        return None
    found: dict[str, int] = {}
    hosts: dict[str, int] | None = None
    with launcher.recording():
        raw = launcher.files.read(path, _MOST_BYTES, needed="a host file", usual="a host file is a few kB")
        for number, line in enumerate(raw.decode("utf-8", "replace").splitlines(), 1):
            text = line.partition("#")[0].strip()
            match = _HOST.fullmatch(text)
            if text and (match is None or match["slots"] == "0"):
                why = f"'{one_line(text, 60)}' is no host; write for example worker-1 slots=8"
                raise InputError(Fault(why, path, number, 1))
            if match is not None and match["name"] in found:
                raise InputError(Fault(f"{one_line(match['name'], 60)} is there twice", path, number, 1))
            if match is not None:
                found[match["name"]] = int(match["slots"] or 1)
        hosts = found
        if not found:
            raise InputError(Fault("names no host; write for example worker-1 slots=8", path, 1, 1))
    return hosts
