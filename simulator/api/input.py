"""A step with its input pipeline, simulated to a steady state, and remedies if it waits for input."""

from collections.abc import Callable, Iterator
from functools import partial
from math import ceil, gcd, isfinite, sqrt
from typing import Any

from simulator.api.context import Context
from simulator.engine.executor import execute
from simulator.engine.timeline import Timeline
from simulator.errors import one_line, refused
from simulator.host.copies import copy_plan
from simulator.host.input import FedStep, InputWork, batch_load, disks_of, hit_share, plan_input
from simulator.network.machine import Machine
from simulator.plan.plan import PlanBuilder
from simulator.questions.checks import changed
from simulator.questions.input import HELD, MEMORY, InputQuestion
from simulator.questions.single import CopyQuestion
from simulator.questions.step import StepQuestion
from simulator.records import fields, replace
from simulator.results.input import FED, Cure, InputRun, begins_of, step_ends
from simulator.results.step_view import time_shares
from simulator.results.training import TrainingResult
from simulator.results.training_run import WORTH_SAYING
from simulator.topology.parts import StoragePart

_PASSES: dict[str, Any] = {"mode": "inference", "recompute": "none", "recompute_blocks": None}
_OF_TRAINING = ("layout", "micro_batches", "stragglers", "checkpoints", "divided", "remainder", "helpers")
_SAME = 1e-3  # relative difference between two cycles of workers that counts as steady
_MOST_STEPS = 400
_WORKERS, _AHEAD = 16, 2  # most workers simulated one by one, and prefetched batches of each
_MOST_WORKERS = 64
_SPARE = 1.02  # margin in the number of workers, so that they never limit the step
_RATIO = 1.25  # of images, width to height, and area to the square of the short side
_SHORT_PIXELS = 256.0 * 256.0 * _RATIO  # of images resized beforehand for networks that read 224 x 224


def with_input(context: Context, question: StepQuestion, step: Callable[[], TrainingResult]) -> TrainingResult:
    """Return the result of *step* with the input of *question*; raises InputError, also if they do not go together."""
    asked = question.input
    assert asked is not None
    if question.has_servers:
        raise refused("input", "is for steps that all devices do together, not for parameter servers")
    network = context.network(question)
    if asked.holds and network.sample in HELD and asked.holds != network.sample:
        why = f"{one_line(asked.name, 60)} holds {asked.holds}, and {network.name} reads {network.sample}"
        raise refused("input", why)
    result = step()
    return replace(result, input=_Input(context, question, result).run(asked))


def with_input_cures(context: Context, question: StepQuestion, result: TrainingResult) -> TrainingResult:
    """Return *result*, of a step with an input, with changes that would feed the step if it waits for that."""
    run = result.input
    assert run is not None
    if run.bound == "step":
        return result
    own = _Input(context, question, replace(result, input=None))
    cures = []
    found, found_s, words = run.asked, run.period_s, ""
    for change, other in own.cures(run.asked, run.memory_bytes):
        alone_s = own.run(other).period_s
        if alone_s * WORTH_SAYING < run.period_s:
            cures.append(Cure(change, alone_s))
        if found_s > run.step_s * FED:  # still not fed: try this change together with the earlier ones
            changes = {name: getattr(other, name) for name in InputQuestion.__dataclass_fields__}
            both = replace(found, **{k: value for k, value in changes.items() if value != getattr(run.asked, k)})
            both_s = alone_s if found == run.asked else own.run(both).period_s
            if both_s * WORTH_SAYING < found_s:
                found, found_s, words = both, both_s, f"{words}, {change}" if words else change
    best = Cure(words, found_s) if words else None
    ranked = tuple(sorted(cures, key=lambda cure: round(cure.step_time_s, 12)))
    return replace(result, input=replace(run, cures=ranked, cure=best))


