"""What commands of ``validate`` have in common: their options, and what stands below their help."""

from __future__ import annotations

from typing import Annotated, Any

import typer

__all__ = [
    "CHECK_EPILOG",
    "EPILOG",
    "Calibration",
    "Debug",
    "Json",
    "Quiet",
    "Text",
    "Texts",
    "Trust",
    "argument",
    "option",
]

EPILOG = (
    "Results go to standard output, everything else to standard error. "
    "Exit codes: 0 ok, 1 the run failed, 2 usage or input, 4 an optional dependency is missing."
)
CHECK_EPILOG = EPILOG.replace("2 usage or input,", "2 usage or input, 3 slower than healthy logs are,")
Text = str | None
Texts = list[str] | None  # of an option that may be repeated


def argument(metavar: str, text: str) -> Any:
    """Return an argument that help calls *metavar* and explains by *text*."""
    return typer.Argument(metavar=metavar, help=text)


def option(metavar: str, text: str, *names: str) -> Any:
    """Return an option whose value help calls *metavar* and explains by *text*; of the parameter's name if not said."""
    return typer.Option(*names, metavar=metavar, help=text)


Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing on standard error but errors.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document; errors are fractions.")]
Trust = Annotated[str, option("A,B", "Grades that count; others are predicted only.")]
Calibration = Annotated[Text, option("FILE", "Use what validate calibrate wrote.")]
