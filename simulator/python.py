"""The Python API: :func:`simulate` and :func:`compare`, with the command line's options.

Both parse their arguments as the command line does, so equal words give equal answers: ``--global-batch 64``
is ``global_batch=64``, ``--parallel tp=8,pp=4`` is ``parallel="tp=8,pp=4"``, ``--set layers=12`` is
``sizes={"layers": 12}``.
"""

import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import product
from typing import Any

from simulator.api.session import Session
from simulator.cli.launch_line import with_launch
from simulator.cli.options import software_notes
from simulator.cli.output import answers
from simulator.cli.written import OPTIONS, CommandOptions, check_read, option_spelt
from simulator.console import later
from simulator.errors import Fault, InputError, MissingDependency, first_of, nearest, one_line, spelt
from simulator.records import replace
from simulator.results.program import ProgramResult
from simulator.results.result import Result
from simulator.results.single import SingleResult
from simulator.results.training import TrainingResult
from simulator.workload.find import NetworkSource

Answered = Result | TrainingResult | SingleResult | ProgramResult
_Computed = tuple[object, object, Callable[[Any], Any] | None]  # a workload, inputs and the loss of a module
_SHOWN = ("show_options", "emit")
_OPTIONS = {name: each for name, each in OPTIONS.items() if each.group != "Output" and name not in _SHOWN}
_SPELT = {word: name for name in _OPTIONS if (word := option_spelt(name)[2:]) != name.replace("_", "-")}


class _Default(str):
    """A default that is told from the same text, said."""

    __slots__ = ()


_DEFAULT = _Default("resnet50")


def simulate(
    topology: str | os.PathLike[str],
    strategy: str | None = None,
    workload: object = _DEFAULT,
    *,
    inputs: object = None,
    loss: Callable[[Any], Any] | None = None,
    **options: object,
) -> Answered:
    """Simulate an exchange on a machine, with *batch* a step of a network, or what else *workload* names.

    Parameters
    ----------
    topology : str or path
        A built-in machine (``"p3.16xlarge"``), a YAML file, or a part.
    strategy : str, optional
        The exchange strategy; NCCL by default.
    workload : str, number, or torch.nn.Module
        A network whose gradients are exchanged (``"resnet50"``, also the default), a size (``"100 MB"``, or bytes as a
        number), a single operation (``"op:..."``, ``"copy:..."``), a program (a YAML file), or a torch module, which
        needs *inputs*; it is neither run on data nor changed.
    inputs : tensor, tuple of arguments, or dict of arguments by name
        The inputs of a module; the first dimension of the first one is the batch.
    loss : callable, optional
        For a module: a function from its output to a single number, which becomes part of the step.
    **options
        Options of the command line: ``nodes=2``, ``gpus=4``, ``batch=64``, ``precision="amp-bf16"``,
        ``parallel="tp=2,dp=4"``, ``collective="all-gather"``, ...

    Returns
    -------
    Result, TrainingResult, SingleResult or ProgramResult
        The result of an exchange (``sync_time_s``, ``busbw_Bps``, ``bottleneck``), of a step (``step_time_s``,
        ``throughput``, ``exposed_s``, ``fits``), of a single operation (``time_s``) or of a program (``done_s``).

    Raises
    ------
    InputError
        If values cannot be parsed or name something that does not exist; with every fault.
    """
    found = _answers({"topology": topology, "strategy": strategy, **options}, (workload, inputs, loss), one=True)
    if len(found) > 1:
        raise InputError("simulate gives one answer, and this asks for several; compare gives them all")
    return found[0]


def compare(
    topology: str | os.PathLike[str],
    strategy: str | None = None,
    workload: object = _DEFAULT,
    *,
    inputs: object = None,
    loss: Callable[[Any], Any] | None = None,
    **options: object,
) -> list[Answered]:
    """Return the results of each strategy, machine and layout, fastest first, as the command line gives them.

    An exchange is compared with all strategies unless some are named.  Those that do not fit are left out.  Raises
    InputError if none fits, and as :func:`simulate`.
    """
    return _answers({"topology": topology, "strategy": strategy, **options}, (workload, inputs, loss), one=False)


class Sweep(list[dict[str, Any]]):
    """The rows of a sweep: the values of the options that vary, figures in SI units, the error of what is refused."""

    def to_dataframe(self) -> Any:
        """Return the rows as a pandas DataFrame; raises MissingDependency if pandas is not installed."""
        if find_spec("pandas") is None:
            raise MissingDependency("to_dataframe needs pandas; pip install pandas")
        return later("pandas:DataFrame")(list(self))


