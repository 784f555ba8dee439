"""The exchange that ``validate run --strategy`` measures: ``simulate``'s options in, plain data out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simulator.api import Session
from simulator.cli.exchange_command import exchange_questions
from simulator.cli.options import refuse, wants_best
from simulator.cli.written import Written, check_read
from simulator.errors import InputError, one_line
from simulator.workload.parse import parse_workload
from validate.machine.run.strategies import exchanges_of

_PAYLOADS = ("bytes", "sweep")


def is_exchange(written: Written) -> bool:
    """Return whether *written* asks for an exchange alone, of bytes or with ``--strategy`` of a network's gradients."""
    scheme, colon, _ = written.what.partition(":")
    return written.kind == "exchange" and (written.strategy is not None or (bool(colon) and scheme in _PAYLOADS))


def ask_exchanges(written: Written, *, on_gpus: bool) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the exchanges to measure, one per size and strategy, and the reasons for strategies left out.

    Raises InputError if an option is invalid, no strategy fits, or one named by the user does not fit.
    """
    check_read(written)
    session = Session()
    refuse(
        {f"--gpus {one_line(written.gpus or '', 60)}": wants_best(written.gpus)}, "is simulate's; name the GPUs here"
    )
    questions, _ = exchange_questions(written, session)
    payload = parse_workload(written.what).in_type(questions[0].dtype)
    if len({question.where for question in questions}) > 1:
        raise InputError("--topology: one machine is measured, the one that this runs on")
    named = written.strategy not in (None, "all")
    found, left = [], []
    for size in payload.sizes:
        for question in questions:
            if question.collective in ("all-to-all", "send-recv"):
                raise InputError(
                    f"--collective {question.collective}: is measured by --only collectives, as torch does it"
                )
            if question.strategy == "nccl" and not on_gpus:
                why = "nccl is between GPUs, and the CPU is measured; gloo is what torch does there"
            else:
                try:
                    found += exchanges_of(session, [replace(question, size_bytes=float(size))])
                    continue
                except InputError as error:
                    why = one_line(error, 200)
            if named:
                raise InputError(f"--strategy: {why}")
            left.append(why)
    if not found:
        raise InputError("--strategy: none fits this machine")
    return found, list(dict.fromkeys(left))
