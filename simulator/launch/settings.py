"""Settings in files: DeepSpeed's configuration, and those in place of arguments (docs/decisions/launch-lines.md)."""

import json
import math
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from simulator.errors import Fault, InputError, few, nearest, one_line
from simulator.launch.arguments import KNOWN, Arguments, Files, Names, divides, is_off, is_on, leaves, reasons
from simulator.launch.words import NAMES
from simulator.questions.step import Offload
from simulator.records import dataclass, field, own_data
from simulator.topology.yaml_source import YamlSource

_KNOWN = KNOWN["deepspeed"]
_TIMELESS = {section: Names(text) for section, text in _KNOWN["timeless"].items()}
_INSTEAD, _REFUSED = reasons(_KNOWN["instead"]), reasons(_KNOWN["refused"])
_BEGIN_REFUSED = {".".join(name.split(".")[:count]) for name in _REFUSED for count in (1, 2)}
BUCKET = 500_000_000  # elements: the default of reduce_bucket_size (deepspeed/runtime/zero/config.py)
_ON_BY_DEFAULT = ("reduce_scatter", "use_multi_rank_bucket_allreduce")
_OF_ZERO = tuple(f"zero_optimization.{name}" for name in ("overlap_comm", *_ON_BY_DEFAULT))
_SWITCHES = ("bf16.enabled", "fp16.enabled", *_OF_ZERO)
_BATCHES = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
_REFUSED_UPDATES = reasons(_KNOWN["refused_updates"])
_DISKS = (
    "reads and writes disks in every step, and the line does not say which; take cpu here, and add --offload-to nvme"
)
_ALONE = "parameters on the host with their optimiser's state on the device are not modelled; offload_optimizer too is"
_OLDER = {"offload_optimizer": ("cpu_offload",), "offload_param": ("cpu_offload_param", "cpu_offload_params")}
_PAGEABLE = "is not on; copies are simulated from and to pinned memory"
Refuse = Callable[[str, str], None]
"""Records a fault of a setting: its name, and why."""


@dataclass(slots=True)
class DeepSpeed:
    """Settings of a file; None if a setting is missing or ``auto``."""

    is_there: bool = False  # DeepSpeed trains
    zero: int | None = None
    batch: int | None = None
    micro_batch: int | None = None
    micro_batches: int | None = None
    precision: str | None = None
    otherwise: str | None = None  # the precision unless arguments of the program name one
    shards: int | None = None  # ranks that hold a full set (MiCS)
    overlap: bool = False  # gradients go during the backward pass
    bucket: int = BUCKET  # elements; 0: the square of the hidden size, as the Trainer has it
    sums_whole: bool = True  # stages 1 and 2 all-reduce buckets
    in_fp32: bool = False  # BF16_Optimizer keeps a copy of the gradients in fp32, and shards its state
    offload: Offload = "none"  # on the host
    round_robin: bool = False  # parameters go so over the ranks
    torch_adam: bool = False  # a host updates by torch's Adam
    options: dict[str, str | bool] = field(default_factory=dict)  # more of ``simulate``
    notes: list[str] = field(default_factory=list)


class _DeepSpeedFile:
    def __init__(self, source: YamlSource) -> None:
        self._source, self.faults = source, list[Fault]()

    def refuse(self, name: str, why: str, shown: str = "", *, key: bool = False) -> None:
        self.faults.append(self._source.fault(tuple(name.split(".")), f"{shown or name}: {why}", key=key))

    def value(self, name: str) -> Any:
        found: Any = self._source.data
        for key in name.split("."):
            found = found.get(key) if isinstance(found, dict) else None
        return found

    def section(self, name: str) -> Mapping[str, Any]:
        found = self._source.data.get(name, {})
        if isinstance(found, dict):
            return found
        self.refuse(name, f"must be a mapping; got {one_line(found, 40)}")
        return {}

    def number(self, name: str, least: int, most: int = 10**9) -> int | None:
        said = self.value(name)
        if said is None or said == "auto":
            return None
        if isinstance(said, int) and not isinstance(said, bool) and least <= said <= most:
            return said
        told = f"must be a whole number, {least} to {most}; got {one_line(json.dumps(said), 40)}"
        self.refuse(name, told, name.rpartition(".")[2])
        return None

    def check(self) -> None:
        """Add faults of switches that are neither on nor off, and of settings that have no answer."""
        for name in _SWITCHES:
            said = self.value(name)
            if not (is_on(said) or is_off(said) or said == "auto"):
                self.refuse(name, f"must be true or false; got {one_line(said, 40)}")
        for name, why in _REFUSED.items():
            if divides(self.value(name)):
                self.refuse(name, why)
        for name in (f"zero_optimization.{each}" for each in _OLDER):
            if not isinstance(said := self.value(name), dict | None):
                self.refuse(name, f"must be a mapping; got {one_line(said, 40)}")
        if isinstance(said := self.value("optimizer.type"), str) and said.lower() in _REFUSED_UPDATES:
            self.refuse("optimizer.type", f"{said}: {_REFUSED_UPDATES[said.lower()]}")


