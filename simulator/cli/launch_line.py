"""``--launch``: a launch line of another program, translated to options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from simulator.cli.written import Written, spelt
from simulator.errors import Fault, InputError, one_line
from simulator.launch.launch import read_launch
from simulator.questions.layout import parse_layout

__all__ = ["with_launch"]

_ELSE = {field.name: field.default for field in fields(Written)}


def with_launch(written: Written) -> tuple[Written, Sequence[str]]:
    """Return *written* with the options of its launch line, and notes on what the line says that is not simulated.

    Raises InputError if the line cannot be read or contradicts other options.
    """
    launch = read_launch(written.launch or "")
    if written.batch is written.global_batch is None and "global_batch" not in launch.options:
        raise InputError(
            "--launch: the line names no batch (--micro-batch-size and --global-batch-size, "
            "--per_device_train_batch_size, or DeepSpeed's configuration); add --batch, for example --batch 32"
        )
    changes: dict[str, object] = {}
    faults: list[Fault] = []

    def differs(option: str, own: object, said: object) -> None:
        own, said = one_line(own, 60), one_line(said, 60)
        faults.append(Fault(f"{option} {own}: --launch says {said}; leave one of the two out"))

    for name, said in launch.options.items():
        own = getattr(written, name)
        if name == "parallel":
            if not own:
                changes[name] = (said,)
            elif len(own) > 1 or parse_layout(own[0]) != parse_layout(str(said)):
                differs(spelt(name), " ".join(own), said)
        elif own == _ELSE[name]:
            changes[name] = said
        elif own != said:
            differs(spelt(name), own, said)
    if written.batch is not None and "global_batch" in launch.options:
        differs("--batch", written.batch, f"--global-batch {launch.options['global_batch']}")
    own_sizes = dict(text.partition("=")[::2] for text in written.sizes)
    for name, size in launch.sizes.items():
        if own_sizes.get(name, str(size)) != str(size):
            differs("--set", f"{name}={own_sizes[name]}", f"{name}={size}")
    if faults:
        raise InputError(faults)
    notes = launch.notes
    if "workload" not in launch.options and written.workload == _ELSE["workload"]:
        notes = [f"the line does not name the network: {written.workload} is simulated; use --workload", *notes]
    new = tuple(f"{name}={size}" for name, size in launch.sizes.items() if name not in own_sizes)
    return replace(written, **changes, sizes=(*new, *written.sizes), launch=None), notes  # type: ignore[arg-type]
