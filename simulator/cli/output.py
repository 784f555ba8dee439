"""The outputs of commands: printed, written and drawn (:class:`Asked`), or kept within a process (:func:`captured`)."""

import contextlib
import io
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from simulator.api.session import Session
from simulator.cli import read
from simulator.cli.options import check_outputs, software_notes
from simulator.cli.written import DECLARED, CommandOptions, check_read, shell_command
from simulator.console import Style, choose_style, later, printable
from simulator.console.run import INTERRUPTED, guarded, say
from simulator.errors import first_of, one_line, spelt
from simulator.records import dataclass, replace
from simulator.results import to_json
from simulator.topology.catalogue import part_figures

if TYPE_CHECKING:
    from simulator.questions.options import SamplesOption
    from simulator.questions.step import StepQuestion
    from simulator.results.training import TrainingResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What a command found, in each form that users read.

    ``document`` is that of ``--json``, ``lines`` are the text, and ``remarks`` stand beside it on standard error.
    ``trace`` is a Chrome trace, with the name of what it shows where that is not obvious; ``chakra`` returns the files
    of a Chakra trace, ``draw`` a figure (svg, png or pdf), and ``best`` is the result whose machine a page draws.
    ``check`` raises SimulationError for answers that are no success, after they have been shown.
    ``notes`` say what of the question is not simulated.
    """

    lines: Callable[[Style], list[str]]
    document: Callable[[], dict[str, Any]] = dict
    results: Sequence[Any] = ()
    best: Any = None
    notes: Sequence[str] = ()
    remarks: Callable[[Style], list[str]] = lambda _: []
    trace: Callable[[], tuple[str, str]] = lambda: ("", "")
    chakra: Callable[[], dict[str, bytes]] = dict
    draw: Callable[[str], bytes] = lambda _: b""
    check: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Asked:
    """A command as its options say it: called, it answers and prints.

    ``brief`` answers without advice.  ``command`` asks it again; empty if ``written`` says all.  ``launch_notes`` say
    what of a launch line is not simulated; the document and the page have them too.
    """

    written: CommandOptions
    answer: Callable[[CommandOptions], Answers]
    brief: Callable[[CommandOptions], Answers] | None = None
    command: str = ""
    launch_notes: Sequence[str] = ()

    def answered(self) -> Answers:
        """Return the answers, and write the requested files, each of which appears whole or not at all."""
        written = self.written
        groups = None if written.chakra is None else f"{written.chakra}.json"
        wanted = {"--trace": written.trace, "--plot": written.plot, "--report": written.report, "--chakra": groups}
        check_outputs({"--topology": written.topology, **wanted})
        with ExitStack() as stack:
            files = {
                option: stack.enter_context(later("simulator.console.files:OutputFile")(option, path))
                for option, path in wanted.items()
                if path is not None
            }
            found = self.answer(written)
            if self.launch_notes:
                document = found.document
                found = replace(found, document=lambda: document() | {"launch_notes": list(self.launch_notes)})
            if (file := files.get("--trace")) is not None:
                text, which = found.trace()
                file.write(text.encode("utf-8"))
                tell(written, f"wrote the trace{which} to {file.shown}")
            if (file := files.get("--chakra")) is not None:
                ends, another = found.chakra(), later("simulator.console.files:OutputFile", "--chakra")
                others = {e: stack.enter_context(another(f"{written.chakra}{e}")) for e in ends if e != ".json"}
                for end, each in {**others, ".json": file}.items():
                    each.write(ends[end])
                tell(written, f"wrote the Chakra trace to {one_line(written.chakra)}.0.et and so on")
            if (file := files.get("--plot")) is not None:
                file.write(found.draw(str(written.plot).lower().rsplit(".", 1)[1]))
                tell(written, f"wrote the plot to {file.shown}")
            if (file := files.get("--report")) is not None:
                file.write(_page(found, self.command or shell_command(written), self.launch_notes).encode("utf-8"))
                tell(written, f"wrote the page to {file.shown}")
        return found

    def __call__(self) -> None:
        """Answer and print; raises TopocastError, also after answers that are no success."""
        found = self.answered()
        if self.written.json:
            sys.stdout.write(to_json(found.document()))
        else:
            style = choose_style(sys.stdout)
            for line in found.remarks(style):
                tell(self.written, line)
            if hasattr(sys.stdout, "reconfigure"):
                sys.stdout.reconfigure(errors="backslashreplace")
            sys.stdout.write(printable("\n".join(found.lines(style)) + "\n", sys.stdout))
        found.check()


def _page(found: Answers, command: str, notes: Sequence[str]) -> str:
    from reports.page import Page, page_of
    from simulator.cli.table import Collected, page_blocks

    style = Collected()
    told = [line for note in notes for line in style.wrap(f"launch line: {note}", hang=2)]
    blocks = page_blocks([*found.lines(style), *([""] if told else []), *told])
    figure = found.draw("svg") if find_spec("matplotlib") is not None else b""
    nodes = found.best.timeline.machine.nodes if found.best is not None else ()
    names = dict.fromkeys(node.part_name for node in nodes)
    sources = [(name, *figures) for name in names for figures in part_figures(name)]
    return page_of(Page(blocks, command, found.best, found.trace()[0], figure, sources))


def tell(written: CommandOptions, line: str) -> None:
    """Print a remark, unless ``--quiet``."""
    if not written.quiet:
        say(spelt(line, "command"))


def warn(written: CommandOptions, notes: Iterable[str]) -> None:
    """Print the first remarks on options that are not simulated, one line each, without repetitions."""
    for note in first_of(notes):
        tell(written, f"warning: {note}")


class CommandOutput(NamedTuple):
    """The exit status of a command, its answer as in ``--json``, and its remarks or errors, a line each."""

    status: int
    document: dict[str, Any] | None
    said: list[str]


def captured(arguments: Sequence[str], *, brief: bool = False) -> CommandOutput:
    """Answer ``simulate`` with *arguments*, and write its files; *brief*: without advice. Interrupts are passed on."""
    found: list[dict[str, Any]] = []

    def answer() -> int:
        asked = read(arguments)
        if isinstance(asked, Asked):
            if brief and asked.brief is not None:
                asked = replace(asked, answer=asked.brief)
            answers = asked.answered()
            found.append(answers.document())
            answers.check()
        return 0

    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        status = guarded("simulate", answer)
    if status == INTERRUPTED:
        raise KeyboardInterrupt
    lines = [line.removeprefix("simulate: ") for line in said.getvalue().splitlines() if line.strip()]
    return CommandOutput(status, found[0] if found else None, lines)


class Brief(Session):
    """Answers steps without advice, which takes longer than they do themselves."""

    def advised(self, question: "StepQuestion", samples: "SamplesOption" = "batch") -> "TrainingResult":
        """Return the answer to *question*, as :meth:`step` does."""
        del samples
        return self.step(question)


def ask(written: CommandOptions) -> Asked:
    """Return the question in *written*; raises InputError for options that cannot be read or are not read."""
    notes: Sequence[str] = ()
    if written.launch is not None:
        written, notes = later("simulator.cli.launch_line:with_launch")(written)
        warn(written, notes)
    check_read(written)
    warn(written, software_notes(written.nccl))
    if written.show_options:
        shown = Answers(lines=lambda _: [shell_command(written)])
        return Asked(CommandOptions(topology=written.topology), lambda _: shown)
    if written.emit is not None:
        return Asked(written, later("simulator.cli.launch_line:answer_emit"))
    brief, full = (lambda written, of=of: answers(written, of()) for of in (Brief, Session))
    return Asked(written, full, brief=brief, launch_notes=notes)


def answers(written: CommandOptions, session: Session) -> Answers:
    """Return the answers to *written*; raises TopocastError. *session* may already know some machines or networks."""
    found: Answers = later(f"simulator.cli.{DECLARED['answers'][written.kind]}")(written, session)
    return found
