"""From the options of a step to its questions, one for each machine and way: :func:`ask_steps`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from simulator.api.session import Session
from simulator.cli.calibrations import read_calibrations
from simulator.cli.circumstances import (
    parse_checkpoints,
    parse_divide,
    parse_loss,
    parse_servers,
    parse_staleness,
    parse_stragglers,
)
from simulator.cli.machines import find_machines
from simulator.cli.options import (
    parse_choice,
    parse_count,
    parse_gpus,
    parse_list,
    parse_month,
    parse_software,
    parse_strategies,
    read_all,
    refuse,
)
from simulator.cli.recompute_options import check_recomputes, read_recompute
from simulator.cli.written import OVERLAP, Written
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.predict import Device
from simulator.errors import InputError, nearest, one_line, refused
from simulator.network.machine import Machine
from simulator.questions.checks import MOST, WITHOUT_NCCL, changed, in_ways, refuse_all
from simulator.questions.input_file import parse_input
from simulator.questions.layout import REPLICAS, Layout, parse_layout
from simulator.questions.options import ACCUMULATIONS, FRAMEWORKS, MODES, OPTIMIZERS, POLICIES, StepOptions
from simulator.questions.step import BUCKET_BYTES, StepQuestion, accumulating
from simulator.questions.where import CPU_LIBRARIES, Month, Software, Where, month_words
from simulator.spelling import mention
from simulator.step.precision import half_policy, storage_of
from simulator.training.data_parallel import gradient_bytes
from simulator.units import parse_quantity, whole_number
from simulator.workload.operators import Conv2d
from simulator.workload.precision import ELEMENT_BYTES


def ask_steps(written: Written, session: Session | None = None) -> tuple[Session, list[StepQuestion]]:
    """Return the session with the machines, and a question for each machine and way to run the step.

    *session*: one that already knows some machines or networks.  Raises InputError.
    """
    known = session or Session()
    machines, ways = read_all(lambda: find_machines(written, known), lambda: _ways(written))
    session = known.calibrated(read_calibrations(written.calibration, [known.machine(w) for w in machines]))
    return session, _questions(written, session, machines, ways)


def _ways(written: Written) -> list[StepQuestion]:
    """Return the ways to run the step (strategies, layouts and overlaps), still without a machine.

    The batch is still the number given, also if it is that of all devices together.
    """
    whole = written.global_batch is not None

    options, batch, micro_batches, micro_batch, threads, sizes, software, strategies, layouts, overlaps = read_all(
        lambda: _options(written),
        lambda: _size("global_batch" if whole else "batch", written.global_batch or written.batch or ""),
        lambda: parse_count("micro_batches", written.micro_batches),
        lambda: _micro_batch(written),
        lambda: None if written.threads is None else parse_count("threads", written.threads),
        lambda: tuple(_sizes(written).items()),
        lambda: _software(written),
        lambda: parse_strategies(written.strategy or "nccl"),
        lambda: _layouts(written.parallel),
        lambda: parse_list("bucket_bytes", written.overlap, _overlap, "none,bucket:25MiB"),
    )
    stragglers, staleness, servers, checkpoints, (divided, helpers), lost, fed, programs, epoch = read_all(
        lambda: parse_stragglers(written.straggler),
        lambda: parse_staleness(written.staleness),
        lambda: parse_servers(written.servers),
        lambda: parse_checkpoints(written),
        lambda: parse_divide(written.divide),
        lambda: parse_loss(written.lose),
        lambda: None if written.input is None else parse_input(written.input),
        lambda: parse_count("programs", written.programs),
        lambda: 0 if written.epoch is None else _epoch(written.epoch),
    )
    if all(layout.process == "loop" for layout in layouts):
        by_nccl = {mention("strategy"): written.strategy is not None, mention("nccl"): written.nccl is not None}
        refuse(by_nccl, f"of {mention('layout', 'loop')} is a sum on the first GPU")
    if "nccl" not in strategies:
        refuse({mention("nccl"): written.nccl is not None}, WITHOUT_NCCL)
    values = {
        "where": Where(""),
        "workload": written.what,
        "batch": micro_batch or batch,
        "sizes": sizes,
        "options": options,
        "micro_batches": micro_batches,
        "device": written.device,
        "sums_in_fp32": written.reduce_fp32,
        "prefetches": written.prefetch,
        "contention": written.contention,
        "threads": threads,
        "stragglers": stragglers,
        "servers": servers,
        "staleness": staleness,
        "checkpoints": checkpoints,
        "epoch_samples": epoch,
        "divided": divided,
        "helpers": helpers,
        "lost": lost,
        "input": fed,
        "programs": programs,
        "software": software,
    }
    ways = [
        {"layout": layout, "strategy": strategy, "bucket_bytes": bucket_bytes}
        for layout in layouts
        for bucket_bytes in overlaps
        for strategy in strategies
    ]
    return in_ways(StepQuestion, values, ways)


def _layouts(written: Sequence[str]) -> list[Layout]:
    """Return the layouts of every ``--parallel``, without repetitions; raises InputError."""
    words = [word.strip() for text in written or ("dp",) for word in _ways_of(text)]
    return list(dict.fromkeys(read_all(*(partial(parse_layout, word) for word in words))))


def _ways_of(text: str) -> list[str]:
    """Return the layouts named in *text*: several if none has a degree (``dp,fsdp``), otherwise *text* alone."""
    return text.split(",") if "=" not in text else [text]


def _micro_batch(written: Written) -> int | None:
    """Return the samples of a micro-batch, or None if not given; raises InputError."""
    if written.micro_batch is None:
        return None
    if written.global_batch is None:
        raise refused(
            "micro_batch", f"is a part of {mention('global_batch')}; {mention('batch')} is the samples of one already"
        )
    if written.micro_batches != "1":
        raise refused(
            "micro_batch",
            f"{mention('global_batch')} and {mention('micro_batches')} say it already; give one of the two",
        )
    return _size("micro_batch", written.micro_batch)


def _options(written: Written) -> StepOptions:
    mode, precision, optimizer, framework, (how, parts, blocks) = read_all(
        lambda: parse_choice("mode", written.mode, MODES),
        lambda: parse_choice("precision", written.precision or "torch", POLICIES),
        lambda: parse_choice("optimizer", written.optimizer or "momentum", OPTIMIZERS),
        lambda: parse_choice("framework", written.framework, FRAMEWORKS),
        lambda: read_recompute(written),
    )
    if mode != "train":
        updates = {mention("optimizer"): written.optimizer is not None}
        refuse(updates, f"updates parameters, and {mention('mode', mode)} updates none")
    return StepOptions(
        mode=mode,
        precision=precision,
        optimizer=optimizer,
        compiled=written.compiled,
        cuda_graph=written.cuda_graph,
        cuda_graph_blocks=written.cuda_graph_blocks,
        launch_blocking=written.launch_blocking,
        recompute=how,
        recompute_parts=parts,
        recompute_blocks=blocks,
        channels_last=written.channels_last,
        fused_optimizer=written.fused_optimizer,
        framework=framework,
    )


def _questions(
    written: Written, session: Session, machines: Sequence[Where], ways: Sequence[StepQuestion]
) -> list[StepQuestion]:
    """Return the questions for each machine: one per way, or a single one if one device runs alone."""
    found: list[StepQuestion] = []
    how = None if written.accumulate is None else parse_choice("accumulation", written.accumulate, ACCUMULATIONS)
    for where in machines:
        machine = session.machine(where)
        gpus = _gpus(written, machine)
        count = 1 if gpus is None else len(gpus)
        if count > 1:
            refuse_all(ways[0].device_faults(count))
        own = ways if count + len(ways[0].helpers) > 1 else [changed(ways[0], layout=REPLICAS)]
        asked = [accumulating(changed(_shared_out(written, way, count), where=where, gpus=gpus), how) for way in own]
        found += [_as_trained(written, session, question) for question in asked]
    if written.optimizer is None and session.network(found[0]).sample == "sequences":  # usual for transformers
        found = [replace(each, options=replace(each.options, optimizer="adam")) for each in found]
    _check_has(written, session, found)
    infers = ways[0].options.mode == "inference"
    if infers or not any(each.gpus and len(each.gpus) + len(each.helpers) > 1 for each in found):
        apart = {
            mention("strategy"): written.strategy is not None,
            mention("layout"): written.parallel not in ((), ("dp",)),
            mention("bucket_bytes"): written.overlap != OVERLAP,
            mention("sums_in_fp32"): written.reduce_fp32,
            mention("divided"): written.divide != "even",
            mention("nccl"): written.nccl is not None,
            mention("contention", False): not written.contention,
        }
        none = f"{mention('mode', 'inference')} has none" if infers else "one device steps alone"
        refuse(apart, f"is about an exchange, and {none}")
    return found


def _check_has(written: Written, session: Session, questions: Sequence[StepQuestion]) -> None:
    """Raise InputError for options on features that neither the network nor the devices have."""
    options = questions[0].options
    if options.recompute != "none" or written.channels_last:
        network = session.network(questions[0])
        convolves = any(isinstance(layer.operator, Conv2d) for layer in network.layers)
        none = f"and {written.what} has none"
        check_recomputes(written, options, network, min(q.layout.pp * q.layout.vp for q in questions))
        refuse({mention("channels_last"): written.channels_last and not convolves}, f"applies to convolutions, {none}")
    hooked = options.framework == "deepspeed-zero3"
    apart = any(q.layout.zero != 3 and q.gpus and len(q.gpus) > 1 for q in questions)
    if hooked and (apart or options.mode == "inference"):
        raise refused("framework", f"is ZeRO-3 in training; add {mention('layout', 'fsdp')}", "deepspeed-zero3")
    adds = any(q.micro_batches > 1 and q.layout.zero < 2 and q.options.mode in ("train", "backward") for q in questions)
    several = (
        f"is about gradients of several micro-batches ({mention('micro_batches', 4)}), which zero=2 and fsdp scatter"
    )
    refuse({mention("accumulation"): written.accumulate is not None and not adds}, several)
    devices = {device for question in questions for device in _devices(session, question)}
    gpus = [device for device in devices if isinstance(device, Gpu)]
    if len(gpus) == len(devices) and not any(question.helpers for question in questions):
        refuse(
            {mention("cpu_library"): written.cpu_library != "onednn"}, "applies to kernels on a CPU, but GPUs compute"
        )
    if written.libraries is not None:
        _check_libraries(gpus, parse_month("libraries", written.libraries), written.calibration is not None)
    if not gpus:
        of_gpus = {
            mention("channels_last"): written.channels_last,
            mention("framework", written.framework): options.framework != "pytorch",
            mention("libraries"): written.libraries is not None,
        }
        refuse(of_gpus, "applies to GPUs, but a CPU computes")
        others = session.calibrations.keys().isdisjoint(device.name for device in devices)
        refuse(
            {mention("calibration"): written.calibration is not None and others}, "has nothing of the CPU that computes"
        )
    if all(_sums_in_fp32(question) for question in questions):
        why = f"gradients of {mention('precision', options.precision)} are of fp32 already"
        refuse({mention("sums_in_fp32"): written.reduce_fp32}, why)
    if written.precision == "tf32" and not any("tf32" in gpu.peak_flops_per_s for gpu in gpus):
        names = " and ".join(dict.fromkeys(device.name for device in devices))
        raise refused("precision", f"{names} has none, and computes in fp32 whatever is allowed", "tf32")


def _check_libraries(gpus: Iterable[Gpu], month: Month | None, calibrated: bool) -> None:
    """Raise InputError where nothing is known of libraries of *month* on *gpus*."""
    refuse(
        {mention("libraries"): calibrated}, f"is part of what {mention('calibration')} measured; leave one of them out"
    )
    for gpu in gpus:
        since = gpu.traits.kernels_since
        if since is None:
            raise refused("libraries", f"is not modelled for {gpu.name}; leave it out")
        first = (since[0] - 1, since[1])  # libraries may precede the boards
        if month is not None and month < first:
            words = f"{gpu.name} has none so old; {month_words(first)} or later is allowed"
            raise refused("libraries", words, month_words(month))


def _sums_in_fp32(question: StepQuestion) -> bool:
    """Whether gradients are exchanged in fp32 anyway; shards have the format in which parameters are stored."""
    shard_bytes = ELEMENT_BYTES[storage_of(question.options.precision)]
    return (shard_bytes if question.layout.zero == 3 else gradient_bytes(question.options)) >= ELEMENT_BYTES["fp32"]


def _software(written: Written) -> Software:
    library, libraries = read_all(
        lambda: parse_choice("cpu_library", written.cpu_library, CPU_LIBRARIES),
        lambda: parse_month("libraries", written.libraries),
    )
    return parse_software(written.nccl, library, libraries)


def _devices(session: Session, question: StepQuestion) -> list[Device]:
    if question.gpus is None:
        return [session.device(question.where, question.device, question.threads, question.software)]
    places = session.places(question.where, question.software)
    machine = session.machine(question.where)
    return [places.place(node.index).device for node in machine.unlike(machine.gpus[gpu] for gpu in question.gpus)]


def _as_trained(written: Written, session: Session, question: StepQuestion) -> StepQuestion:
    """Return *question* with the precision and kernels its network is trained with, unless options set them."""
    source = session.source(question)
    if not source.in_half:
        return question
    if "attention" not in dict(question.sizes):
        question = replace(question, sizes=(*question.sizes, ("attention", source.attention)))
    if question.options.framework == "megatron" and "gelu" not in dict(question.sizes):  # its GELU is one kernel
        one_kernel = [setting for _, setting in source.variants if setting[0] == "gelu"]
        question = replace(question, sizes=(*question.sizes, *one_kernel))
    if written.precision is not None:
        return question
    precision = half_policy(_devices(session, question), question.options.mode)
    return replace(question, options=replace(question.options, precision=precision))


def _gpus(written: Written, machine: Machine) -> tuple[int, ...] | None:
    """Return the participating GPUs, or None for a named device or a machine without GPUs."""
    if written.device is not None:
        return None
    if not machine.gpus:
        refuse({mention("gpus"): written.gpus is not None}, f"{machine.name} has no GPU; its CPU takes part")
        return None
    return tuple(parse_gpus(written.gpus, machine))


def _shared_out(written: Written, way: StepQuestion, count: int) -> StepQuestion:
    """Return *way* with the samples of one replica and one micro-batch, on *count* devices.

    Raises InputError if the layout needs another number of devices, or if the samples cannot be divided evenly.
    """
    replicas = (way.layout.on(count).dp or 1) if count > 1 else 1
    if written.global_batch is None:
        return way
    whole = _size("global_batch", written.global_batch)
    parts = replicas * (way.batch if written.micro_batch else way.micro_batches)
    if whole % parts:
        less = whole // parts * parts
        of = [f"{replicas} {'devices' if replicas == count else 'replicas'}"] if replicas > 1 else []
        if written.micro_batch:
            of.append(f"micro-batches of {way.batch}")
        elif way.micro_batches > 1:
            of.append(f"{way.micro_batches} micro-batches")
        near = " and ".join(str(size) for size in (less, less + parts) if size)
        raise refused("global_batch", f"{' x '.join(of)} do not share it evenly; {near} would do", whole)
    return replace(way, micro_batches=whole // parts) if written.micro_batch else replace(way, batch=whole // parts)


def _overlap(text: str) -> float:
    """Return the bytes of a bucket, or 0 without overlap; raises InputError."""
    if text == "none":
        return 0.0
    name, _, size = text.partition(":")
    if name != "bucket":
        raise refused("bucket_bytes", f"no such choice; {nearest(name, ('none', OVERLAP))}", one_line(text, 40))
    try:
        return parse_quantity(size, "size", positive=True) if size else BUCKET_BYTES
    except ValueError as error:
        raise refused("bucket_bytes", str(error), one_line(text, 40)) from None


def _epoch(text: str) -> int:
    value = parse_count("epoch_samples", text)
    if value < 1:
        raise refused("epoch_samples", "must be at least 1", value)
    return value


def _size(name: str, text: str) -> int:
    value = parse_count(name, text)
    if not 1 <= value <= MOST:
        raise InputError(f"{mention(name, value)}: from 1 to {MOST}")
    return value


def _sizes(written: Written) -> dict[str, int | str]:
    """Return the sizes of the network from ``--seq-len``, ``--image`` and ``--set``; raises InputError."""
    options = {"sequence_length": (mention("seq_len"), written.seq_len), "image": (mention("image"), written.image)}
    own = {name: (option, text) for name, (option, text) in options.items() if text is not None}
    found: dict[str, int | str] = {name: _size(option, text) for name, (option, text) in own.items()}
    for text in written.sizes:
        key, equals, value = (part.strip() for part in text.partition("="))
        shown = mention("sizes", one_line(text, 60))
        if not equals or not key or not value:
            raise InputError(f"{shown}: write a name and a value, for example {mention('sizes', 'layers=12')}")
        if key in own:
            raise InputError(f"{shown}: {own[key][0]} says it already; give one of the two")
        if key in found:
            raise InputError(f"{shown}: {one_line(key, 40)} is set twice")
        number = whole_number(value)
        found[key] = value if number is None else number
    return found
