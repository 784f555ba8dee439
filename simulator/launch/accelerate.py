"""Accelerate's configuration file (``accelerate launch --config_file``): its keys are the launcher's arguments."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.errors import InputError, one_line
from simulator.launch.arguments import Arguments
from simulator.topology.yaml_source import YamlSource

_FLAGS = {"DEEPSPEED": "use-deepspeed", "FSDP": "use-fsdp", "MEGATRON_LM": "use-megatron-lm"}
# Sections of the file, and the flag without which Accelerate does not read them.
_SECTIONS = {"deepspeed_config": "use-deepspeed", "fsdp_config": "use-fsdp", "megatron_lm_config": "use-megatron-lm"}


def add_config(launcher: Arguments) -> None:
    """Add the settings of the file that *launcher* names to it; its own arguments come first.

    Faults of the file are added to those of *launcher*.
    """
    path = launcher.text("config-file")
    if path is None:
        return
    try:
        source = launcher.files.yaml(path, "a configuration of Accelerate")
        if not isinstance(source.data, dict):
            raise InputError(source.fault((), "a configuration of Accelerate is a mapping: num_processes: 8"))
    except InputError as error:
        launcher.faults += error.faults
        return
    flag = _FLAGS.get(str(source.data.get("distributed_type")).upper(), "")
    if flag:
        launcher.take(flag, "true", source.fault(("distributed_type",), ""))
    for place in _places(source, flag):
        take_key(launcher, source, place, str(place[-1]))


def take_key(launcher: Arguments, source: YamlSource, place: tuple[str, ...], name: str) -> None:
    """Take the value at *place* of *source* as the argument *name*, unless nothing is set there."""
    value = source.data
    for key in place:
        value = value[key]
    if value is not None and value != "auto":
        text = str(value).lower() if isinstance(value, bool) else one_line(value, 200)
        launcher.take(name.replace("_", "-"), text, source.fault(place, ""))


def _places(source: YamlSource, flag: str) -> Iterator[tuple[str, ...]]:
    """Yield the place of each setting that Accelerate reads with *flag*."""
    for key, value in source.data.items():
        if not isinstance(value, dict):
            yield (key,)
        elif _SECTIONS.get(key, flag) == flag:
            yield from ((key, name) for name in value)
