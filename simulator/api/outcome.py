"""What a step asks in vain of network and devices, whether it fits, what is faster (docs/decisions/results.md)."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from math import ceil
from typing import Any

from simulator.api.context import Context, chosen_gpus
from simulator.collectives.communicator import Communicator, Unsuitable
from simulator.devices.gpu import Gpu
from simulator.devices.predict import Device
from simulator.errors import InputError, mention, word_of
from simulator.questions.checks import is_served, refuse_all
from simulator.questions.options import BITSANDBYTES, USUAL, SamplesOption, StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import TODAY, TORCH_RELEASE_MONTHS, Month, month_words
from simulator.records import replace
from simulator.results.training_run import WORTH_SAYING, Alternative
from simulator.step.changes import Change
from simulator.step.issue import launches_of
from simulator.step.memory import MemoryNeed, held_in
from simulator.step.precision import autocasts, gradient_bytes, storage_of
from simulator.step.recompute import reruns_of
from simulator.training import divided
from simulator.training.memory import alone_memory, most_needed
from simulator.training.placement import Placement
from simulator.training.plan import contend
from simulator.training.roles import slowest_of
from simulator.training.schedules import part_count
from simulator.workload.network import Network, block_name
from simulator.workload.operators import Conv2d
from simulator.workload.precision import ELEMENT_BYTES

_ON_GPUS = ("in-place", "fused-linear")  # losses of which CPUs have no kernels
_Faults = Iterator[tuple[str, dict[str, Any]]]  # each with the changes that leave out what is asked in vain
_CUDNN_FIRST = {"9.0", "10.0"}  # compute capabilities
_TORCH_COMPILES = TORCH_RELEASE_MONTHS["2.0"]
_LOOKS_FOR_SAMPLES = TORCH_RELEASE_MONTHS["1.12"]  # SyncBatchNorm, for ranks that have some (PR 74944)


def as_there(context: Context, questions: Sequence[StepQuestion]) -> list[StepQuestion]:
    """Return *questions*, each without what has no effect on it; raises InputError for what has none on any of them."""
    faults = [dict(faults_of(context, question)) for question in questions]
    refuse_all(fault for fault in faults[0] if all(fault in others for others in faults))
    found = []
    for question, leaves_out in zip(questions, faults, strict=True):
        for name, value in (change for changes in leaves_out.values() for change in changes.items()):
            held = {name: value}  # a field of the question, or of its options or its software
            for within in ("options", "software"):
                if hasattr(getattr(question, within), name):
                    held = {within: replace(getattr(question, within), **{name: value})}
            question = replace(question, **held)  # noqa: PLW2901  change by change
        found.append(question)
    return found


def devices_of(context: Context, question: StepQuestion) -> list[Device]:
    """Return the devices of *question*, one of each sort."""
    machine = context.machine(question.where)
    if question.device is not None or not machine.gpus:
        return [context.device(question.where, question.device, question.threads, question.software)]
    places = context.places(question.where, question.software)
    return [places.place(node.index).device for node in machine.unlike(chosen_gpus(machine, question.gpus))]


def prefers_cudnn(context: Context, question: StepQuestion) -> bool:
    """Return whether fused attention is cuDNN's there in today's PyTorch.

    So it is since 2.11 on data-centre Hopper and Blackwell; elsewhere FlashAttention 2 comes first (PyTorch's
    aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, ``check_prefer_cudnn_attention``).
    """
    part = context.places(question.where, question.software).part(question.device)
    return question.software.libraries is None and getattr(part, "compute_capability", None) in _CUDNN_FIRST


def faults_of(context: Context, question: StepQuestion) -> _Faults:
    """Yield what *question* asks and neither its network nor its devices have."""
    options, layout = question.options, question.layout
    if options.recompute != "none":
        yield from _of_recomputation(question.workload, options, context.network(question), part_count(layout))
    layers = context.network(question).layers if options.channels_last else ()
    if options.channels_last and not any(isinstance(each.operator, Conv2d) for each in layers):
        none = f"applies to convolutions, and {question.workload} has none"
        yield f"{mention('channels_last')}: {none}", {"channels_last": False}
    if (
        options.optimizer == "muon"
        and options.mode == "train"
        and not held_in(context.network(question), options).matrices
    ):
        none = f"updates matrices of hidden layers, and {question.workload} has none; Adam updates all"
        yield f"{mention('optimizer', 'muon')}: {none}", {"optimizer": "adam", "ns_steps": None}
    if options.framework == "deepspeed-zero3":
        gpus = () if question.device is not None else question.gpus or context.machine(question.where).gpus
        if (layout.zero != 3 and len(gpus) > 1) or options.mode == "inference":
            zero3 = f"is ZeRO-3 in training; add {mention('layout', 'fsdp')}"
            yield f"{mention('framework', 'deepspeed-zero3')}: {zero3}", {"framework": USUAL.framework}
    for why in _of_statistics(question) if options.framework == "adaptdl" else ():
        yield f"{mention('framework', 'adaptdl')}: {why}", {"framework": USUAL.framework}
    libraries = question.software.libraries
    if options.compiled and options.framework == USUAL.framework and libraries and libraries < _TORCH_COMPILES:
        came = f"torch.compile came with PyTorch 2.0; {mention('libraries', 'torch-2.0')} or later is allowed"
        yield f"{mention('compiled')}: {came}, not {mention('libraries', month_words(libraries))}", {"compiled": False}
    if layout.sync_bn and libraries and libraries < _LOOKS_FOR_SAMPLES:
        since = f"{mention('libraries', month_words(_LOOKS_FOR_SAMPLES))} or later"
        only = f"sync_bn is modelled as since PyTorch 1.12: {since}"
        yield f"{mention('libraries', month_words(libraries))}: {only}", {"libraries": None}
    if question.gathers_in_fp32 and not autocasts(options.precision):
        only = f"is for autocast; take {mention('precision', 'amp-bf16')} or amp-fp16"
        yield f"{mention('gathers_in_fp32')}: {only}", {"gathers_in_fp32": False}
    # Shards have the format in which parameters are stored.
    shard_bytes = ELEMENT_BYTES["fp32" if question.gathers_in_fp32 else storage_of(options.precision)]
    summed_bytes = shard_bytes if layout.zero == 3 else gradient_bytes(options)
    if question.sums_in_fp32 and summed_bytes >= ELEMENT_BYTES["fp32"]:
        why = f"gradients of {mention('precision', options.precision)} are of fp32 already"
        yield f"{mention('sums_in_fp32')}: {why}", {"sums_in_fp32": False}
    of_gpus = options.channels_last or options.expandable_segments
    of_devices = of_gpus, options.framework, options.precision == "tf32", question.software
    usual = False, USUAL.framework, False, replace(TODAY, nccl=question.software.nccl)
    if of_devices != usual or options.optimizer in BITSANDBYTES or question.loss_way in _ON_GPUS:
        yield from _of_devices(context, question)


def _of_statistics(question: StepQuestion) -> Iterator[str]:
    options = question.options
    if options.mode != "train":
        yield f"keeps statistics of gradients, and {mention('mode', options.mode)} updates nothing"
    elif question.layout.divides_network or question.layout.zero or question.layout.process != "each":
        yield f"keeps statistics of replicas in training; take {mention('layout', 'dp')}"
    if is_served(question.strategy):
        yield f"exchanges gradients as DistributedDataParallel does, not by {mention('strategy', question.strategy)}"


def _of_devices(context: Context, question: StepQuestion) -> _Faults:
    options, software = question.options, question.software
    devices = devices_of(context, question)
    gpus = [device for device in devices if isinstance(device, Gpu)]
    if len(gpus) == len(devices) and not question.helpers and software.cpu_library != TODAY.cpu_library:
        cpu = "applies to kernels on a CPU, but GPUs compute"
        yield f"{mention('cpu_library')}: {cpu}", {"cpu_library": TODAY.cpu_library}
    if software.libraries is not None:
        yield from ((fault, {"libraries": None}) for fault in _of_libraries(context, gpus, software.libraries))
    if not gpus:
        for name, said, usual in (
            ("channels_last", options.channels_last, False),
            ("expandable_segments", options.expandable_segments, False),
            ("framework", options.framework, USUAL.framework),
            ("libraries", software.libraries, None),
            ("gpu_clock_Hz", software.gpu_clock_Hz, 0.0),
            ("optimizer", options.optimizer if options.optimizer in BITSANDBYTES else "adam", "adam"),
        ):
            if said != usual:
                what = mention(name, said if name in ("framework", "optimizer") else "")
                yield f"{what}: applies to GPUs, but a CPU computes", {name: usual}
    if not gpus and question.loss_way in _ON_GPUS:
        what = mention("sizes", f"cross_entropy={question.loss_way}")
        others = tuple(size for size in question.sizes if size[0] != "cross_entropy")
        yield f"{what}: applies to GPUs, but a CPU computes", {"sizes": others}
    if options.precision == "tf32" and not any("tf32" in gpu.peak_flops_per_s for gpu in gpus):
        names = " and ".join(dict.fromkeys(device.name for device in devices))
        verbs = ("have", "compute") if " and " in names else ("has", "computes")
        none = f"{names} {verbs[0]} none, and {verbs[1]} in fp32 whatever is allowed"
        yield f"{mention('precision', 'tf32')}: {none}", {"precision": "fp32"}


def _of_libraries(context: Context, gpus: Sequence[Gpu], month: Month) -> Iterator[str]:
    for gpu in gpus:
        since = gpu.traits.kernels_since
        if gpu.name in context.calibrations:
            measured = f"is part of what {mention('calibration')} measured; leave one of them out"
            yield f"{mention('libraries')}: {measured}"
        if since is None:
            yield f"{mention('libraries')}: is not modelled for {gpu.name}; leave it out"
        elif month < (first := (since[0] - 1, since[1])):  # libraries may precede the boards
            old = f"{gpu.name} has none so old; {month_words(first)} or later is allowed"
            yield f"{mention('libraries', month_words(month))}: {old}"


def _of_recomputation(workload: str, options: StepOptions, network: Network, chunks: int) -> _Faults:
    there = len({block_name(layer.name) for layer in network.layers} - {""})
    most, none = ceil(there / chunks), f"and {workload} has none"
    if there and (options.recompute_blocks or 0) > most:
        where = f"{workload} has" if chunks == 1 else f"a stage's chunk of {workload} has at most"
        fault = f"{mention('recompute_blocks', options.recompute_blocks)}: {where} {most} blocks"
        yield fault, {"recompute_blocks": None}
        return
    if options.recompute != "selective":
        if not reruns_of(network, options):
            option = "recompute" if options.recompute == "full" else "recompute_operators"
            changes = {"recompute_blocks": None, "recompute": "none"}
            yield f"{mention(option)}: applies to repeated blocks, {none}", changes
        return
    for part in options.recompute_parts:
        some = options.recompute_blocks if chunks == 1 else None
        alone = replace(USUAL, recompute="selective", recompute_parts=(part,), recompute_blocks=some)
        if reruns_of(network, alone):
            continue
        if some is None and options.recompute_parts == USUAL.recompute_parts:
            why = f"{mention('recompute_attention')}: applies to attention, {none}"
        elif some is not None and reruns_of(network, replace(alone, recompute_blocks=None)):
            why = f"{mention('recompute_blocks', some)}: none of the first {some} blocks of {workload} has {part}"
        else:
            why = f"{mention('recompute_parts', part)}: applies to blocks with such a part, {none}"
        yield why, {"recompute_blocks": None, "recompute_parts": USUAL.recompute_parts, "recompute": "none"}


_ROUNDED = 1 - 1e-9  # allows for rounding when the same seconds are added in another order


def faster(
    step_time_s: float,
    question: StepQuestion,
    ways: Iterable[tuple[str, Context, StepQuestion]],
    least_gain: float = WORTH_SAYING,
) -> tuple[Alternative, ...]:
    """Return the *ways* faster by *least_gain* than *question* at equal samples, best first; some do not fit."""
    found: list[tuple[Alternative, Context, StepQuestion]] = []
    own = question.programs * question.batch * question.micro_batches  # samples of a device in a step
    for words, context, asked in ways:
        batch = asked.programs * asked.batch
        share = batch * asked.micro_batches / own
        with suppress(InputError, Unsuitable):
            if least_step_s(context, asked) > step_time_s / least_gain * share:
                continue
            time_s = context.time_s(asked) / share
            if time_s * least_gain < step_time_s:
                fits = step_fits(context, asked)
                found.append((Alternative(words, time_s, fits, batch, batch * asked.micro_batches), context, asked))
    found.sort(key=lambda each: round(each[0].step_time_s, 12))
    alternatives = [other for other, _, _ in found]
    best = next((i for i, other in enumerate(alternatives) if other.fits), None)
    if best is not None:
        _, context, asked = found[best]
        most = max(need.total_bytes for need in needs(context, asked))
        alternatives[best] = replace(alternatives[best], total_bytes=most)
    return tuple(alternatives)


def with_size(question: StepQuestion, setting: tuple[str, int | str]) -> StepQuestion:
    """Return *question* with *setting*, a size of its network."""
    return replace(question, sizes=(*(size for size in question.sizes if size[0] != setting[0]), setting))


def with_change(change: Change, question: StepQuestion) -> StepQuestion:
    """Return *question* with *change* of its options; raises InputError where they do not go together."""
    return replace(question, options=change.applied(question.options))


def samples_words(samples: SamplesOption, question: StepQuestion) -> str:
    """Return the option *samples* with its value in *question*."""
    return f"{word_of(samples)} {question.micro_batches if samples == 'micro_batches' else question.batch}"


def step_fits(context: Context, question: StepQuestion) -> bool:
    """Return whether the step of *question* fits in each device's memory; raises as :meth:`Context.step`."""
    bare = needs(context, question, gaps=False)
    whole = bare if all(map(has_room, bare)) or not all(need.fits for need in bare) else needs(context, question)
    return all(need.fits for need in whole)


