"""The settings of DeepSpeed's JSON configuration that affect a step: :func:`read_deepspeed`.

What DeepSpeed, FSDP and Lightning keep in the host's memory are values of ``--offload``: :func:`offload_of`.
DeepSpeed's sections name a device (deepspeed/runtime/zero/offload_config.py); ``cpu_offload`` and
``cpu_offload_params`` are their older forms.  Parameters alone, and disks, are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from simulator.errors import Fault, InputError, few, one_line
from simulator.launch.arguments import Arguments, Files, divides, is_off, is_on
from simulator.launch.unread import KNOWN, Names, reasons
from simulator.questions.step import Offload
from simulator.records import dataclass, field
from simulator.topology.yaml_source import YamlSource

_KNOWN = KNOWN["deepspeed"]
_TIMELESS, _INSTEAD, _REFUSED = _KNOWN["timeless"], reasons(_KNOWN["instead"]), reasons(_KNOWN["refused"])
_FEWER_BITS = next(why for why in _KNOWN["refused"] if "fewer bits" in why)
_BUCKET = 500_000_000  # elements: the default of reduce_bucket_size (deepspeed/runtime/zero/config.py)
_SWITCHES = (("bf16", "enabled"), ("fp16", "enabled"), ("zero_optimization", "overlap_comm"))
_BATCHES = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
_COMPRESSING = frozenset(("onebitadam", "zerooneadam", "onebitlamb"))


@dataclass(slots=True)
class DeepSpeed:
    """Settings of a file; None if a setting is missing or ``auto``.

    ``is_there``: DeepSpeed trains.  ``shards``: ranks that hold a full set (MiCS).  ``otherwise`` is the precision
    unless arguments of the program name one.  ``overlap``: gradients go during the backward pass, in buckets of
    ``bucket`` elements.  ``offload`` is on the host; parameters go ``round_robin`` over the ranks.  ``options`` are
    further options of ``simulate``; with ``torch_adam``, a host updates by torch's Adam.
    """

    is_there: bool = False
    zero: int | None = None
    batch: int | None = None
    micro_batch: int | None = None
    micro_batches: int | None = None
    precision: str | None = None
    otherwise: str | None = None
    shards: int | None = None
    overlap: bool = False
    bucket: int = _BUCKET
    offload: Offload = "none"
    round_robin: bool = False
    torch_adam: bool = False
    options: dict[str, str | bool] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read_deepspeed(path: str, files: Files) -> DeepSpeed:
    """Return the settings of *path* among *files*; raises InputError if it cannot be read or a value is invalid."""
    source = files.json(path, "DeepSpeed configuration")
    data: Mapping[str, Any] = source.data
    found = DeepSpeed(is_there=True)
    faults: list[Fault] = []

    def number(place: tuple[str, ...], least: int, most: int = 10**9) -> int | None:
        *within, key = place
        value = (mapping(within[0]) if within else data).get(key)
        if value is None or value == "auto":
            return None
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        told = f"{key}: must be a whole number, {least} to {most}; got {one_line(json.dumps(value), 40)}"
        faults.append(source.fault(place, told))
        return None

    def mapping(key: str) -> Mapping[str, Any]:
        value = data.get(key, {})
        if not isinstance(value, dict):
            faults.append(source.fault((key,), f"{key}: must be a mapping; got {one_line(value, 40)}"))
            return {}
        return value

    found.zero = number(("zero_optimization", "stage"), 0, 3)
    found.batch = number(("train_batch_size",), 1)
    found.micro_batch = number(("train_micro_batch_size_per_gpu",), 1)
    found.micro_batches = number(("gradient_accumulation_steps",), 1)
    halves = [name for name in ("bf16", "fp16") if is_on(mapping(name).get("enabled"))]
    if halves:
        found.precision = f"master-{halves[0]}"
    elif not any(mapping(name).get("enabled") == "auto" for name in ("bf16", "fp16")):
        found.otherwise = "fp32"
    if len(halves) > 1:
        faults.append(source.fault(("fp16",), "fp16: bf16 is enabled too; DeepSpeed takes one of the two", key=True))
    zero = mapping("zero_optimization")
    if divides(zero.get("mics_shard_size")):
        found.shards = number(("zero_optimization", "mics_shard_size"), 1)
    said = zero.get("overlap_comm")
    found.overlap = found.zero == 3 if said in (None, "auto") else is_on(said)
    bucket = zero.get("reduce_bucket_size")
    if isinstance(bucket, int | float) and not isinstance(bucket, bool) and 1 <= bucket <= 10**12:
        found.bucket = int(bucket)  # 5e8 is a float
    elif bucket not in (None, "auto"):
        told = f"reduce_bucket_size: must be a number of elements; got {one_line(bucket, 40)}"
        faults.append(source.fault(("zero_optimization", "reduce_bucket_size"), told))
    _read_optimizer(mapping("optimizer"), path, found)
    found.round_robin = is_on(zero.get("round_robin_gradients"))
    within = "zero_optimization"
    found.offload = offload_of_file(
        zero, lambda name, why: faults.append(source.fault((within, *name.split(".")), f"{within}.{name}: {why}"))
    )
    found.notes += offload_notes(zero, path)
    for place in _SWITCHES:
        value = mapping(place[0]).get(place[1])
        if value != "auto" and not (is_on(value) or is_off(value)):
            faults.append(source.fault(place, f"{'.'.join(place)}: must be true or false; got {one_line(value, 40)}"))
    faults += _refused(source)
    found.notes += _said_of(data, path, found)
    if faults:
        raise InputError(list(dict.fromkeys(faults)))
    return found


def _read_optimizer(optimizer: Mapping[str, Any], path: str, found: DeepSpeed) -> None:
    """Read the update: DeepSpeed's Adam is one fused kernel unless torch's is asked for."""
    kind = str(optimizer.get("type", "")).lower()
    params = optimizer.get("params")
    if kind in ("adam", "adamw"):
        found.options["optimizer"] = "adam"
        found.torch_adam = isinstance(params, dict) and is_on(params.get("torch_adam"))
        if not found.torch_adam:
            found.options["fused_optimizer"] = True
    elif kind == "sgd":
        moves = isinstance(params, dict) and not is_off(params.get("momentum", 0))
        found.options["optimizer"] = "momentum" if moves else "sgd"
    elif kind and kind not in _COMPRESSING:
        told = f"{path}: optimizer.type {one_line(optimizer['type'], 40)}: is not modelled"
        found.notes.append(f"{told}; simulated as Adam with its state in fp32")


def _said_of(data: Mapping[str, Any], path: str, found: DeepSpeed) -> Iterator[str]:
    """Yield notes on the keys of *data* that are not modelled, and one that lists unknown keys."""
    instead: dict[str, list[str]] = {}
    unknown = []
    for place, value in _keys(data):
        section, key = ("", *place)[-2:]
        name = ".".join(place)
        if (setting := f"{section}.{key}") in _INSTEAD:
            if not (is_off(value) or value == "auto" or ("stage3" in key and found.zero != 3)):
                instead.setdefault(_INSTEAD[setting], []).append(name)
        elif not _is_known(section, key):
            unknown.append(name)
    if found.zero == 3 and not found.overlap:
        instead["parameters are gathered while the unit before computes"] = ["zero_optimization.overlap_comm false"]
    for why, names in instead.items():
        yield f"{path}: {few(names)}: is not modelled; {why}"
    if unknown:
        yield f"{path}: not known, and without effect: {few(unknown)}"


def _keys(data: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield the place and the value of each key of *data*, and of each key of the sections that are looked into."""
    for key, value in data.items():
        if isinstance(value, dict) and key in _TIMELESS:
            yield from (((key, inner), each) for inner, each in value.items())
        else:
            yield (key,), value