def sweep(topology: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], **options: object) -> Sweep:
    """Answer one question at every combination of the values of options that are lists.

    ``sweep(topology=["dgx-h100", "dgx-a100-80gb"], workload="llama3-8b", parallel="fsdp", batch=[1, 2, 4])`` gives
    six rows, the last option varying fastest.

    Returns
    -------
    Sweep
        A list of dicts: each option that varies, ``time_s`` with the ends of its band (``low_s``, ``high_s``), of a
        step ``samples_per_s``, ``memory_bytes``, ``fits``, of an exchange ``busbw_Bps``; ``bound_by``;
        ``counts_software``, false where exchanges are on bare links; ``error``, the reason where a combination is
        refused; ``question``, the command that asks it.

    Raises
    ------
    InputError
        If an option is unknown, no option varies, or every combination is refused.
    """
    given = {"topology": topology, **options}
    several = {name: list(value) for name, value in given.items() if isinstance(value, list | tuple | range)}
    if not several or not all(several.values()):
        raise InputError("sweep needs an option with several values, for example batch=[1, 2, 4]")
    texts = {name: [getattr(_written({name: each}), name) for each in values] for name, values in several.items()}
    fixed = _written({name: value for name, value in given.items() if name not in several})
    try:
        rows = later("simulator.cli.sweep_command:swept_rows")(fixed, texts)
    except InputError as error:
        raise _in_python(error) from None
    if all(row["error"] for row in rows):
        raise InputError([Fault(text) for text in dict.fromkeys(row["error"] for row in rows)])
    _warn(note for row in rows for note in row["warnings"])
    each = zip(rows, product(*several.values()), strict=True)
    return Sweep([{**row, **dict(zip(several, values, strict=True))} for row, values in each])


def _answers(options: Mapping[str, object], computed: _Computed, *, one: bool) -> list[Answered]:
    """Return the answers of the command line; *one*: an exchange without a strategy is NCCL's."""
    name, source = _workload(*computed, options)
    written = _written({**options, "workload": name})
    try:
        written, notes = with_launch(written)
        _warn(notes)
        check_read(written)
        if one and written.strategy is None and written.kind == "exchange":
            written = written.but(strategy="nccl")
        _warn(software_notes(written.nccl))
        session = Session()
        if source is not None:
            session.networks[written.what] = source
        found = answers(written, session)
        _warn(found.notes)
        return list(found.results)
    except InputError as error:
        raise _in_python(error) from None


def _in_python(error: InputError) -> InputError:
    said = partial(spelt, door="python")
    return error.changed(lambda at: replace(at, message=said(at.message), file=said(at.file)))


def _workload(
    workload: object, inputs: object, loss: Callable[[Any], Any] | None, options: Mapping[str, object]
) -> tuple[str | None, NetworkSource | None]:
    """Return the command line's name of *workload*, and its network if it is a module; raises InputError."""
    if workload is _DEFAULT and inputs is None and loss is None:
        return None, None
    if isinstance(workload, bool) or workload is None:
        raise InputError(f"workload: must be a network, a size, or a torch.nn.Module; got {workload!r}")
    if isinstance(workload, int | float):
        return f"bytes:{workload!r}B", None
    if isinstance(workload, os.PathLike):
        workload = os.fspath(workload)
    if isinstance(workload, str):
        if inputs is not None or loss is not None:
            raise InputError("inputs and loss: are for a torch.nn.Module as workload")
        is_size = re.fullmatch(r"\s*\d[\d.e+]*\s*[A-Za-z]+\s*", workload) is not None
        return f"bytes:{workload.strip()}" if is_size else workload, None
    if any(base.__module__.startswith("torch.nn.modules.module") for base in type(workload).__mro__):
        from simulator.workload.torch_import.trace import network_of_module

        training = options.get("mode", "train") != "inference"
        source = NetworkSource(*network_of_module(workload, inputs, loss, training=training))
        return source.text, source
    raise InputError(f"workload: must be a network, a size, or a torch.nn.Module; got a {type(workload).__name__}")


def _written(options: Mapping[str, object]) -> CommandOptions:
    faults: list[Fault] = []
    said: dict[str, Any] = {"quiet": True}
    for name, value in options.items():
        if name not in _OPTIONS:
            option = name.replace("_", "-")
            hint = nearest(name, _OPTIONS)
            if here := _SPELT.get(option):  # the command line spells an argument so
                hint = f"--{option} is {here}={'False' if option.startswith('no-') else ''} here"
            faults.append(Fault(f"{one_line(name, 60)}: no such option; {hint}"))
        elif value is not None:
            try:
                said[name] = _text(name, value)
            except TypeError as error:
                faults.append(Fault(f"{name}: must be {error}; got {one_line(repr(value), 60)}"))
    if faults:
        raise InputError(faults)
    return CommandOptions(**said)


def _text(name: str, value: object) -> object:
    option = _OPTIONS[name]
    is_switch = isinstance(option.default, bool)
    if is_switch or isinstance(value, bool):
        if not (is_switch and isinstance(value, bool)):
            raise TypeError("True or False" if is_switch else "text or a number")
        return value
    if option.several:
        if isinstance(value, Mapping):
            value = [f"{key}={each}" for key, each in value.items()]
            value = value if name == "sizes" else [",".join(value)]
        each_of = [value] if isinstance(value, str) else value
        if not isinstance(each_of, list | tuple) or not all(isinstance(each, str) for each in each_of):
            raise TypeError("text, a list of texts, or a dict")
        return tuple(each_of)
    if option.listed and isinstance(value, list | tuple | range) and value:
        return ",".join(str(_text(name, each)) for each in value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if option.version and isinstance(value, float):
        raise TypeError(f'text, as a number has no last zero: write {name}="{option.version}"')
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if name == "topology" and not isinstance(value, str):
        raise TypeError("a name or a path")
    if not isinstance(value, str | int | float):
        raise TypeError("text or a number")
    return str(value)


def _warn(notes: Iterable[str]) -> None:
    for note in first_of(notes):
        warnings.warn(spelt(note, "python"), stacklevel=3)
