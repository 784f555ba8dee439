"""Which constants ``validate fit`` fits: what the columns of the tables say."""

from __future__ import annotations

import re
from collections.abc import Sequence

from simulator.errors import InputError, one_line
from validate.collectives.scorer import COLLECTIVES
from validate.operators.scorer import OPERATORS
from validate.score.csv_text import read_records
from validate.score.files import STDIN, read_bytes, shown_as
from validate.score.kind import recognise

__all__ = ["fit_tables"]


def fit_tables(
    files: Sequence[str],
    *,
    hold_out: Sequence[str] = (),
    trust: str | None = None,
    leave_one_out: bool = False,
    only: str | None = None,
    jobs: str = "1",
    as_json: bool = False,
    quiet: bool = False,
) -> None:
    """Fit the constants of collectives or those of operators; raises as the fits do, or InputError."""
    if not files:
        raise InputError("a table is needed, for example: validate fit collectives.csv")
    if STDIN in files:
        raise InputError("tables are read more than once; save standard input to a file first")
    if not re.fullmatch(r"0*[1-9][0-9]{0,2}", jobs.strip(), re.ASCII):
        raise InputError(f"--jobs: a number of processes such as 2 is needed; got '{one_line(jobs, 60)}'")
    kinds = {
        recognise(read_records(read_bytes(f), shown_as(f))[0].fields, (COLLECTIVES, OPERATORS)).name for f in files
    }
    if len(kinds) > 1:
        raise InputError("tables of collectives and of operators are fitted one after the other")
    if OPERATORS.name in kinds:
        from validate.fit.operators.command import fit_operators_command

        fit_operators_command(
            files,
            hold_out=hold_out,
            trust=trust or "A",
            leave_one_out=leave_one_out,
            only=only,
            jobs=int(jobs),
            as_json=as_json,
            quiet=quiet,
        )
        return
    if only is not None:
        raise InputError("--only is for tables of operators; these are of collectives")
    from validate.fit.nccl.command import fit_command

    fit_command(files, hold_out=hold_out, trust=trust or "A,B", leave_one_out=leave_one_out, as_json=as_json)