def read_deepspeed(path: str, files: Files) -> DeepSpeed:
    """Return the settings of *path* among *files*; raises InputError if it cannot be read or a value is invalid."""
    source = files.document(path, "DeepSpeed configuration", json=True)
    settings, found = _DeepSpeedFile(source), DeepSpeed(is_there=True)
    zero = settings.section("zero_optimization")
    found.zero = settings.number("zero_optimization.stage", 0, 3)
    found.batch, found.micro_batch, found.micro_batches = (settings.number(name, 1) for name in _BATCHES)
    enabled = {name: settings.section(name).get("enabled") for name in ("bf16", "fp16")}
    halves = [name for name, said in enabled.items() if is_on(said)]
    if halves:
        found.precision = f"master-{halves[0]}"
    elif "auto" not in enabled.values():
        found.otherwise = "fp32"
    if len(halves) > 1:
        settings.refuse("fp16", "bf16 is enabled too; DeepSpeed takes one of the two", key=True)
    if divides(zero.get("mics_shard_size")):
        found.shards = settings.number("zero_optimization.mics_shard_size", 1)
    overlaps, bucket = zero.get("overlap_comm"), zero.get("reduce_bucket_size")
    found.overlap = found.zero == 3 if overlaps in (None, "auto") else is_on(overlaps)
    if isinstance(bucket, int | float) and not isinstance(bucket, bool) and 1 <= bucket <= 10**12:
        found.bucket = int(bucket)  # 5e8 is a float
    elif bucket == "auto":
        found.bucket = 0
    elif bucket is not None:
        told = f"must be a number of elements; got {one_line(bucket, 40)}"
        settings.refuse("zero_optimization.reduce_bucket_size", told, "reduce_bucket_size")
    scatters, many = (not is_off(zero.get(name, True)) for name in _ON_BY_DEFAULT)
    found.sums_whole = many or not scatters  # else each slice goes to its owner
    _read_optimizer(settings.section("optimizer"), path, found)
    found.round_robin = is_on(zero.get("round_robin_gradients"))
    found.offload = _offload(zero, lambda name, why: settings.refuse(f"zero_optimization.{name}", why))
    found.notes += [*_notes_on_offload(zero, path), *_notes(source.data, path, found)]
    settings.check()
    if settings.faults:
        raise InputError(list(dict.fromkeys(settings.faults)))
    return found


def _read_optimizer(optimizer: Mapping[str, Any], path: str, found: DeepSpeed) -> None:
    kind, params = str(optimizer.get("type", "")).lower(), optimizer.get("params")
    options = params if isinstance(params, dict) else {}
    if kind in ("adam", "adamw"):
        found.torch_adam = is_on(options.get("torch_adam"))
        found.options |= {"optimizer": "adam"} | ({} if found.torch_adam else {"fused_optimizer": True})
    elif kind == "sgd":
        found.options["optimizer"] = "sgd" if is_off(options.get("momentum", 0)) else "momentum"
    elif kind and kind not in _REFUSED_UPDATES:
        told = f"{path}: optimizer.type {one_line(optimizer['type'], 40)}: is not modelled"
        found.notes.append(f"{told}; simulated as Adam with its state in fp32")


