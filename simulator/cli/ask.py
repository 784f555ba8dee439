"""The entry point of ``simulate``, which selects the command for the question."""

from __future__ import annotations

from simulator.cli.options import software_notes
from simulator.cli.output import show, warn
from simulator.cli.written import Written, check_read, command


def run(written: Written) -> None:
    """Answer the question in *written*.

    Raises TopocastError if the input cannot be used or the run fails.  Nothing has been printed or partly written then,
    except that a step that does not fit in memory raises after its output.
    """
    if written.launch is not None:
        from simulator.cli.launch_line import with_launch

        written, notes = with_launch(written)
        warn(written, notes)
    check_read(written)
    warn(written, software_notes(written.nccl))
    if written.show_options:
        show([command(written)])
        return
    if written.kind == "single":
        from simulator.cli.single_command import run_single

        run_single(written)
    elif written.kind == "program":
        from simulator.cli.program_command import run_program_command

        run_program_command(written)
    elif written.kind == "step":
        from simulator.cli.step_command import run_steps

        run_steps(written)
    else:
        from simulator.cli.exchange_command import run_exchange

        run_exchange(written)
