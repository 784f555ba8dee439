"""``--emit``: steps as launch lines of other programs; the command that repeats a row of ``simulate best``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulator.api.session import Session
from simulator.cli.options import parse_choice, refuse
from simulator.cli.output import Answers
from simulator.cli.step_questions import ask_steps
from simulator.cli.written import CommandOptions, shell_command
from simulator.errors import InputError, refused
from simulator.launch.emit.emitted import EMITTERS, Emitter, emitted
from simulator.launch.emit.parts import Emission, Ranks
from simulator.questions.layout import parse_layout
from simulator.questions.step import StepQuestion
from simulator.search.space import Candidate
from simulator.spelling import spelt

_REST = "add data, tokenizer, learning rate and the number of steps"


def answer_emit(written: CommandOptions) -> Answers:
    """Return the launch line of the step in *written*; raises InputError for what has none."""
    framework = parse_choice("emit", written.emit or "", EMITTERS)
    files = {name: getattr(written, name[2:]) is not None for name in ("--report", "--trace", "--plot", "--chakra")}
    refuse(files, "shows an answer, and --emit prints a launch line; leave one of the two out")
    session, questions = ask_steps(replace(written, emit=None))
    if len(questions) > 1:
        raise refused("emit", "is of one machine, layout, strategy and overlap; name one of each", framework)
    found = emitted_on(session, questions[0], framework)
    return Answers(
        lines=lambda _: [*spelt(found.text, "command").splitlines(), f"# {_REST}"],
        document=lambda: emission_document(found, framework),
    )


def emission_document(found: Emission, framework: Emitter | None) -> dict[str, object]:
    """Return *found* as plain data."""
    return {
        "framework": framework,
        "line": found.line or None,
        "files": found.files,
        "not_said": [spelt(why, "command") for why in found.cannot],
    }


def emitted_on(session: Session, question: StepQuestion, framework: Emitter) -> Emission:
    """Return the launch line of *question*; raises InputError for machines with unlike numbers of its GPUs."""
    gpus = question.gpus or (0,)
    hosts = session.group(question.where, gpus).by_host().values()
    if len({len(each) for each in hosts}) > 1:
        raise refused("emit", "is of as many GPUs on each machine", framework)
    listed = gpus if len(hosts) == 1 and tuple(gpus) != tuple(range(len(gpus))) else ()
    return emitted(question, Ranks(len(hosts), len(next(iter(hosts))), tuple(listed)), framework)


def emitted_or_why(session: Session, question: StepQuestion, framework: Emitter) -> Emission:
    """Return the launch line of *question*; where it has none, an empty one that says why."""
    try:
        return emitted_on(session, question, framework)
    except InputError as error:
        return Emission([], [], lacks={error.spelt("command"): True})


def check_emitted(session: Session, question: StepQuestion, framework: Emitter) -> None:
    """Raise InputError if *question* has no launch line, and for a reason that is the same whatever its layout."""
    why = set()
    for words in ("dp", "fsdp"):
        try:
            emitted_on(session, replace(question, layout=parse_layout(words)), framework)
        except InputError as error:
            why.add(str(error))
            last = error
        else:
            return
    if len(why) == 1:
        raise last


def row_command(written: CommandOptions, way: Candidate) -> str:
    """Return the command that simulates *way*, found by the search of *written*."""
    views = written.gradient_as_bucket_view and way.layout.has_replicas
    return shell_command(
        replace(
            written,
            parallel=(way.layout.words,),
            micro_batch=str(way.micro_batch),
            gradient_as_bucket_view=views,
            json=False,
            quiet=False,
            recompute=way.recompute == "full",
            recompute_attention=way.recompute == "selective",
        )
    )


def launch_rows(questions: Sequence[StepQuestion], found: Sequence[Emission]) -> list[str]:
    """Return the launch lines *found* of *questions*, or why there are none."""
    lines = []
    for number, (question, each) in enumerate(zip(questions, found, strict=True), start=1):
        text = spelt(each.text, "command") if each.program else f"# none: {each.cannot[0]}"
        lines += ["", f"# {number}: {question.layout.words}", *text.splitlines()]
    return [*lines, f"# {_REST}"]