def _notes(data: Mapping[str, Any], path: str, found: DeepSpeed) -> Iterator[str]:
    instead: dict[str, list[str]] = {}
    unknown = []
    for key, inside in data.items():
        is_section = isinstance(inside, dict) and key in _TIMELESS
        for inner, value in inside.items() if is_section else [("", inside)]:
            section, setting, name = (key, inner, f"{key}.{inner}") if is_section else ("", key, key)
            why = _INSTEAD.get(f"{section}.{setting}")
            if why is not None:
                if not (is_off(value) or value == "auto" or ("stage3" in setting and found.zero != 3)):
                    instead.setdefault(why, []).append(name)
            elif not (setting in _TIMELESS[section] or name in (*_TIMELESS, *_BATCHES) or name in _BEGIN_REFUSED):
                unknown.append(name)
    if found.zero == 3 and not found.overlap:
        instead["parameters are gathered while the unit before computes"] = ["zero_optimization.overlap_comm false"]
    for why, names in instead.items():
        yield f"{path}: {few(names)}: is not modelled; {why}"
    if unknown:
        yield f"{path}: not known, and without effect: {few(unknown)}"


def offload_of(devices: Mapping[str, str], refuse: Refuse) -> Offload:
    """Return what is on the host, given the *devices* of settings; those with ``param`` are of parameters."""
    on_host: dict[bool, str] = {}
    for name, device in devices.items():
        if device == "nvme":
            refuse(name, _DISKS)
        elif device == "cpu":
            on_host["param" in name] = name
        elif not is_off(device) and device != "auto":
            refuse(name, f"'{one_line(device, 40)}' is not known; cpu, nvme or none")
    if True in on_host and False not in on_host:
        refuse(on_host[True], _ALONE)
        return "none"
    return "optimizer+parameters" if True in on_host else "optimizer" if on_host else "none"


def _offload(zero: Mapping[str, Any], refuse: Refuse) -> Offload:
    devices = {}
    for name, older in _OLDER.items():
        section = zero.get(name)
        if isinstance(section, dict) and section.get("device") is not None:
            devices[f"{name}.device"] = str(section["device"]).lower()
        else:
            devices |= {each: "cpu" for each in older if is_on(zero.get(each))}
    if zero.get("stage") not in (3, None, "auto"):  # DeepSpeed passes over what is for stage 3
        devices = {name: device for name, device in devices.items() if "param" not in name}
    return offload_of(devices, refuse)


def _notes_on_offload(zero: Mapping[str, Any], path: str) -> Iterator[str]:
    for name in _OLDER:
        section, place = zero.get(name), f"{path}: zero_optimization.{name}"
        if not isinstance(section, dict) or section.get("device") != "cpu":
            continue
        if "param" in name and zero.get("stage") in (0, 1, 2):
            yield f"{place}: is for stage 3, and without effect"
            continue
        if not is_on(section.get("pin_memory")):
            yield f"{place}.pin_memory: {_PAGEABLE}"
        if section.get("ratio") not in (None, 1, 1.0):
            yield f"{place}.ratio: is not modelled; the host updates all parameters"


