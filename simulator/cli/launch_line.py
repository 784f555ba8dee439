"""``--launch``: another program's line as options; ``--emit``: steps as such lines (docs/decisions/console.md)."""

from collections.abc import Mapping, Sequence

from simulator.api.outcome import prefers_cudnn
from simulator.api.session import Session
from simulator.api.variants import OF_NCCL, choices, passed_over
from simulator.cli.options import parse_choice, refuse
from simulator.cli.output import Answers
from simulator.cli.step_questions import ask_steps
from simulator.cli.written import DEFAULTS, CommandOptions, shell_command
from simulator.errors import InputError, counted, few, mention, one_line, refused, spelt
from simulator.launch.emit.emitted import EMITTERS, Emitter, emitted
from simulator.launch.emit.parts import Emission, Ranks
from simulator.launch.launch import LaunchLine, read_launch
from simulator.launch.visible import written_gpus
from simulator.questions.checks import refuse_all
from simulator.questions.layout import parse_layout
from simulator.questions.step import StepQuestion
from simulator.records import replace
from simulator.search.space import Candidate
from simulator.topology.load import load_topology
from simulator.units import whole_number
from simulator.workload.zoo import FUSED
from simulator.workload.zoo.registry import find_entry, nearest_network

_NO_NETWORK = "the line names no network"


def with_launch(written: CommandOptions) -> tuple[CommandOptions, Sequence[str]]:
    """Return *written* with the options of its launch line, if any, and notes on what it says that is not simulated.

    Raises InputError if the line cannot be read or contradicts other options.
    """
    if written.launch is None:
        return written, ()
    own = _gpus_of(written)
    at_hand = whole_number(written.gpus or "")
    if at_hand is None and own is not None:
        at_hand = own * (whole_number(written.nodes or "") or 1)
    launch = read_launch(written.launch, at_hand, own)
    _check_named(written, launch)
    _place(written, launch, own)
    if "parallel" not in launch.options or at_hand == 1:
        launch.variables = {}  # all that is read of them is about exchanges
    followed = _choices(written, launch)
    launch.options |= {name: said for name, said in followed.items() if said is not True}
    changes: dict[str, object] = {}
    faults: list[str] = []

    def differs(name: str, own: object, said: object) -> None:
        faults.append(f"{mention(name, one_line(own, 60))}: {mention('launch')} says {said}; leave one of the two out")

    batch = ""
    if "global_batch" in launch.options:
        batch = mention("global_batch", launch.options["global_batch"])
        batch = f"{one_line(launch.batch, 60)}, which is {batch}" if launch.batch else batch
    for name, said in launch.options.items():
        ours = getattr(written, name)
        if name == "parallel":
            if not ours:
                changes[name] = (said,)
            elif len(ours) > 1 or parse_layout(ours[0]) != parse_layout(str(said)):
                differs(name, " ".join(ours), one_line(said, 60))
        elif ours == DEFAULTS[name]:
            changes[name] = said
        elif ours != said:
            differs(name, ours, batch if name == "global_batch" else one_line(said, 60))
    if written.batch is not None and batch:
        differs("batch", written.batch, batch)
    own_sizes = dict(text.partition("=")[::2] for text in written.sizes)
    for name, size in launch.sizes.items():
        if own_sizes.get(name, str(size)) != str(size):
            differs("sizes", f"{name}={own_sizes[name]}", one_line(f"{name}={size}", 60))
    refuse_all(faults)
    new = tuple(f"{name}={size}" for name, size in launch.sizes.items() if name not in own_sizes)
    asked = written.but(**changes, sizes=(*new, *written.sizes), launch=None)
    return asked, [*launch.notes, *_settings_notes(asked, launch), *_length_notes(written, launch)]


