"""What a launch line keeps in the host's memory, as values of ``--offload``: DeepSpeed's, FSDP's and Lightning's words.

DeepSpeed's sections name a device (deepspeed/runtime/zero/offload_config.py); ``cpu_offload`` and
``cpu_offload_params`` are their older forms.  Parameters alone, and disks, are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from simulator.errors import one_line
from simulator.launch.arguments import Arguments, is_off, is_on
from simulator.questions.step import Offload

_DISKS = "reads and writes disks in every step, which is not modelled; the time would be far off"
_ALONE = "parameters on the host with their optimiser's state on the device are not modelled; offload_optimizer too is"
_SECTIONS = ("offload_optimizer", "offload_param")
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
    for name, older in zip(_SECTIONS, ("cpu_offload", "cpu_offload_params"), strict=True):
        section = zero.get(name)
        if isinstance(section, dict) and section.get("device") is not None:
            devices[f"{name}.device"] = str(section["device"]).lower()
        elif is_on(zero.get(older)):
            devices[older] = "cpu"
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