class _Input:
    def __init__(self, context: Context, question: StepQuestion, result: TrainingResult) -> None:
        self.context, self.question, self.result = context, question, result
        places = context.places(question.where)
        self.machine: Machine = places.machine
        self.cpu = places.host_of(None)
        self.router = context.router(question.where)
        self.on_cpu = result.step.on_host
        self.network = context.network(question)
        self.local: tuple[int, ...] = ()  # the numbers of the participating GPUs of the first node
        gpus = self.machine.gpus
        if not self.on_cpu and result.device_count == 1:
            self.local = (gpus.index(self.machine.node(result.step.device).index),)
        elif not self.on_cpu:
            chosen = question.gpus if question.gpus is not None else range(len(gpus))
            hosts = {number: self.machine.nodes[gpus[number]].host for number in chosen}
            self.local = tuple(number for number, host in hosts.items() if host == hosts[next(iter(chosen))])

    def run(self, asked: InputQuestion) -> InputRun:
        shape = self._shape()
        held = self.cpu.constants["input"].cache_share * self.cpu.memory_bytes
        feeding = self._feeding(asked, 1.0)
        waiting = asked.workers * asked.prefetch * (1 + asked.pinned)  # batches of the workers, and page-locked ones
        buffers_bytes = feeding.loaders * max(1, waiting) * feeding.load.batch_bytes
        cached = hit_share(asked, max(0.0, held - buffers_bytes)) if disks_of(asked, self.machine) else 0.0
        steps = -(-asked.samples // self.result.samples)
        first, first_s = self._steady(feeding, shape, steps)
        later, later_s, last = first, first_s, feeding
        if cached and asked.epochs > 1:
            last = self._feeding(asked, 1.0 - cached)
            later, later_s = self._steady(last, shape, steps)

        def epoch_s(timeline: Timeline, period_s: float) -> float:
            ends = step_ends(timeline)
            return ends[steps - 1] if steps <= len(ends) else ends[-1] + (steps - len(ends)) * period_s

        disks = disks_of(asked, self.machine)
        in_memory = asked.set_bytes if not disks else min(asked.set_bytes, held) if asked.cache == MEMORY else 0.0
        return InputRun(
            asked=asked,
            disks=tuple(disk.part_name or disk.name for disk in disks),
            load=last.load,
            period_s=later_s,
            first_period_s=first_s,
            filled_s=begins_of(later),
            step_s=self._own_s(shape),
            epoch_steps=steps,
            first_s=epoch_s(first, first_s) if steps else 0.0,
            later_s=epoch_s(later, later_s) if steps else 0.0,
            evaluation_s=self._evaluation_s(asked),
            limits_s=self._limits_s(last, shape),
            cached_share=cached if asked.epochs > 1 else 0.0,
            buffers_bytes=buffers_bytes,
            kept_bytes=in_memory,
            memory_bytes=self.cpu.memory_bytes,
            timeline=later,
        )

    def _shape(self) -> FedStep:
        result, step = self.result, self.result.step
        processes = 1 if self.question.one_process else max(1, len(self.local))
        if self.on_cpu:
            share = min(1.0, (self.question.threads or self.cpu.core_count) / self.cpu.core_count)
            return FedStep(0.0, result.step_time_s, 0.0, 1, core_share=share)
        wait_s = time_shares(result).get("host", 0.0)
        device_s = result.step_time_s - wait_s
        carried, capacity_Bps = result.timeline.resource_bytes.carried(), self.machine.capacity_Bps
        loads = tuple((at, min(1.0, n_bytes / capacity_Bps[at] / device_s)) for at, n_bytes in carried if device_s)
        return FedStep(min(wait_s, step.host_s), device_s, step.host_s, processes, loads)

    def _feeding(self, asked: InputQuestion, missed: float) -> InputWork:
        question, count = self.question, max(1, len(self.local))
        one = question.one_process
        network = self.network
        load = batch_load(
            asked,
            self.machine,
            self.cpu,
            samples=network.samples * (count if one else 1),
            sample_elements=network.fed_elements / network.samples,
            element_bytes=8 if network.tokens else 4,
            is_image=network.sample == "images",
            missed=missed,
        )
        places = self.context.places(question.where)
        size = load.batch_bytes / (count if one else 1)
        copied = partial(CopyQuestion, where=question.where, kind="h2d", size_bytes=size, pinned=asked.pinned)
        copies = tuple(copy_plan(copied(src=gpu), places, self.router) for gpu in self.local)
        loaders = 1 if one else max(1, count // question.layout.model_ranks)
        return InputWork(asked, load, loaders, question.micro_batches, self.cpu.core_count, copies)

    def _steady(self, feeding: InputWork, shape: FedStep, steps: int) -> tuple[Timeline, float]:
        """Return the timeline of several steps, or of a short epoch, and the seconds of a steady step."""
        asked = feeding.asked
        if asked.workers * asked.prefetch > _WORKERS * _AHEAD:  # once steady, a longer queue changes nothing
            asked = replace(asked, prefetch=min(_AHEAD, asked.prefetch))
        if asked.workers > _WORKERS:
            feeding = replace(feeding, pace=asked.workers / _WORKERS)
            asked = replace(asked, workers=_WORKERS)
        feeding = replace(feeding, asked=asked)
        workers = max(1, asked.workers)
        cycle = workers // gcd(workers, feeding.batches)
        ahead = ceil(workers * asked.prefetch / feeding.batches) + asked.ahead
        count = 2 * ahead + 3 * cycle + 2
        while True:
            count = min(count, steps or count)
            timeline = execute(self.machine, plan_input(self.machine, self.router, feeding, shape, count))
            ends = step_ends(timeline)
            if count < steps or not steps:  # at the end nothing more is loaded, so the last steps are faster
                ends = ends[:-ahead]
            if len(ends) <= 2 * cycle:
                many = min(cycle, len(ends) - 1)
                return timeline, (ends[-1] - ends[-1 - many]) / many if many else ends[-1]
            last, before = ((ends[-1 - i * cycle] - ends[-1 - (i + 1) * cycle]) / cycle for i in (0, 1))
            if abs(last - before) <= _SAME * last or count in (_MOST_STEPS, steps):
                return timeline, last
            count = min(_MOST_STEPS, 2 * count)

    def _evaluation_s(self, asked: InputQuestion) -> float:
        if not asked.evaluate:
            return 0.0
        question = self.question
        gpus = (self.local[0],) if self.local and question.device is None else question.gpus
        usual = {each.name: each.default for each in fields(StepQuestion) if each.name in _OF_TRAINING}
        evaluated = replace(asked, samples=asked.evaluate, evaluate=0, epochs=1, cache="none")
        options = replace(question.options, fused_optimizer=False, **_PASSES)
        alone = changed(question, gpus=gpus, options=options, input=evaluated, **usual)
        run = self.context.step(alone).input
        assert run is not None
        return run.first_s

    def _own_s(self, shape: FedStep) -> float:
        asked = self.question.input
        assert asked is not None
        under_way = asked.steps_under_way
        free_s = max(shape.device_s, shape.host_s)
        return max(free_s, shape.alone_s / under_way) if under_way > 1 else shape.alone_s

    def _limits_s(self, feeding: InputWork, shape: FedStep) -> dict[str, float]:
        asked, load = feeding.asked, feeding.load
        all_s = feeding.loaders * feeding.batches
        found = {"step": self._own_s(shape)}
        for disk in load.disks:
            name = "disk_operations" if disk.by_operations else "disk_bandwidth"
            found[name] = max(found.get(name, 0.0), all_s * disk.busy_s)
            cpu = self.router.nearest_cpu(disk.node)
            if cpu is not None:
                rate_Bps = self.router.route(disk.node, cpu).bandwidth_Bps
                found["disk_link"] = max(found.get("disk_link", 0.0), all_s * disk.bytes / rate_Bps)
        waits = "readers" if load.read_s > load.core_s else "decoders" if load.decode_s > load.core_s / 2 else "loaders"
        if asked.workers:
            found[waits] = feeding.batches * load.worker_s / asked.workers
        issuing_s = shape.processes * shape.host_s + shape.core_share * shape.device_s * feeding.cores
        found["cores"] = (all_s * load.core_s + issuing_s) / feeding.cores
        if load.pin_s and asked.workers:
            found["pinning"] = feeding.batches * load.pin_s
        loop_s = feeding.batches * load.taken_s * bool(asked.workers) + asked.batch_s + shape.host_s
        if not asked.workers:
            loop_s += feeding.batches * load.worker_s
        if feeding.copies:
            builder = PlanBuilder()
            for number, copy in enumerate(feeding.copies):
                builder.inline(copy, f"{number} ")
            copies_s = feeding.batches * execute(self.machine, builder.build()).end_s
            in_turn_s = 0.0 if asked.ahead else self._own_s(shape)
            found["copies" if asked.ahead else "copies_in_turn"] = copies_s + in_turn_s
            loop_s += 0.0 if asked.pinned else copies_s
        if loop_s > shape.host_s:
            found["loop"] = loop_s + (shape.alone_s - shape.host_s if asked.steps_under_way == 1 else 0.0)
        ranked = sorted(found.items(), key=lambda item: (-round(item[1], 12), item[0]))
        return {name: seconds for name, seconds in ranked if seconds}

    def cures(self, asked: InputQuestion, memory_bytes: float) -> Iterator[tuple[str, InputQuestion]]:
        """Yield changes of the input, in words and as a question, the cheapest first."""
        if not asked.pinned and self.local:
            yield "pinned=yes", replace(asked, pinned=True, ahead=1)
        if asked.steps_under_way == 1:
            yield "under_way=2", replace(asked, steps_under_way=2)
        shape, feeding = self._shape(), self._feeding(asked, 1.0)
        needed = ceil(feeding.batches * feeding.load.worker_s / self._own_s(shape) * _SPARE)
        cores = feeding.cores * max(1.0, feeding.load.worker_s / feeding.load.core_s)
        workers = min(needed, _MOST_WORKERS, max(1, int(cores / feeding.loaders)))  # which alone feed a step
        if workers > asked.workers:
            yield f"workers={workers}", replace(asked, workers=workers)
        disks = disks_of(asked, self.machine)
        if disks and not asked.block_bytes:
            yield "block=1MB", replace(asked, block_bytes=max(1e6, asked.sample_bytes))
        held = self.cpu.constants["input"].cache_share * memory_bytes
        if disks and asked.cache == "none" and asked.samples and asked.set_bytes <= held and isfinite(held):
            yield "cache=memory,epochs=2", replace(asked, cache="memory", epochs=max(2, asked.epochs))
        if asked.decode == "jpeg" and asked.pixels > _SHORT_PIXELS:  # images are resized beforehand
            size = asked.sample_bytes * _SHORT_PIXELS / asked.pixels
            width = round(sqrt(_SHORT_PIXELS * _RATIO))
            words = f"pixels={width}x{round(_SHORT_PIXELS / width)},sample={size / 1e3:.0f}KB"
            yield words, replace(asked, pixels=_SHORT_PIXELS, sample_bytes=size)
        used = [disk.index for disk in disks]
        for node in self.machine.nodes_of(0) if disks else ():
            if isinstance(node.part, StoragePart) and node.index not in used:
                yield f"disk={node.name}", replace(asked, disks=(node.name,))
