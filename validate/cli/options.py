"""What commands of ``validate`` have in common: their options, and what stands below their help."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["EPILOG", "Debug", "Json", "Quiet"]

EPILOG = (
    "Results go to standard output, everything else to standard error. "
    "Exit codes: 0 ok, 1 the run failed, 2 usage or input, 4 an optional dependency is missing."
)
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing on standard error but errors.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document; errors are fractions.")]
