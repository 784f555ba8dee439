"""The options that ``options.yaml`` declares: as parameters of commands, as text, and which question reads which."""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import click

from simulator.errors import Fault, InputError, mention, one_line, spelt, word_of
from simulator.records import dataclass, own_data, replace

DECLARED: Mapping[str, Any] = own_data("simulator.cli", "options.yaml")
HELP: Mapping[str, Any] = {"help_option_names": ["-h", "--help"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What help shows of an option, and who reads it; ``options.yaml`` explains each field."""

    help: str
    value: str = ""
    default: Any = None
    several: bool = False
    group: str = ""
    complete: str = ""
    also: tuple[str, ...] = ()
    short: str = ""
    read_by: tuple[str, ...] = ()
    says_too: str = ""
    listed: bool = False
    usual: str = ""
    version: str = ""
    is_argument: bool = False
    is_required: bool = False
    word: str = ""


def declared_option(told: Mapping[str, Any], **more: Any) -> Option:
    """Return the option that *told* declares, with *more* said of it."""
    usual = () if "several" in told else None if "value" in told else False
    return Option(**{"default": usual, **told, **more})


def declared(told: Mapping[str, Any], names: Iterable[str] = ()) -> dict[str, Option]:
    """Return the options *names*, or all of *told*: as that declares them, or a question's, some with its help."""
    found = {}
    for name in names or told:
        each = told.get(name)
        if isinstance(each, dict):
            found[name] = declared_option(each)
        else:
            found[name] = OPTIONS[name] if each is None else replace(OPTIONS[name], help=each, usual="")
    return found


class Argument(click.Argument):
    """An argument with help: click's own have none before 8.5."""

    def __init__(self, name: str, said: Option, **how: Any) -> None:
        super().__init__([name], said.is_required, nargs=-1 if said.several else 1, **how)
        self.record = self.human_readable_name, said.help


class CommandWithArguments(click.Command):
    """A command with its arguments above its options in the help."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the arguments, and the options."""
        if records := [each.record for each in self.params if isinstance(each, Argument)]:
            with formatter.section("Positional arguments"):
                formatter.write_dl(records)
        super().format_options(ctx, formatter)


def command_of(
    name: str,
    answer: Callable[..., Any],
    options: Mapping[str, Option],
    kind: type[click.Command] = CommandWithArguments,
    **told: Any,
) -> click.Command:
    """Return the command *name* that calls *answer* with *options*; ``debug``, for errors, is not passed on."""

    def run(**given: Any) -> Any:
        given.pop("debug", None)
        return answer(**given)

    settings = {**HELP, **(told.pop("context_settings", None) or {})}
    params = [_parameter(*each) for each in options.items()]
    return kind(name, callback=run, params=params, context_settings=settings, **{"epilog": DECLARED["epilog"], **told})


def _parameter(name: str, said: Option) -> click.Parameter:

    def complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        from simulator.cli.complete import completed

        return completed(incomplete, said.complete, said.also, listed=said.listed)

    how: dict[str, Any] = {"metavar": said.value or None, "shell_complete": complete if said.complete else None}
    if said.is_argument:
        how["metavar"] = said.value if said.is_required else f"[{said.value}]{'...' * said.several}"
        return Argument(name, said, **how)
    word = said.word or word_of(name)
    words = [f"{word}/--no-{word[2:]}" if said.default is True else word, said.short]
    if isinstance(said.default, bool):
        how |= {"is_flag": True, "default": said.default}
    elif not said.several:
        how |= {"default": said.default, "required": said.is_required}
    shown = said.usual or bool(said.default)
    return click.Option([name, *filter(None, words)], multiple=said.several, help=said.help, show_default=shown, **how)


_EXCHANGE, _STEP, _SINGLE, _PROGRAM = "exchange", "step", "single", "program"
OPTIONS: Mapping[str, Option] = {
    name: declared_option({"read_by": group.get("read_by", ()), **told}, group=title)
    for title, group in DECLARED["groups"].items()
    for name, told in group["options"].items()
}
DEFAULTS: Mapping[str, Any] = {
    name: each.default for name, each in OPTIONS.items() if name not in ("completion", "debug", "version")
}
"""What holds of each option on the question and its output where nothing is said."""


class CommandOptions(SimpleNamespace):
    """All options on the question and its output, as text, switches, or several texts; raises TypeError for others."""

    def __init__(self, **said: Any) -> None:
        if unknown := said.keys() - DEFAULTS.keys():
            raise TypeError(f"no such options: {', '.join(sorted(unknown))}")
        super().__init__(**{**DEFAULTS, **said})

    def but(self, **said: Any) -> "CommandOptions":
        """Return these options with what is *said* in place of their own."""
        return CommandOptions(**{**vars(self), **said})

    @property
    def what(self) -> str:
        """The workload; where none is named, the default."""
        return "resnet50" if self.workload is None else str(self.workload)

    @property
    def kind(self) -> str:
        """The kind of question: a single operation or a program (by workload), a step (by batch), or an exchange."""
        from simulator.workload.parse import OPERATIONS  # neither help nor completion asks for the kind

        scheme, colon, _ = self.what.partition(":")
        if colon and scheme in OPERATIONS:
            return _SINGLE
        if self.what.endswith(".et"):
            return _PROGRAM
        if self.what.endswith((".yaml", ".yml")):
            from simulator.programs import is_program

            if is_program(self.what):
                return _PROGRAM
        return _STEP if self.batch is not None or self.global_batch is not None else _EXCHANGE


GROUPS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    title: (group["example"], (*group["options"], *(["help"] if title == "Output" else [])))
    for title, group in DECLARED["groups"].items()
}
"""Groups of options by title, each with an example and its options."""
_MENTION = re.compile(r"\{(\w+) ?(\S*?)\}")
_UNREAD: Mapping[str, Mapping[str, str]] = {
    asked: {kind: _MENTION.sub(lambda at: mention(at[1], at[2]), why) for kind, why in reasons.items()}
    for asked, reasons in DECLARED["unread"].items()
}


def written_of(given: Mapping[str, Any], *apart: str) -> tuple[CommandOptions, dict[str, Any]]:
    """Return the options *given* of the question, and the command's own: *apart*, and those that no question has."""
    own = {name: value for name, value in given.items() if name in apart or name not in OPTIONS}
    asked = {name: value for name, value in given.items() if name not in own}
    for name, value in asked.items():
        if OPTIONS[name].several:
            asked[name] = (value,) if isinstance(value, str) else tuple(value or ())
    return CommandOptions(**asked), own


def option_spelt(name: str) -> str:
    """Return the command-line option of the field *name*, as a switch that differs from its default."""
    return spelt(_given(name), "command")


def _given(name: str) -> str:
    return mention(name, False) if OPTIONS[name].default is True else mention(name)


def check_read(written: CommandOptions) -> None:
    """Raise InputError for options that were given but that nothing would read."""
    said = [name for name, usual in DEFAULTS.items() if getattr(written, name) != usual]
    faults = []
    for name in said:
        readers, other, why = OPTIONS[name].read_by, OPTIONS[name].says_too, ""
        if readers and written.kind not in readers:
            is_size = written.kind == _EXCHANGE and written.what.startswith(("bytes:", "sweep:"))
            asked = "size" if is_size and readers[0] == _STEP else written.kind
            why = _UNREAD[asked][readers[0]].replace("WHAT", one_line(written.what, 60))
            why += _UNREAD["operator"].get(name, "") if asked == _SINGLE else ""
        elif other in said:
            why = f"{mention(other)} says it already; give one of the two"
        faults += [Fault(f"{_given(name)}: {why}")] if why else []
    if faults:
        raise InputError(faults)


def changed_command(written: CommandOptions, change: str) -> str:
    """Return the shell command of *written* with the options in *change* in place of its own."""
    words = change.split()
    kept = {name: usual for name, usual in DEFAULTS.items() if option_spelt(name) in words}
    names = {word.partition("=")[0] for word in words}
    kept["sizes"] = tuple(each for each in written.sizes if each.partition("=")[0] not in names)
    return f"{shell_command(written.but(**kept))} {change}"


def shell_command(written: CommandOptions, command: Sequence[str] = (), **more: Any) -> str:
    """Return the shell command that gives the options in *written*, and *more* of the *command*'s own."""
    words = ["simulate", *command]
    for name, value in (*vars(written).items(), *more.items()):
        if value in (DEFAULTS.get(name), None) or name in ("launch", "show_options", "report", "quiet"):
            continue
        word = f"--{name.replace('_', '-')}" if name in more else option_spelt(name)
        if isinstance(value, bool):
            words.append(word)
        else:
            words += [part for each in (value if isinstance(value, tuple) else (value,)) for part in (word, each)]
    return shlex.join(words)