_KINDS: Mapping[str, Any] = own_data("simulator.launch", "recipes.yaml")
_FILE = re.compile(r"\S+\.ya?ml")
_SETTING = re.compile(r"\+{0,2}([A-Za-z_][\w.]*)=(.*)", re.DOTALL)
_ARGUMENTS = ("config", "config-file", "config-name")  # that name a file
_REFERENCE = re.compile(r"\$\{(\.?)([\w.]+)\}")  # of OmegaConf: to a key, or to one of the same section
_MOST_REFERENCES = 9  # one to another
_RESOLVERS: Mapping[str, Callable[[int, int], int]] = {  # that NeMo's launcher registers (launcher_scripts/main.py)
    "multiply": lambda a, b: a * b,
    "divide_floor": lambda a, b: a // max(b, 1),
    "divide_ceil": lambda a, b: -(-a // max(b, 1)),
}
_COMPUTED = re.compile(rf"\$\{{({'|'.join(_RESOLVERS)}):\s*(\d{{1,9}})\s*,\s*(\d{{1,9}})\s*\}}")
_Name = str | Mapping[Any, str | list[str] | None] | None  # of an argument, or of those that each value is
_Given = tuple[str, _Name, Any, Fault]  # the key, the argument, its value, its place
_INLINE = "is read from a file; write these settings to one"
_WORDS = {"true": True, "false": False, "null": None}


class _Settings(dict[str, Any]):
    """The values of a file by dotted key, and those that the command line *said*; of lists, their words."""

    def __init__(self, source: YamlSource | None, said: Mapping[str, str]) -> None:
        for name, value in leaves(source.data) if source else ():
            if not isinstance(value, list):
                self[name] = value
            elif not any(isinstance(each, dict | list) for each in value):
                self[name] = " ".join(map(str, value))
        self.source, self._said = source, said
        self.update((key, _WORDS.get(value.lower(), value)) for key, value in said.items())
        for _ in range(_MOST_REFERENCES):
            for key, value in self.items():
                if isinstance(value, str) and "${" in value:
                    self[key] = self._resolved(key, value)

    def _resolved(self, key: str, value: str) -> Any:
        """Return the *value* of *key* with one reference less, or the number that it computes of others."""
        if (whole := _REFERENCE.fullmatch(value)) is not None:
            return self.get(f"{key.rpartition('.')[0]}.{whole[2]}" if whole[1] else whole[2], value)
        if (done := _COMPUTED.fullmatch(value)) is not None:
            return _RESOLVERS[done[1]](int(done[2]), int(done[3]))
        return _REFERENCE.sub(lambda each: str(self._resolved(key, each[0])), value)

    def at(self, key: str) -> Fault:
        """Return the place of *key*; none for one of the command line."""
        return Fault("") if self.source is None or key in self._said else self.source.fault(tuple(key.split(".")), "")

    def has(self, name: str) -> bool:
        """Return whether there is a key *name*, or one in the section of that name."""
        return any(key == name or key.startswith(f"{name}.") for key in self)

    def is_on(self, name: str) -> bool:
        """Return whether such a key is on."""
        return any((key == name or key.startswith(f"{name}.")) and not is_off(said) for key, said in self.items())

    def product(self, names: str) -> int | None:
        """Return the product of the keys *names*, 1 where one is missing; None without the first."""
        first, *others = names.split()
        values = [str(self.get(name, 1)) for name in (first, *others)]
        return math.prod(map(int, values)) if first in self and all(map(str.isdecimal, values)) else None


def take_recipe(args: Arguments, launcher: Arguments) -> tuple[int, Fault] | None:
    """Add settings of the file that *args* name, and of the line, to *args* and *launcher*; faults to *args*.

    Return the ranks that the file is for, and the place that says so; None if none does.
    """
    said = {match[1]: match[2] for word in args.others if (match := _SETTING.fullmatch(word))}
    path, argument = _path(args)
    source = None
    if path and args.files.has(path):
        with args.recording():
            source = args.files.document(path, "a configuration")
            if not isinstance(source.data, dict):
                raise InputError(source.fault((), "a configuration is a mapping: micro_batch_size: 2"))
    settings = _Settings(source if source and isinstance(source.data, dict) else None, said)
    marks = ((kind, (mark.split("|") for mark in kind["marks"].split())) for kind in _KINDS.values())
    kind = next((kind for kind, several in marks if all(any(map(settings.has, mark)) for mark in several)), None)
    if kind is None:
        return None
    options = {name: name.replace("_", "-") for name in kind.get("names", ()) if "." not in name}
    of_line = {name: args.value(option) or "true" for name, option in options.items() if option in args}
    if source and of_line:  # axolotl train config.yaml --micro-batch-size 4
        settings = _Settings(source, {**said, **of_line})
        for name in of_line:
            del args[options[name]]
    if source is not None:
        args.has(argument, "config-path")
        if isinstance(source.data.get("deepspeed"), dict):
            args.faults.append(source.fault(("deepspeed",), f"deepspeed: {_INLINE}"))
    args.others = [w for w in args.others if not (_SETTING.fullmatch(w) or (source is not None and w == path))]
    _take(kind, settings, args, launcher)
    ranks = settings.product(kind["ranks"]) if "ranks" in kind else None
    return None if ranks is None else (ranks, settings.at(kind["ranks"].split()[0]))


def _path(args: Arguments) -> tuple[str, str]:
    for name in _ARGUMENTS:
        said = args.value(name) or ""
        if name == "config-name" and said:  # Hydra's, in the folder of --config-path
            said = posixpath.join(args.value("config-path") or "", said if _FILE.fullmatch(said) else f"{said}.yaml")
        if _FILE.fullmatch(said):
            return said, name
    return next((word for word in args.others if _FILE.fullmatch(word)), ""), ""


def _take(kind: Mapping[str, Any], settings: _Settings, args: Arguments, launcher: Arguments) -> None:
    of_launcher = Names(kind.get("of_launcher", ""))
    unknown: list[str] = []
    for key, name, value, at in (*_read(kind, settings, args.notes, unknown), *_added(kind, settings)):
        try:
            for found in _arguments(name, value):
                (launcher if found[0] in of_launcher else args).take(*found, at)
        except KeyError:
            known = [str(each).lower() for each in name] if isinstance(name, Mapping) else []
            told = f"{key}: '{one_line(value, 40)}' is not modelled; {nearest(str(value).lower(), known)}"
            args.faults.append(Fault(told, at.file or args.file, at.line, at.column))
    args.notes += filter(None, [kind.get("told")])
    if unknown:
        file = f"{settings.source.file}: " if settings.source else ""
        args.notes.append(f"{file}not known, and without effect: {few(unknown)}")


def _read(kind: Mapping[str, Any], settings: _Settings, notes: list[str], unknown: list[str]) -> Iterator[_Given]:
    """Yield the argument of each key, its value and place; add *notes* on what is not modelled, and *unknown* keys."""
    names, sections, parts = kind.get("names", {}), kind.get("sections", "").split(), kind.get("parts", {})
    timeless, instead = Names(kind.get("timeless", "")), reasons(kind.get("instead", {}))
    for key, value in settings.items():
        section, _, last = key.rpartition(".")
        if section in parts:
            yield key, f"{parts[section]}{last.removeprefix(section.removesuffix('config'))}", value, settings.at(key)
        elif key in names:
            yield key, names[key], value, settings.at(key)
        elif key in instead and not is_off(value):
            notes.append(f"{key}: is not modelled; {instead[key]}")
        elif key in instead or key in timeless or value is None:
            continue
        elif section not in sections and (section or kind.get("strict")):
            unknown.append(key)
        elif value is not False or not section:  # Megatron-LM's switches are on where they are there
            yield key, last, value, settings.at(key)


def take_spellings(args: Arguments) -> None:
    """Take arguments of Megatron-LM as its forks spell them (``names.yaml``) for its own."""
    for name, said in NAMES["spelt"].items() if "num-layers" in args else ():
        if name in args and args.has(name):
            for found in _arguments(said, args.value(name) or True):
                args.take(*found, args.at(name, ""))


def _added(kind: Mapping[str, Any], settings: _Settings) -> Iterator[_Given]:
    for said, without, within in kind.get("sets", ()):
        if not any(map(settings.is_on, without)) and (not within or any(map(settings.is_on, within))):
            yield "", said, True, Fault("")
    for name, keys in kind.get("products", {}).items():
        product = settings.product(keys)
        if product is not None:
            yield "", name, product, settings.at(keys.split()[0])


def _arguments(name: _Name, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the arguments that *name* is for *value*, each with its value; raises KeyError if a mapping has it not."""
    said: Any = name
    if isinstance(name, Mapping) and value is not None:
        by_word = {str(each).lower(): found for each, found in name.items()}
        word = str(value).lower()
        said = by_word[word] if word in by_word else by_word["any"]
        value = True if word in by_word else value
    if said is None or value is None or value == "auto":
        return
    for each in said if isinstance(said, list) else [said]:
        first, _, own = each.partition(" ")
        yield first.replace("_", "-"), own or (str(value).lower() if isinstance(value, bool) else one_line(value, 200))
