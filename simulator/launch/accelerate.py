"""Accelerate's configuration file (``accelerate launch --config_file``): its keys are the launcher's arguments."""

from __future__ import annotations

from pathlib import Path

from simulator.errors import InputError
from simulator.launch.arguments import Arguments
from simulator.topology.yaml_source import read_yaml

__all__ = ["add_config"]

_FLAGS = {"DEEPSPEED": "use-deepspeed", "FSDP": "use-fsdp", "MEGATRON_LM": "use-megatron-lm"}
_SECTIONS = {"deepspeed_config": "use-deepspeed", "fsdp_config": "use-fsdp", "dynamo_config": ""}


def add_config(launcher: Arguments) -> None:
    """Add the settings of the file that *launcher* names to it; its own arguments come first.

    Faults of the file are added to those of *launcher*.
    """
    path = launcher.text("config-file")
    if path is None:
        return
    try:
        source = read_yaml(Path(path), needs="a configuration of Accelerate")
        if not isinstance(source.data, dict):
            raise InputError(source.fault((), "a configuration of Accelerate is a mapping: num_processes: 8"))
    except InputError as error:
        launcher.faults += error.faults
        return
    flag = _FLAGS.get(str(source.data.get("distributed_type")).upper(), "")
    if flag:
        launcher.take(flag, "true", source.fault(("distributed_type",), ""))
    sections = [key for key, of in _SECTIONS.items() if of in ("", flag) and isinstance(source.data.get(key), dict)]
    places = [(key,) for key in source.data] + [(section, key) for section in sections for key in source.data[section]]
    for place in places:
        value = source.data[place[0]] if len(place) == 1 else source.data[place[0]][place[1]]
        if isinstance(value, str | int) and value != "auto":
            text = {True: "true", False: "no"}[value] if isinstance(value, bool) else str(value)
            launcher.take(str(place[-1]).replace("_", "-"), text, source.fault(place, ""))
