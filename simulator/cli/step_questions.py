"""From the options of a step to its questions, one for each machine and way: :func:`ask_steps`."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

from simulator.api.outcome import as_there, devices_of, prefers_cudnn
from simulator.api.session import Session
from simulator.cli.machines import find_machines, with_calibration
from simulator.cli.options import (
    fields_of,
    gpus_among,
    parse_choice,
    parse_count,
    parse_divide,
    parse_gpus,
    parse_list,
    parse_strategies,
    quantity_of,
    read_all,
    refuse,
)
from simulator.cli.written import DEFAULTS, CommandOptions
from simulator.devices.gpu import Gpu
from simulator.errors import Fault, InputError, mention, nearest, one_line, option_of, refused
from simulator.network.machine import Machine
from simulator.questions import step
from simulator.questions.checks import MOST, WITHOUT_NCCL, From, changed, in_ways, refuse_all
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.layout import REPLICAS, Layout, parse_layout
from simulator.questions.options import ACCUMULATIONS, RECOMPUTED_PARTS, StepOptions
from simulator.questions.where import Software, Where, month_of, month_words
from simulator.records import replace
from simulator.step.precision import half_policy
from simulator.units import whole_number
from simulator.workload.find import find_network
from simulator.workload.parse import parse_workload
from simulator.workload.zoo import FUSED

_COUNT = From(1, MOST)


def ask_steps(written: CommandOptions, session: Session | None = None) -> tuple[Session, list[step.StepQuestion]]:
    """Return the *session* with the machines, and a question for each machine and way to run; raises InputError."""
    session, found = _asked(written, session)
    refuse_all(_in_vain(written, found))
    return session, found


def ask_points(points: Mapping[str, CommandOptions]) -> dict[str, tuple[Session, step.StepQuestion]]:
    """Return sessions and questions of *points* (other numbers of devices) by name; raises InputError with the name."""
    found = {}
    for name, written in points.items():
        try:
            session, questions = _asked(written, None)
        except InputError as error:
            other = next((each for key, each in points.items() if key != name), None)
            if other is not None:
                try:
                    _asked(other, None)
                except InputError as same:
                    if str(same) == str(error):  # no number of devices is its cause
                        raise error from None
            raise error.changed(partial(of_point, name)) from None
        if len(questions) > 1:
            raise InputError("scale draws one curve; name one machine, layout, strategy and overlap")
        found[name] = session, questions[0]
    refuse_all(_in_vain(written, [question for _, question in found.values()]))
    return found


def of_point(name: str, fault: Fault) -> Fault:
    """Return *fault* with the *name* of the point that has it, its option and number."""
    said = fault.spelt("command").removeprefix(f"{name}: ").removeprefix(f"{name.partition(' ')[0]}: ")
    return Fault(f"{name}: {said}")


def _asked(written: CommandOptions, session: Session | None) -> tuple[Session, list[step.StepQuestion]]:
    known = session or Session()
    machines, ways = read_all(lambda: find_machines(written, known), lambda: _ways(written))
    session = with_calibration(written, known, machines)
    return session, _questions(written, session, machines, ways)


def _ways(written: CommandOptions) -> list[step.StepQuestion]:
    """Return the ways to run the step (strategies, layouts, overlaps), without a machine, with the batch as given."""
    batch_of = "batch" if written.global_batch is None else "global_batch"
    options, batch, micro_batch, sizes, checkpoints, divide, software, strategies, layouts, overlaps, said = read_all(
        lambda: _options(written),
        lambda: parse_count(batch_of, written.global_batch or written.batch or "", _COUNT),
        lambda: _micro_batch(written),
        lambda: tuple(_sizes(written).items()),
        lambda: _checkpoints(written),
        lambda: parse_divide(written.divide),
        lambda: Software(**fields_of(written, Software)),
        lambda: parse_strategies(written.strategy or "nccl"),
        lambda: _layouts(written.parallel),
        lambda: _overlaps(written.overlap),
        lambda: fields_of(written, step.StepQuestion),
    )
    if "nccl" not in strategies:
        refuse({mention("nccl"): written.nccl is not None}, WITHOUT_NCCL)
    said |= {"where": Where(""), "workload": written.what, "batch": micro_batch or batch, "options": options}
    said |= {"sizes": sizes, "checkpoints": checkpoints, "software": software, **divide}
    each = product(layouts, overlaps, strategies)
    ways = [dict(zip(("layout", "bucket_bytes", "strategy"), way, strict=True)) for way in each]
    found = in_ways(step.StepQuestion, said, ways)
    if divide["divided"] and not all(way.divided for way in found):  # their work would not be the same
        raise refused("divided", f"is for {mention('layout', 'dp')}, with a collective; ask the other ways apart")
    return found


def check_value(name: str, value: object) -> None:
    """Raise InputError if *value* of the option *name* cannot be read, whatever else is asked."""
    alone = CommandOptions(**{name: value})
    for cls in (Where, Software, StepOptions, step.StepQuestion, step.CheckpointQuestion, CollectiveQuestion):
        fields_of(alone, cls)
    _sizes(alone)
    _recomputed(alone)
    if name in _READERS and not (name == "topology" and value == "-"):
        _READERS[name](value)


def check_network(written: CommandOptions) -> None:
    """Raise InputError if the network of *written* is not known, or cannot have such sizes; runs no code of users."""
    if written.kind == "exchange" and not written.what.startswith("torch:"):
        parse_workload(written.what)
    elif written.kind == "step" and ":" not in written.what:
        find_network(written.what, settings=_sizes(written)).build(1)


def _layouts(written: Sequence[str]) -> list[Layout]:
    # Without a degree, dp,fsdp are two layouts; sync_bn belongs to the one before it.
    lists = ([text] if "=" in text else re.split(r",(?!\s*sync_bn\b)", text) for text in written or ("dp",))
    words = [word.strip() for several in lists for word in several]
    return list(dict.fromkeys(read_all(*(partial(parse_layout, word) for word in words))))


def _micro_batch(written: CommandOptions) -> int | None:
    if written.micro_batch is None:
        return None
    whole = mention("global_batch")
    if written.global_batch is None:
        raise refused("micro_batch", f"is a part of {whole}; {mention('batch')} is the samples of one already")
    if written.micro_batches != "1":
        said = f"{whole} and {mention('micro_batches')} say it already; give one of the two"
        raise refused("micro_batch", said)
    return parse_count("micro_batch", written.micro_batch, _COUNT)


def _options(written: CommandOptions) -> StepOptions:
    said, recomputed = read_all(lambda: fields_of(written, StepOptions), lambda: _recomputed(written))
    mode = said["mode"]
    if mode != "train":
        updates = {mention("optimizer"): written.optimizer is not None}
        refuse(updates, f"updates parameters, and {mention('mode', mode)} updates none")
    return StepOptions(**said, **recomputed)


def _recomputed(written: CommandOptions) -> dict[str, Any]:
    ways = {
        "recompute": (written.recompute, "full"),
        "recompute_attention": (written.recompute_attention, "selective"),
        "recompute_parts": (written.recompute_parts is not None, "selective"),
        "recompute_operators": (written.recompute_operators, "operators"),
    }
    given = [(mention(option), how) for option, (is_given, how) in ways.items() if is_given]
    if len(given) > 1:
        raise InputError(f"{given[1][0]}: {given[0][0]} says already what is recomputed; give one of the two")
    said: dict[str, Any] = {"recompute": given[0][1]} if given else {}
    if written.recompute_parts is not None:
        parts = (parse_choice("recompute_parts", name, RECOMPUTED_PARTS) for name in written.recompute_parts.split(","))
        said["recompute_parts"] = tuple(dict.fromkeys(parts))
    return said


def _checkpoints(written: CommandOptions) -> step.CheckpointQuestion | None:
    if written.mtbf is not None:
        return step.CheckpointQuestion(**fields_of(written, step.CheckpointQuestion))
    others = ("every_steps", "write_s", "restart_s")
    why = f"is about failures; add {mention('mtbf_s')}, for example {mention('mtbf_s', '24h')}"
    refuse({mention(name): getattr(written, option_of(name)) is not None for name in others}, why)
    return None


def _questions(
    written: CommandOptions, session: Session, machines: Sequence[Where], ways: Sequence[step.StepQuestion]
) -> list[step.StepQuestion]:
    found: list[step.StepQuestion] = []
    how = None if written.accumulate is None else _how(written.accumulate)
    for where in machines:
        gpus = _gpus(written, session.machine(where))
        count = 1 if gpus is None else len(gpus)
        if count > 1:
            refuse_all(ways[0].device_faults(count))
        own = ways if count + len(ways[0].helpers) > 1 else [changed(ways[0], layout=REPLICAS)]
        for way in own:
            asked = changed(_shared_out(written, way, count), where=where, gpus=gpus)
            found.append(_as_trained(written, session, step.accumulating(asked, how)))
    if written.optimizer is None and session.network(found[0]).sample == "sequences":  # usual for transformers
        found = [replace(each, options=replace(each.options, optimizer="adam")) for each in found]
    found = [replace(each, options=each.options.as_launched) for each in found]
    try:
        found = as_there(session, found)
    except InputError as error:
        raise error.changed(partial(_as_said, written)) from None
    _check_said(written, session, found)
    return found


def _in_vain(written: CommandOptions, questions: Sequence[step.StepQuestion]) -> Iterator[str]:
    infers = questions[0].options.mode == "inference"
    if infers or any(each.gpus and len(each.gpus) + len(each.helpers) > 1 for each in questions):
        unread = [dict(each.unread(each)) for each in questions]
    else:
        left = [name for name in step.EXCHANGING if name not in step.asked_by_host(questions[0])]
        unread = [dict.fromkeys(left, "is about an exchange, and one device steps alone")]
    for name in (*step.EXCHANGING, "nccl"):
        value = getattr(written, option_of(name))
        field = "strategy" if name == "nccl" else name
        if value not in (DEFAULTS[option_of(name)], ("dp",)) and all(field in each for each in unread):
            yield f"{mention(name, *([False] if value is False else []))}: {unread[0][field]}"


def _check_said(written: CommandOptions, session: Session, questions: Sequence[step.StepQuestion]) -> None:
    adds = any(q.micro_batches > 1 and q.layout.zero < 2 and q.options.mode in ("train", "backward") for q in questions)
    more = mention("micro_batches", 4)
    several = f"is about gradients of several micro-batches ({more}), which zero=2 and fsdp scatter"
    refuse({mention("accumulation"): written.accumulate is not None and not adds}, several)
    if written.calibration is not None:
        devices = [device for question in questions for device in devices_of(session, question)]
        others = session.calibrations.keys().isdisjoint(device.name for device in devices)
        none = others and not any(isinstance(device, Gpu) for device in devices)
        refuse({mention("calibration"): none}, "has nothing of the CPU that computes")


def _as_trained(written: CommandOptions, session: Session, question: step.StepQuestion) -> step.StepQuestion:
    source = session.source(question)
    if not source.in_half:
        return question
    of_megatron = question.options.framework == "megatron"
    if source.attention and "attention" not in dict(question.sizes):  # Megatron-LM's is Transformer Engine's
        is_own = of_megatron or prefers_cudnn(session, question)
        kind = "fused-native" if is_own and source.attention == FUSED[0] else source.attention
        question = replace(question, sizes=(*question.sizes, ("attention", kind)))
    if of_megatron and "gelu" not in dict(question.sizes):  # its GELU is one kernel
        one_kernel = [setting for _, setting in source.variants if setting[0] == "gelu"]
        question = replace(question, sizes=(*question.sizes, *one_kernel))
    if written.precision is not None:
        return question
    precision = half_policy(devices_of(session, question), question.options.mode)
    if of_megatron and precision.startswith("amp-"):  # it casts no weight in each pass, and sums gradients in fp32
        precision = "master-bf16" if precision == "amp-bf16" else "master-fp16"
        several = question.gpus is not None and len(question.gpus) > 1 and question.options.mode == "train"
        question = replace(question, sums_in_fp32=question.sums_in_fp32 or (several and precision == "master-bf16"))
    return replace(question, options=replace(question.options, precision=precision))


def _as_said(written: CommandOptions, fault: Fault) -> Fault:
    """Return *fault* with the libraries as they were said: torch-2.1, not the month of that version."""
    month = month_of(written.libraries or "")
    if month is None:
        return fault
    said = mention("libraries", one_line((written.libraries or "").strip(), 40))
    return replace(fault, message=fault.message.replace(mention("libraries", month_words(month)), said))


def _gpus(written: CommandOptions, machine: Machine) -> tuple[int, ...] | None:
    if written.device is not None:
        return None
    if not machine.gpus:
        refuse({mention("gpus"): written.gpus is not None}, f"{machine.name} has no GPU; its CPU takes part")
        return None
    return tuple(parse_gpus(written.gpus, machine))


def _shared_out(written: CommandOptions, way: step.StepQuestion, count: int) -> step.StepQuestion:
    """Return *way* with one replica's and micro-batch's samples on *count* devices; raises InputError if uneven."""
    replicas = (way.layout.on(count).dp or 1) if count > 1 else 1
    if written.global_batch is None:
        return way
    whole = parse_count("global_batch", written.global_batch, _COUNT)
    evenly = written.micro_batch is not None or not way.divided
    parts = (replicas if evenly else 1) * (way.batch if written.micro_batch else way.micro_batches)
    if not evenly and whole < replicas * parts:
        raise refused("global_batch", f"{replicas} devices share it; {replicas * parts} would do", whole)
    if whole % parts:
        less = whole // parts * parts
        of = [f"{replicas} {'devices' if replicas == count else 'replicas'}"] if replicas > 1 and evenly else []
        if written.micro_batch:
            of.append(f"micro-batches of {way.batch}")
        elif way.micro_batches > 1:
            of.append(f"{way.micro_batches} micro-batches")
        near = " and ".join(str(size) for size in (less, less + parts) if size)
        raise refused("global_batch", f"{' x '.join(of)} do not share it evenly; {near} would do", whole)
    if written.micro_batch:
        return replace(way, micro_batches=whole // parts)
    batch, remainder = (whole // parts, 0) if evenly else divmod(whole // parts, replicas)
    return replace(way, batch=batch, remainder=remainder)


def _overlaps(text: str) -> list[float]:
    return parse_list("bucket_bytes", text, _overlap, "none,bucket:25MiB")


_how = partial(parse_choice, "accumulation", allowed=ACCUMULATIONS)
_READERS: Mapping[str, Callable[[Any], Any]] = {
    **{name: partial(parse_count, name, limits=_COUNT) for name in ("batch", "global_batch", "micro_batch", "threads")},
    "accumulate": _how,
    "divide": parse_divide,
    "gpus": partial(gpus_among, total=MOST, name="no machine"),
    "overlap": _overlaps,
    "parallel": _layouts,
    "strategy": parse_strategies,
    "topology": lambda name: find_machines(CommandOptions(topology=name, quiet=True), Session()),
}


def _overlap(text: str) -> float:
    if text == "none":
        return 0.0
    name, _, size = text.partition(":")
    if name != "bucket":
        hint = nearest(name, ("none", DEFAULTS["overlap"]))
        raise refused("bucket_bytes", f"no such choice; {hint}", one_line(text, 40))
    return quantity_of("bucket_bytes", size, "size", text, positive=True) if size else step.BUCKET_BYTES


def _sizes(written: CommandOptions) -> dict[str, int | str]:
    options = {"sequence_length": "seq_len", "image": "image"}
    said = {name: option for name, option in options.items() if getattr(written, option) is not None}
    found: dict[str, int | str] = {n: parse_count(o, getattr(written, o), _COUNT) for n, o in said.items()}
    for text in written.sizes:
        key, equals, value = (part.strip() for part in text.partition("="))
        why = ""
        if not equals or not key or not value:
            why = f"write a name and a value, for example {mention('sizes', 'layers=12')}"
        elif key in found:
            by = f"{mention(options[key])} says it already; give one of the two" if key in said else ""
            why = by or f"{one_line(key, 40)} is set twice"
        if why:
            raise InputError(f"{mention('sizes', one_line(text, 60))}: {why}")
        number = whole_number(value)
        found[key] = value if number is None else number
    return found
