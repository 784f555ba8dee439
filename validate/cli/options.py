"""Options shared by the commands of ``validate``, and the text below their help."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from simulator.cli.option import EPILOG

CHECK_EPILOG = EPILOG.replace("2 usage or input,", "2 usage or input, 3 slower than healthy logs,")
Text = str | None
Texts = list[str] | None  # a repeatable option


def argument(metavar: str, text: str) -> Any:
    """Return an argument that help shows as *metavar*, described by *text*."""
    return typer.Argument(metavar=metavar, help=text)


def value(metavar: str, text: str, *names: str) -> Any:
    """Return an option whose value help shows as *metavar*, described by *text*.

    *names* default to one derived from the parameter's name.
    """
    return typer.Option(*names, metavar=metavar, help=text)


def flag(name: str, text: str) -> Any:
    """Return the switch *name*, described by *text*."""
    return typer.Option(name, help=text)


Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors on standard error.")]
Debug = Annotated[bool, flag("--debug", "Show the traceback of an error.")]
Jobs = Annotated[Text, value("COUNT", "Parallel processes.  [default: one for each core]")]
Json = Annotated[bool, flag("--json", "Print one JSON document; errors are fractions.")]
Trust = Annotated[str, value("A,B", "Trust grades that count in errors; others are only predicted.")]
Calibration = Annotated[Text, value("FILE", "Use a calibration that validate calibrate wrote.")]
