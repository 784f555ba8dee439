"""From the options of ``simulate`` to the command that answers the question."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.api.session import Session
from simulator.cli.options import software_notes
from simulator.cli.output import Answers, Asked, warn
from simulator.cli.written import CommandOptions, check_read, shell_command
from simulator.console import later

if TYPE_CHECKING:
    from simulator.questions.options import SamplesOption
    from simulator.questions.step import StepQuestion
    from simulator.results.training import TrainingResult


_ANSWERS = {
    "single": later("simulator.cli.single_command:answer_singles"),
    "program": later("simulator.cli.program_command:answer_programs"),
    "step": later("simulator.cli.step_command:answer_steps"),
    "exchange": later("simulator.cli.exchange_command:answer_exchanges"),
}


class _Brief(Session):
    """Answers steps without advice, which takes longer than they do themselves."""

    def advised(self, question: StepQuestion, samples: SamplesOption = "batch") -> TrainingResult:
        del samples
        return self.step(question)


def ask(written: CommandOptions) -> Asked:
    """Return the question in *written*; raises InputError for options that cannot be read or are not read."""
    if written.launch is not None:
        from simulator.cli.launch_line import with_launch

        written, notes = with_launch(written)
        warn(written, notes)
    check_read(written)
    warn(written, software_notes(written.nccl))
    if written.show_options:
        return Asked(
            CommandOptions(topology=written.topology), lambda _: Answers(lines=lambda _: [shell_command(written)])
        )
    return Asked(written, lambda written: answers(written, Session()), brief=lambda written: answers(written, _Brief()))


def answers(written: CommandOptions, session: Session) -> Answers:
    """Return the answers to *written*; raises TopocastError. *session* may already know some machines or networks."""
    found: Answers = _ANSWERS[written.kind](written, session)
    return found
