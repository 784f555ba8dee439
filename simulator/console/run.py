"""Run a command line: one line per fault, an exit code, no traceback.

Exit codes: 0 success; 1 the run failed; 2 wrong usage or input; 3 outside the requested tolerance; 4 an optional
dependency is missing; 130 interrupted.  A reader that closes the pipe early (``| head``) is not an error.  Standard
error may be closed or full: what is said there changes neither the answer nor the exit status.
"""

import atexit
import gc
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NoReturn

from simulator.errors import InputError, TopocastError, escaped, few, nearest, one_line

if TYPE_CHECKING:
    import click


_PLUGINS, _SET_HERE = "PYDANTIC_DISABLE_PLUGINS", "TOPOCAST_SET"
_WATCHERS = frozenset({"bdb", "cProfile", "coverage", "profile", "trace"})
"""Modules that watch a program and write what they saw when it ends; some leave no trace function."""


def collect_rarely() -> None:
    """Look for cycles rarely: large plans live on, and looking takes a fourth of a command."""
    gc.set_threshold(300_000, 20, 20)


def run_process(run: Callable[[], int]) -> NoReturn:
    """End this process with the status of *run*, which is all that it does."""
    collect_rarely()
    if _PLUGINS not in os.environ:
        os.environ |= {_PLUGINS: "__all__", _SET_HERE: _PLUGINS}
    status = run()
    if sys.gettrace() or sys.getprofile() or _WATCHERS & sys.modules.keys():
        sys.exit(status)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.flush()
    os._exit(status)


def environment_given() -> dict[str, str]:
    """Return the environment for a process of the user's own code: without what :func:`run_process` set."""
    ours = {_SET_HERE, os.environ.get(_SET_HERE)}
    return {name: value for name, value in os.environ.items() if name not in ours}


def say(line: str) -> None:
    """Print *line* on standard error, if that can be written."""
    try:
        if sys.stderr is not None:
            sys.stderr.write(escaped(line) + "\n")
            sys.stderr.flush()
    except (OSError, ValueError):
        abandon(sys.stderr)


def abandon(stream: Any) -> None:
    """Redirect *stream* to the null device, so that closing it at exit cannot fail again."""
    with suppress(OSError, ValueError, AttributeError):
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, stream.fileno())
        os.close(sink)


FAILED = 1
INTERRUPTED = 130
_NEEDS_VALUE = "requires an argument"  # part of Click's message about an option without a value


def error_lines(program: str, error: TopocastError) -> list[str]:
    """Return one line for each fault; those without a place in a file start with *program*."""
    if isinstance(error, InputError):
        said = [(fault, fault.spelt("command")) for fault in error.faults]
        lines = [line if fault.file else f"{program}: {one_line(line, 400)}" for fault, line in said]
        return [*lines, f"{program}: and {error.more} more"] if error.more else lines
    return [f"{program}: {one_line(error.spelt('command'), 400)}"]


