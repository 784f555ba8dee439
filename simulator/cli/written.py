"""The options as text, and which of them each kind of question reads."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from simulator import spelling
from simulator.cli.declarations import (
    ExchangeOptions,
    Failures,
    MachineOptions,
    Parallelism,
    StepOptionsGroup,
    StrategyOptions,
)
from simulator.cli.option import declared, option, switch
from simulator.errors import Fault, InputError, one_line
from simulator.records import dataclass, fields
from simulator.spelling import mention

_EXCHANGE, _STEP, _SINGLE, _PROGRAM = "exchange", "step", "single", "program"


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class LaunchOptions:
    """The launch line of another program."""

    title: ClassVar[str] = "Launch line"
    example: ClassVar[str] = "--topology dgx-h100 --launch @pretrain.sh --show-options"

    launch: str | None = option(
        "LINE",
        "Read the options from a launch line of Megatron-LM, torchrun or DeepSpeed, or from @script.sh. It is not run.",
    )
    show_options: bool = switch("Print --launch as a simulate command.")
    emit: str | None = option(
        "NAME",
        "Print the step as a launch line of megatron, torchtitan, deepspeed or accelerate, with comments for what it "
        "cannot say.",
        read_by=("step",),
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Output:
    """What is shown, and where."""

    title: ClassVar[str] = "Output"
    example: ClassVar[str] = "--topology p3.16xlarge --strategy nccl --plot links.svg"

    json: bool = switch("Print one JSON document instead of tables.")
    trace: str | None = option(
        "FILE", "Write a Chrome trace (JSON), which opens in Perfetto.", read_by=("exchange", "step", "program")
    )
    plot: str | None = option(
        "FILE",
        "Draw the comparison and the machine, or the step (.svg, .png or .pdf).",
        read_by=("exchange", "step", "single", "program"),
    )
    report: str | None = option(
        "FILE",
        "Write a page (.html): the answer, the machine, a timeline to zoom, tables that sort, sources of all figures.",
        read_by=("exchange", "step", "single", "program"),
    )
    quiet: bool = switch("Print only errors on standard error.", short="-q")
    verbose: bool = switch(
        "Show all of a step: its time by stream, kernel and layer, its memory by use, all that would be faster.",
        read_by=("step",),
        short="-v",
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ProgramOptions:
    """What is said of the program, not of the question."""

    title: ClassVar[str] = Output.title

    debug: bool = switch("Show the traceback of an error.")
    completion: str | None = option(
        "SHELL", 'Print the script that completes names in bash, zsh or fish: eval "$(simulate --completion bash)".'
    )
    version: bool = switch("Show the version.")


@dataclass(frozen=True, kw_only=True)
class CommandOptions(
    Output, LaunchOptions, Failures, Parallelism, StepOptionsGroup, ExchangeOptions, StrategyOptions, MachineOptions
):
    """All options on the question and its output, with their defaults."""

    @property
    def what(self) -> str:
        """The workload; where none is named, the default."""
        return "resnet50" if self.workload is None else self.workload

    @property
    def kind(self) -> str:
        """The kind of question: a single operation or a program (by workload), a step (by batch), or an exchange."""
        from simulator.workload.parse import OPERATIONS  # neither help nor completion asks for the kind

        scheme, colon, _ = self.what.partition(":")
        if colon and scheme in OPERATIONS:
            return _SINGLE
        if self.what.endswith((".yaml", ".yml")):
            from simulator.programs import is_program

            if is_program(self.what):
                return _PROGRAM
        return _STEP if self.batch is not None or self.global_batch is not None else _EXCHANGE


_CLASSES: tuple[Any, ...] = (*reversed(CommandOptions.__bases__), ProgramOptions)
OPTIONS = declared(*_CLASSES)
"""The default, declaration and group of each option."""
GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    group.title: (group.example, tuple(name for name, each in OPTIONS.items() if each[2].title == group.title))
    for group in _CLASSES[:-1]
}
GROUPS[Output.title] = (Output.example, (*GROUPS[Output.title][1], "help"))
"""Groups of options by title, each with an example and its options."""
_WHY = {
    (_EXCHANGE, _STEP): f"is about a step of a network; add {mention('batch')}, for example {mention('batch', 32)}",
    (_STEP, _EXCHANGE): f"is about an exchange alone; without {mention('batch')} it is read",
    (_SINGLE, _EXCHANGE): f"is about an exchange, and {mention('workload')} names a single operation",
    (_SINGLE, _STEP): f"is about a step of a network, and {mention('workload')} names a single operation",
    **dict.fromkeys(((_EXCHANGE, _PROGRAM), (_STEP, _PROGRAM), (_SINGLE, _PROGRAM)), "is about a file that names code"),
    (_PROGRAM, _EXCHANGE): f"is about an exchange, and {mention('workload')} is a program, which says what it does",
    (_PROGRAM, _STEP): f"is about a step of a network, and {mention('workload')} is a program, "
    "which says it of each (batch: 32)",
}


_NO_NETWORK = (
    f"is about a step of a network, and {mention('workload')} {{}} is a size; "
    f"name a network, for example {mention('workload', 'resnet50')} {mention('batch', 32)}"
)
_BY_WORD = "; an operator's is part of it (op:mat_mul,m=64,n=64,k=64,precision=bf16)"


def written_of(given: Mapping[str, Any]) -> CommandOptions:
    """Return the options *given*, as Typer reads them."""
    several = {name: tuple(value or ()) for name, value in given.items() if OPTIONS[name][0] == ()}
    return CommandOptions(**{**given, **several})


def option_spelt(name: str) -> str:
    """Return the command-line option of the field *name*, as a switch that differs from its default."""
    return spelling.spelt(_given(name), "command")


def _given(name: str) -> str:
    return mention(name, False) if OPTIONS[name][0] is True else mention(name)


def check_read(written: CommandOptions) -> None:
    """Raise InputError for options that were given but that nothing would read."""
    said = [field.name for field in fields(CommandOptions) if getattr(written, field.name) != field.default]
    faults = []
    for name in said:
        _, said_of, group = OPTIONS[name]
        readers = said_of.read_by if said_of.read_by is not None else getattr(group, "read_by", ())
        if readers and written.kind not in readers:
            if (written.kind, readers[0]) == (_EXCHANGE, _STEP) and written.what.startswith(("bytes:", "sweep:")):
                faults.append(Fault(f"{_given(name)}: {_NO_NETWORK.format(one_line(written.what, 60))}"))
                continue
            more = _BY_WORD if name == "precision" and written.kind == _SINGLE else ""
            faults.append(Fault(f"{_given(name)}: {_WHY[written.kind, readers[0]]}{more}"))
        elif said_of.says_too in said:
            faults.append(Fault(f"{_given(name)}: {mention(said_of.says_too)} says it already; give one of the two"))
    if faults:
        raise InputError(faults)


def shell_command(written: CommandOptions, command: Sequence[str] = (), **more: Any) -> str:
    """Return the shell command that gives the options in *written*, and *more* of the *command*'s own."""
    words = ["simulate", *command]

    def spelt(name: str) -> str:
        return f"--{name.replace('_', '-')}" if name in more else option_spelt(name)

    said = [(field.name, getattr(written, field.name)) for field in fields(CommandOptions)]
    plain = {field.name: field.default for field in fields(CommandOptions)}
    for name, value in [*said, *more.items()]:
        if value in (plain.get(name), None) or name in ("launch", "show_options", "report", "quiet"):
            continue
        if isinstance(value, bool):
            words.append(spelt(name))
        else:
            for each in value if isinstance(value, tuple) else (value,):
                words += [spelt(name), each]
    return shlex.join(words)