def _is_known(section: str, key: str) -> bool:
    refused = {tuple(name.split(".")[: 2 if section else 1]) for name in _REFUSED}
    own = not section and key in (*_TIMELESS, *_BATCHES)
    return own or key in Names(_TIMELESS[section]) or ((section, key) if section else (key,)) in refused


def _refused(source: YamlSource) -> Iterator[Fault]:
    """Yield a fault for each setting of *source* that is on and has no answer."""

    def value(*place: str) -> Any:
        found: Any = source.data
        for key in place:
            found = found.get(key) if isinstance(found, dict) else None
        return found

    for name, why in _REFUSED.items():
        if divides(value(*name.split("."))):
            yield source.fault(tuple(name.split(".")), f"{name}: {why}")
    for place in (("zero_optimization", "offload_optimizer"), ("zero_optimization", "offload_param")):
        said = value(*place)
        if not isinstance(said, dict | None):
            yield source.fault(place, f"{'.'.join(place)}: must be a mapping; got {one_line(said, 40)}")
    optimizer = value("optimizer", "type")
    if isinstance(optimizer, str) and optimizer.lower() in _COMPRESSING:
        yield source.fault(("optimizer", "type"), f"optimizer.type: {optimizer}: {_FEWER_BITS}")


# -- offload ---------------------------------------------------------------------------


_DISKS = (
    "reads and writes disks in every step, and the line does not say which; take cpu here, and add --offload-to nvme"
)
_ALONE = "parameters on the host with their optimiser's state on the device are not modelled; offload_optimizer too is"
_SECTIONS = ("offload_optimizer", "offload_param")
_OLDER = {"offload_optimizer": ("cpu_offload",), "offload_param": ("cpu_offload_param", "cpu_offload_params")}
_PAGEABLE = "is not on; copies are simulated from and to pinned memory"

Refuse = Callable[[str, str], None]
"""Records a fault of a setting: its name, and why."""


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


def offload_of_file(zero: Mapping[str, Any], refuse: Refuse) -> Offload:
    """Return what the section *zero* of DeepSpeed's configuration keeps on the host."""
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


def offload_notes(zero: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield notes on settings of the section *zero*, in the file *path*, that are not modelled."""
    for name in _SECTIONS:
        section = zero.get(name)
        if not isinstance(section, dict) or section.get("device") != "cpu":
            continue
        place = f"{path}: zero_optimization.{name}"
        if "param" in name and zero.get("stage") in (0, 1, 2):
            yield f"{place}: is for stage 3, and without effect"
            continue
        if not is_on(section.get("pin_memory")):
            yield f"{place}.pin_memory: {_PAGEABLE}"
        if section.get("ratio") not in (None, 1, 1.0):
            yield f"{place}.ratio: is not modelled; the host updates all parameters"


def offload_of_arguments(launcher: Arguments) -> Offload:
    """Return what the devices among the arguments of ``accelerate launch`` keep on the host, with DeepSpeed."""
    said = {name: launcher.text(name) for name in ("offload-optimizer-device", "offload-param-device")}
    return offload_of({name: device.lower() for name, device in said.items() if device}, launcher.fault)