def run_app(
    app: "click.Command", program: str, arguments: Sequence[str] | None = None, modules: Mapping[str, str] | None = None
) -> int:
    """Run *app* with *arguments*, by default those of the process, and return the exit code.

    *modules* holds the modules that have the commands of *program* as ``app``, by the first word that selects each; ""
    is the one without such a word.  A word similar to one of these gets it as a hint, and an option of another command
    that command.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if sys.stdout is None:
        say(f"{program}: standard output is closed; send it to /dev/null if it is not wanted")
        return FAILED

    def answered() -> int:
        asked = read_app(app, program, given, modules or {})
        found = asked() if callable(asked) else asked
        return found if isinstance(found, int) else 0

    try:
        status = guarded(program, answered, debug="--debug" in given)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        abandon(sys.stdout)
        return 0
    except OSError as error:
        abandon(sys.stdout)
        say(f"{program}: cannot write to standard output: {error.strerror}")
        return FAILED
    return status


def guarded(program: str, action: Callable[[], int], *, debug: bool = False) -> int:
    """Return the status of *action*; what it raises is said, unless *debug*."""
    if debug:
        return action()
    try:
        return action()
    except BrokenPipeError:
        raise
    except TopocastError as error:
        for line in error_lines(program, error):
            say(line)
        return error.exit_status
    except KeyboardInterrupt:
        say(f"{program}: interrupted")
        return INTERRUPTED
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None:
            raise
        say(f"{program}: {type(error).__name__}: {one_line(error, 200)} (--debug shows where)")
        return FAILED


def read_app(app: "click.Command", program: str, given: list[str], modules: Mapping[str, str]) -> object:
    """Return what the command of *app* with the arguments *given* returns: its exit status, or what it asks.

    Raises InputError for wrong usage, and what the command raises; *modules* are those of :func:`run_app`.
    """
    import click

    asked: Any = app
    for word in (word for word in given if not word.startswith("-")):
        asked = getattr(asked, "commands", {}).get(word, asked)
    _refuse_misused(asked, given)
    try:
        with app.make_context(program, list(given)) as context:
            return app.invoke(context)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.NoSuchOption as error:
        by_words: dict[str, Any] = {}
        for other in [import_module(module).app for module in dict.fromkeys(modules.values())] or [app]:
            within = getattr(other, "commands", {})
            by_words |= {f"{program} {name}": each for name, each in within.items()} or {program: other}
        raise InputError(_no_option(error.option_name, asked, by_words)) from None
    except click.UsageError as error:
        raise InputError(_usage_words(error, asked, [word for word in modules if word])) from None


def _options(command: Any) -> dict[str, Any]:
    return {name: p for p in command.params for name in [*p.opts, *p.secondary_opts] if name.startswith("-")}


def _refuse_misused(command: Any, given: list[str]) -> None:
    options, seen = _options(command), set[str]()
    words = iter(takewhile(lambda word: word != "--", given))
    for word in words:
        name, said, _ = word.partition("=")
        parameter = options.get(name)
        if parameter is None or getattr(parameter, "is_flag", False):
            continue
        value = "" if said else next(words, "")
        if value.partition("=")[0] in {*options, "--help"}:
            raise InputError(f"{name} needs a value ({parameter.metavar}); got {value}")
        if name in seen and not parameter.multiple:
            raise InputError(f"{name} is given twice; once is enough")
        seen.add(name)


def _no_option(name: str, command: Any, commands: Mapping[str, Any]) -> str:
    shown = one_line(name, 60)
    if where := _having(name, commands):
        this = next((words for words, other in commands.items() if other.name == command.name), command.name)
        return f"{shown}: is an option of {where}, not of {this} (--help)"
    # Compared without the hyphens, which all options share.
    known = {option.lstrip("-") for each in commands.values() for option in _options(each) if option.startswith("--")}
    hint = nearest(name.lstrip("-"), known)
    if not hint.startswith("did you mean"):
        return f"{shown}: no such option (--help)"
    hint = hint.replace("'", "'--", 1)
    meant = hint.split("'")[1]
    of = "" if meant in _options(command) else f" It is an option of {_having(meant, commands)}"
    return f"{shown}: no such option; {hint}{of} (--help)"


def _having(option: str, commands: Mapping[str, Any]) -> str:
    having = [words for words, command in commands.items() if option in _options(command)]
    return few(having, 3) if len(having) > 3 else " and ".join(filter(None, [", ".join(having[:-1]), *having[-1:]]))


def _usage_words(error: "click.UsageError", command: Any, commands: Sequence[str]) -> str:
    import click

    message = error.message
    arguments = [p.metavar or p.name for p in command.params if p.param_type_name == "argument"]
    if isinstance(error, click.BadOptionUsage):
        said = f"{error.option_name} {'needs a value' if _NEEDS_VALUE in message else 'takes no value'}"
    elif isinstance(error, click.MissingParameter):
        said = f"{command.name} needs {' and '.join(arguments)}"
    elif unknown := re.match(r"No such command '(.*?)'\.", message, re.DOTALL):
        found = one_line(unknown[1], 60)
        said = f"'{found}' is not a command; {nearest(found, getattr(command, 'commands', ()))}"
    elif extra := re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", message, re.DOTALL):
        found, words = one_line(extra[1], 60), extra[1].split()
        hint = nearest(words[0], commands) if words and commands and not arguments else ""
        example = "; write for example --topology FILE" if "--topology" in _options(command) else ""
        said = f"'{found}' belongs to no option" + (f"; {hint}" if hint.startswith("did you mean") else example)
        if arguments:
            said = f"'{found}' is one too many; {command.name} takes one at a time"
    else:
        return one_line(message.rstrip("."), 200)
    return f"{said} (--help)"