def _place(written: CommandOptions, launch: LaunchLine, own: int | None) -> None:
    """Add the machines and GPUs of *launch* to its options, as far as *own*, the GPUs of a machine, decides on them."""
    if launch.visible.gpus:
        _place_visible(written, launch, own)
    elif launch.each and own and launch.each < own and "gpus" not in launch.options:
        nodes = int(str(launch.options["nodes"]))
        launch.options["gpus"] = ",".join(f"{node * own}-{node * own + launch.each - 1}" for node in range(nodes))
    elif launch.whole and own and written.nodes is written.gpus is None:  # mpirun -np 16, on machines of 8
        name, number = ("gpus", launch.whole) if launch.whole < own else ("nodes", launch.whole // own)
        launch.options |= {name: str(number)} if number > 1 or name == "gpus" else {}


def _place_visible(written: CommandOptions, launch: LaunchLine, own: int | None) -> None:
    """Add the GPUs that *launch* shows to its options, of *own* a machine (None: unknown); raises InputError."""
    gpus, said, options = launch.visible.gpus, f"--launch: {launch.visible.said}", launch.options
    if own is not None and max(map(max, gpus)) >= own:
        raise InputError(f"{said}: a machine of --topology has {counted(own, 'GPU')}, 0 to {own - 1}")
    nodes = whole_number(str(options.get("nodes") or written.nodes or 1)) or 1
    if launch.whole:  # on machines that the line does not name
        each, rest = divmod(launch.whole, nodes)
        shown = len(gpus[0])
        if rest or each > shown:
            on = f"{nodes} machines, which each shows" if nodes > 1 else "1 machine, which shows"
            told = f"{launch.whole} processes on {on} {counted(shown, 'GPU')}"
            raise InputError(f"{said}: {told}; --nodes says how many machines")
        gpus = (gpus[0][:each],)
    if nodes == 1:
        options["gpus"] = written_gpus(gpus[0])
        return
    if own is None:
        raise InputError(f"{said}: goes with a --topology of a single machine, of which there are {nodes}")
    lists = gpus * nodes if len(gpus) == 1 else gpus
    if any(tuple(each) != tuple(range(own)) for each in lists):
        parts = [
            f"{node * own}-{node * own + len(each) - 1}"
            if len(each) > 1 and tuple(each) == tuple(range(len(each)))
            else ",".join(str(node * own + gpu) for gpu in each)
            for node, each in enumerate(lists)
        ]
        options["gpus"] = ",".join(parts)


def _check_named(written: CommandOptions, launch: LaunchLine) -> None:
    if written.workload is None and "workload" not in launch.options:
        why = f"no network is known by the name in {one_line(launch.unknown, 80)}" if launch.unknown else _NO_NETWORK
        unread = f", and {few(launch.files)} is not read" if launch.files and not launch.unknown else ""
        name = launch.unknown.partition(" ")[2].rpartition("/")[2]
        hint, ours = (nearest_network(name, 0) if name else ""), mention("workload")
        example = f"add {ours}, for example {mention('workload', 'llama2-7b')} (simulate networks)"
        raise refused("launch", f"{why}{unread}; {f'{hint} add {ours}' if hint.startswith('did') else example}")
    if written.batch is written.global_batch is None and "global_batch" not in launch.options:
        named = "--micro-batch-size and --global-batch-size, --per_device_train_batch_size"
        example = f"add {mention('batch')}, for example {mention('batch', 32)}"
        raise refused("launch", f"the line names no batch ({named}, or DeepSpeed's configuration); {example}")


def _choices(written: CommandOptions, launch: LaunchLine) -> Mapping[str, str | bool]:
    """Return the options that NCCL's settings of *launch* say, if NCCL exchanges; these settings leave the line."""
    if not {"all", "nccl"}.intersection((written.strategy or "nccl").split(",")):
        return {}
    found = {name: choices({name: value}) for name, value in launch.variables.items()}
    launch.variables = {name: value for name, value in launch.variables.items() if not found[name]}
    return {option: said for each in found.values() for option, said in each.items()}


def _settings_notes(asked: CommandOptions, launch: LaunchLine) -> list[str]:
    if asked.topology in (None, "-") or not any(name.startswith(OF_NCCL) for name in launch.variables):
        return []
    try:  # settings tell one machine from several, not how many there are
        several = 2 if (whole_number(asked.nodes or "") or 1) > 1 else None
        topology = load_topology(str(asked.topology), n_nodes=several, fabric=asked.fabric)
    except InputError:  # reported where the machine is loaded
        return []
    found = [one_line(each, 60) for each in passed_over(launch.variables, topology)]
    return [f"not modelled: {few(found)}; exchanges are simulated without"] if found else []


def _length_notes(written: CommandOptions, launch: LaunchLine) -> list[str]:
    name = written.workload or str(launch.options.get("workload"))
    if written.seq_len is not None or "seq_len" in launch.options or name.endswith((".json", ".yaml")):
        return []
    try:
        entry = find_entry(name)
    except InputError:
        return []
    length = entry.defaults.get("sequence_length")
    if entry.sample != "sequences" or entry.length_known or any("sequence_length" in text for text in written.sizes):
        return []
    return [f"the line names no length of sequences: {length} tokens are simulated; {mention('seq_len')} says another"]


def _gpus_of(written: CommandOptions) -> int | None:
    """Return the number of GPUs of the machine that is asked about; None if it is unknown, or a cluster already."""
    if written.topology is None or written.topology == "-":
        return None
    try:
        topology = load_topology(written.topology)
    except InputError:  # reported where the machine is loaded
        return None
    return sum(device.kind == "gpu" for device in topology.devices) if topology.n_nodes == 1 else None


_REST = "add data, tokenizer, learning rate and the number of steps"


def answer_emit(written: CommandOptions) -> Answers:
    """Return the launch line of the step in *written*; raises InputError for what has none."""
    framework = parse_choice("emit", written.emit or "", EMITTERS)
    files = {name: getattr(written, name[2:]) is not None for name in ("--report", "--trace", "--plot", "--chakra")}
    refuse(files, "shows an answer, and --emit prints a launch line; leave one of the two out")
    session, questions = ask_steps(written.but(emit=None))
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
    own = "fused-native" if prefers_cudnn(session, question) else FUSED[0]
    return emitted(question, Ranks(len(hosts), len(next(iter(hosts))), tuple(listed), own), framework)


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
            asked = replace(question, layout=parse_layout(words))
        except InputError:  # which some optimisers do not go with
            continue
        try:
            emitted_on(session, asked, framework)
        except InputError as error:
            why.add(str(error))
            last = error
        else:
            return
    if len(why) == 1:
        raise last


def row_command(written: CommandOptions, way: Candidate) -> str:
    """Return the command that simulates *way*, found by the search of *written*."""
    said = {"recompute": way.recompute == "full", "recompute_attention": way.recompute == "selective"}
    said["gradient_as_bucket_view"] = written.gradient_as_bucket_view and way.layout.has_replicas
    samples = {"divide": "best"} if way.divided else {"micro_batch": str(way.micro_batch)}
    laid_out = written.but(parallel=(way.layout.words,), **samples, **said)
    return shell_command(laid_out.but(json=False, quiet=False))


def launch_rows(questions: Sequence[StepQuestion], found: Sequence[Emission]) -> list[str]:
    """Return the launch lines *found* of *questions*, or why there are none."""
    lines = []
    for number, (question, each) in enumerate(zip(questions, found, strict=True), start=1):
        text = spelt(each.text, "command") if each.program else f"# none: {each.cannot[0]}"
        lines += ["", f"# {number}: {question.layout.words}", *text.splitlines()]
    return [*lines, f"# {_REST}"]