def has_room(need: MemoryNeed) -> bool:
    """Return whether the allocator's gaps, which *need* leaves out, would fit too, however many they are."""
    return need.total_bytes + need.allocated_bytes <= need.available_bytes


def needs(context: Context, question: StepQuestion, *, gaps: bool = True) -> list[MemoryNeed]:
    """Return what *question* needs on its unlike devices, *gaps* or not; raises as :meth:`Context.step`."""
    devices, count = _devices(context, question)
    if question.divided or (question.layout.pp > 1 and len(devices) > 1):  # who computes what must be found first
        return [device.need for device in context.step(question).memory]
    network, group = context.network(question), group_taking_part(context, question, count)
    return [need_on(device, count, network, question, group, gaps=gaps) for device in devices]


def group_taking_part(context: Context, question: StepQuestion, count: int) -> Communicator | None:
    """Return the communicator of the *count* GPUs of *question*; None for one device, or where CPUs help them."""
    group = context.group(question.where, question.gpus) if count > 1 else None
    return group if group is not None and group.n_ranks == count else None


def need_on(
    device: Device,
    n_ranks: int,
    network: Network,
    question: StepQuestion,
    group: Communicator | None = None,
    *,
    gaps: bool = True,
) -> MemoryNeed:
    """Return what a step of *network* needs on the fullest of *n_ranks*, without *gaps* and *group* less."""
    if n_ranks == 1:
        return alone_memory(network, question, device, gaps=gaps).times(question.programs)
    layout = question.layout.on(n_ranks)
    placement = Placement(group, layout) if group is not None else None
    return most_needed(divided(network, layout), question, device, layout, placement, gaps=gaps)


def least_step_s(context: Context, question: StepQuestion) -> float:
    """Return a lower bound of *question*'s step time (0 for pipelines, unlike devices, shared ones), or InputError."""
    devices, count = _devices(context, question)
    shared = question.one_process or question.programs > 1 or question.divided
    if question.layout.pp > 1 or len(devices) > 1 or shared:
        return 0.0
    network, options = context.network(question), question.rank_options
    part = divided(network, question.layout.on(count)) if count > 1 else network
    issues = [issue for issue in launches_of(devices[0], part, options) if issue.part != "update"]
    once = [issue for issue in issues if not issue.adds]  # the first micro-batch accumulates nothing
    waits = contend(question) and not question.has_servers
    pace = slowest_of(count, devices[0].constants) if waits else 1.0
    host_s = 0.0 if options.cuda_graph else sum(issue.host_s for issue in once)
    return question.micro_batches * max(host_s, pace * sum(issue.device_s for issue in once)) * _ROUNDED


def _devices(context: Context, question: StepQuestion) -> tuple[list[Device], int]:
    if (place := context.single(question)) is not None:
        return [place.device], 1
    return list(dict.fromkeys(devices_of(context, question))), context.group(question.where, question.gpus).n_ranks
