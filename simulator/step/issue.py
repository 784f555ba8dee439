"""The calls of the framework in a step, in order, with kernels and costs (docs/decisions/step-models.md)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING

from simulator.devices import KernelCost
from simulator.devices.dispatch import bare_launch_time, dispatch_time, framework_scale, host_time
from simulator.devices.gpu import Gpu
from simulator.devices.gpu.rates import streaming_share
from simulator.devices.optimizer import tensor_passes
from simulator.devices.predict import Device, drawing_device, kernel_cost, steady_device
from simulator.questions.options import StepOptions
from simulator.records import replace
from simulator.step import launch
from simulator.step.fusion import FusedLayers, is_generated, run_groups
from simulator.step.launch import NOTHING, DeviceWork, Launch, LayerCollective, Part
from simulator.step.lowering import NORM, TO_MASTER, UNSCALE, KernelRun, Lowering, Mix
from simulator.step.megatron import buffer_element_bytes, has_engine, has_gradient_buffer, own_tensors, sums_in_fp32
from simulator.step.precision import scales, storage_of
from simulator.step.recompute import reruns_of
from simulator.workload import operators as ops
from simulator.workload.backward import BackwardStep, backward_steps
from simulator.workload.kernels import Gemm, Kernel, Streaming, error_class
from simulator.workload.network import Layer, Network, backward_needs, forward_needs, once
from simulator.workload.precision import ELEMENT_BYTES

if TYPE_CHECKING:
    from simulator.step.megatron_passes import ExpertExtras
    from simulator.step.muon import WeightMatrix


_MORE_OF_BATCH_NORM: dict[Part, int] = {"forward": 3, "backward": 2}  # kernels beside the one that is counted


class _Issuer:
    def __init__(self, device: Device, network: Network, options: StepOptions) -> None:
        self.device = device = steady_device(device)
        self.network, self.options = network, options
        self.is_megatron = options.framework == "megatron"
        self.lowering = Lowering(device, network, options)
        # Blocks repeat.
        self.known: dict[tuple[ops.Operator, ops.Phase, Mix, bool], tuple[float, DeviceWork] | None] = {}
        self.runs: dict[tuple[Streaming, ...], DeviceWork] = {}
        self.passes: dict[tuple[KernelRun, Part], tuple[float, DeviceWork]] = {}
        self.updates: dict[int | WeightMatrix, tuple[float, DeviceWork]] = {}  # of single tensors, by their elements
        products = [layer.operator for layer in network.layers if isinstance(layer.operator, ops.GroupedLinear)]
        self.reads_rows = not any(product.routing.padded for product in products)  # else all experts are filled up
        self.looks: Mapping[str, int] = {}
        self.extras: Mapping[tuple[str, str], ExpertExtras] = {}
        if self.is_megatron:
            from simulator.step.megatron_passes import looks_of, passes_of

            self.looks, self.extras = looks_of(network), passes_of(network, options)
        self.scale = framework_scale(device, options.framework, engine=has_engine(network))
        self.is_inductor = options.compiled and options.framework != "tensorflow" and isinstance(device, Gpu)
        self.of_library = framework_scale(device, options.framework) / self.scale  # calls of a module in C++
        self.readers = Counter(tensor for layer in network.layers for tensor in layer.inputs)
        exchanges = any(isinstance(layer.operator, ops.Exchange) for layer in network.layers)
        backward, self.added_needs = backward_needs(network) if exchanges else ({}, {})
        forward = forward_needs(network) if exchanges else {}
        self.needs: Mapping[Part, Mapping[str, tuple[str, ...]]] = {"forward": forward, "backward": backward}

    def layer(self, layer: Layer, phase: ops.Phase, part: Part) -> Iterator[Launch]:
        if isinstance(layer.operator, ops.Exchange):
            yield from self.exchanged(layer, layer.operator, part)
            return
        extra = self.extras.get((layer.name, part))
        if extra is not None:
            yield from self.around(layer, part, extra.before, extra.calls)
        priced = self.priced(layer, phase)
        if priced is not None and extra is not None and extra.own is not None:
            priced = (priced[0], self.passed(extra.own)) if extra.own else None
        needs = self.needs[part].get(layer.name, ())
        if priced is not None or needs:  # a layer without kernels still waits: later work of its stream uses its result
            host_s, work = priced or (0.0, NOTHING)
            if self.is_inductor:
                host_s = self.generated_s([layer], work, part) if is_generated(layer) else host_s
            elif priced is not None and part == "backward":
                own = own_tensors(layer) if self.is_megatron else len(layer.trained)
                host_s += self.of_library * host_time(self.device, "gradient_s", own)
            counts = part == "forward" and self.reads_rows and layer.name in self.looks
            looks = counts or layer.operator.host_reads(phase) or (extra is not None and extra.waits)
            waits = priced is not None and looks
            yield Launch(layer.name, part, host_s, work, waits, layer=layer.name, needs=needs)
        more = self.more_kernels(layer.operator)
        for run in self.lowering.casts(layer, forward=part == "forward"):
            cast = self.streamed(f"{layer.name} (cast)", part, run, layer.name)
            more_s = more * self.of_library * bare_launch_time(self.device) if more else 0.0
            yield replace(cast, host_s=cast.host_s + more_s) if more_s else cast
        if extra is not None:
            yield from self.around(layer, part, extra.after)

    def around(self, layer: Layer, part: Part, kernels: tuple[Streaming, ...], calls: int = 0) -> Iterator[Launch]:
        """Yield passes of an expert layer besides its own kernels: *calls* of plain torch, and one for each pass."""
        if not kernels and not calls:
            return
        stand_in = dispatch_time(self.device, ops.Copy(1), "fwd" if part == "forward" else "bwd_data")
        host_s = len(kernels) * stand_in + calls * stand_in / self.scale
        needs = self.needs[part].get(layer.name, ())
        yield Launch(f"{layer.name} (passes)", part, host_s, self.passed(kernels), layer=layer.name, needs=needs)

    def added(self, step: BackwardStep, steps: Mapping[str, BackwardStep]) -> tuple[int, ...]:
        """Return the sizes of the gradients that *step* adds; none where its layer is a step of a function."""
        extra = self.extras.get((step.layer.name, "backward"))
        steps_in = ops.Elementwise if step.layer.part == "experts" else ops.Elementwise | ops.Copy
        if extra is not None and extra.own is not None and isinstance(step.layer.operator, steps_in):
            return ()
        joined = self.lowering.joined.get(step.layer.name)
        if joined is None:
            return step.added_elements
        return steps[joined.adds_as].added_elements if joined.adds_as else ()

    def passed(self, kernels: tuple[Streaming, ...]) -> DeviceWork:
        if kernels not in self.runs:
            self.runs[kernels] = self.work(tuple(map(KernelRun, kernels)))
        return self.runs[kernels]

    def more_kernels(self, operator: ops.Operator) -> int:
        """Return the extra kernels of an expert layer: Megatron-LM launches one kernel per expert."""
        return operator.busy_experts - 1 if isinstance(operator, ops.GroupedLinear) and self.is_megatron else 0

    def exchanged(self, layer: Layer, operator: ops.Exchange, part: Part) -> Iterator[Launch]:
        needs, forward = self.needs[part].get(layer.name, ()), part == "forward"
        host_s = dispatch_time(self.device, ops.Copy(operator.elements), "fwd" if forward else "bwd_data")
        waits = forward and self.reads_rows and layer.name in self.looks
        # Paddle's modules exchange for each product, and copy where nothing is sent (mp_layers.py, c_identity).
        apart = self.options.framework == "paddle" and operator.axis == "tp"
        times = self.readers[layer.output] if apart and operator.forward in (None, "all-gather") else 1
        sends = [*launch.collectives_of(operator, self.device, self.options, forward=forward)] * times
        for sent in sends:
            yield Launch(layer.name, part, host_s, NOTHING, waits, layer=layer.name, sent=sent, needs=needs)
        if apart and not sends:
            n_bytes = operator.elements * ELEMENT_BYTES[storage_of(self.options.precision)]
            run = KernelRun(Streaming("copy", operator.elements, n_bytes, n_bytes))
            copied = replace(self.streamed(f"{layer.name} (copied)", part, run, layer.name), needs=needs)
            yield from [copied] * times
        extra = self.extras.get((layer.name, part))
        for sent in extra.sent if extra is not None else ():
            yield Launch(f"{layer.name} (routing)", part, host_s, NOTHING, layer=layer.name, sent=sent, needs=needs)
        if layer.name in self.looks and operator.axis == "ep" and not operator.flex:
            name, size_bytes = f"{layer.name} (probabilities)", self.looks[layer.name] * ELEMENT_BYTES["fp32"]
            sent = LayerCollective("ep", "all-to-all", size_bytes)
            yield Launch(name, part, host_s, NOTHING, layer=layer.name, sent=sent, needs=needs)

    def priced(self, layer: Layer, phase: ops.Phase) -> tuple[float, DeviceWork] | None:
        operator = self.lowering.computed(layer, phase)
        if operator is None:
            return None
        mix, has_parameters = self.lowering.mix(layer), bool(layer.parameters)
        key = operator, phase, mix, has_parameters
        known = self.known.get(key, self)
        if not isinstance(known, _Issuer):
            return known
        runs = self.lowering.layer(operator, phase, mix, has_parameters=has_parameters)
        more = self.more_kernels(operator) * (2 if phase == "bwd" else 1)
        more_s = self.of_library * host_time(self.device, "product_s", more)
        calls = len(runs) if isinstance(operator, ops.LayerNorm) and operator.plain else 1
        host_s = calls * dispatch_time(self.device, operator, phase) + more_s if runs else 0.0
        found = self.known[key] = (host_s, self.work(runs)) if runs else None
        return found

    def fused(self, group: FusedLayers, part: Part, added_elements: int = 0) -> Launch:
        layer = group.layers[-1].name
        name = f"{layer} (fused with {len(group.layers) - 1} before)"
        runs = self.lowering.group(group, forward=part == "forward", added_elements=added_elements)
        needs = [need for each in group.layers for need in self.needs[part].get(each.name, ())]
        if added_elements:
            needs += [need for each in group.layers for need in self.added_needs.get(each.name, ())]
        work = self.work(runs)
        host_s = self.generated_s(group.layers, work, part)
        return Launch(name, part, host_s, work, layer=layer, needs=tuple(dict.fromkeys(needs)))

    def generated_s(self, layers: Sequence[Layer], work: DeviceWork, part: Part) -> float:
        if not self.is_inductor:
            return len(work.costs) * bare_launch_time(self.device)
        norms = sum(isinstance(layer.operator, ops.BatchNorm) for layer in layers) if self.options.trains else 0
        return host_time(self.device, "generated_s", len(work.costs) + norms * _MORE_OF_BATCH_NORM[part])

    def streamed(self, name: str, part: Part, run: KernelRun, layer: str = "") -> Launch:
        key = run, part
        if key not in self.passes:
            assert isinstance(run.kernel, Streaming)
            function, n = run.kernel.function, run.kernel.elements
            stand_in = ops.Copy(n) if function == "copy" else ops.Elementwise(function, n)
            host_s = dispatch_time(self.device, stand_in, "fwd" if part == "forward" else "bwd_data")
            if self.is_inductor and part != "update":
                host_s = host_time(self.device, "generated_s")
            self.passes[key] = host_s, self.work((run,))
        return Launch(name, part, *self.passes[key], layer=layer)

    def accumulated(self, layer: Layer) -> Iterator[Launch]:
        run = self.lowering.accumulated(layer)
        if run is not None:
            issue = self.streamed(f"{layer.name} (gradients accumulated)", "backward", run, layer.name)
            yield replace(issue, host_s=len(layer.trained) * bare_launch_time(self.device), adds=True)

    def tensor_updated(self, name: str, elements: "int | WeightMatrix") -> Launch:
        """Return the update of a single tensor, a call per pass; where the host reads a result, the next one waits."""
        waits = any(each.looked_at for each in tensor_passes(self.options.optimizer))
        if elements not in self.updates:
            call_s, passes = host_time(self.device, "update_s", 1), list(self.lowering.tensor_update(elements))
            product_s = dispatch_time(self.device, ops.MatMul(1, 1, 1), "fwd", is_taped=False)
            issued_s = done_s = 0.0
            for each, run in passes:
                issued_s += product_s if isinstance(run.kernel, Gemm) else call_s * each.called
                done_s = max(done_s, issued_s) + run.cost(self.device).time_s
                issued_s = done_s if each.looked_at else issued_s
            work = self.work([run for _, run in passes])
            self.updates[elements] = max(0.0, done_s - work.time_s) if waits else issued_s, work
        whole, told = not isinstance(elements, int), f"{self.options.optimizer} step of {name}"
        return Launch(told, "update", *self.updates[elements], waits=waits, whole=whole)

    def work(self, runs: Sequence[KernelRun]) -> DeviceWork:
        return _work([run.kernel for run in runs], tuple(run.cost(self.device) for run in runs))


def work_of(device: Device, kernels: Sequence[Kernel]) -> DeviceWork:
    """Return *kernels* as they run on *device* in a step: at the clock that it holds for minutes on end."""
    steady = steady_device(device)
    return _work(kernels, tuple(kernel_cost(steady, kernel) for kernel in kernels))


def _work(kernels: Iterable[Kernel], costs: tuple[KernelCost, ...]) -> DeviceWork:
    return DeviceWork(tuple(map(error_class, kernels)), costs, sum(cost.time_s for cost in costs))


def budgeted(device: Gpu, costs: Iterable[KernelCost]) -> Gpu:
    """Return *device* as it runs products in a step of *costs* at the board's limit, with power that others leave."""
    products_s = others_s = 0.0
    for cost in costs:
        if cost.bound == "compute":
            products_s += cost.time_s
        else:
            others_s += cost.time_s
    spent = products_s - (1.0 - streaming_share(device)) * others_s
    share = min(products_s / spent, device.burst) if spent > 0.0 else device.burst
    return drawing_device(device, round(share, 2))


@once
def launches_of(device: Device, network: Network, options: StepOptions) -> tuple[Launch, ...]:
    """Return the operators that a step of *network* issues, in order; or InputError for a precision without figures."""
    if isinstance(device, Gpu) and device.burst > 1.0 and not device.is_rested:
        kept = [each for each in _issued(device, network, options) if each.over == "kept"]
        device = budgeted(device, [cost for each in kept for cost in each.work.costs])
    return _issued(device, network, options)


@once
def _issued(device: Device, network: Network, options: StepOptions) -> tuple[Launch, ...]:
    if options.cuda_graph:  # the same kernels, which advice on a step without a graph has already priced
        plain = _issued(device, network, replace(options, cuda_graph=False, cuda_graph_blocks=False))
        return tuple(launch.captured_whole(device, issue) for issue in plain)
    issuer = _Issuer(device, network, options)
    groups = run_groups(network, options)
    issues: list[Launch] = []
    if options.mode != "backward":
        for group in groups:
            issues += _forward(issuer, group)
    if options.mode in ("train", "backward"):
        issues += _backward(issuer, groups)
    if options.mode == "train":
        issues += _update(issuer, network, options)
    if any(isinstance(layer.operator, ops.Exchange) and layer.operator.beside for layer in network.layers):
        issues = launch.shared_beside(network, issues)
    if issuer.is_inductor:
        issues = launch.called_compiled(device, network, issues, taped=options.mode != "inference")
    elif options.compiled:  # compiled code issues all but the optimiser, which is outside of the model
        call_s = bare_launch_time(device)
        most_s = [call_s * len(issue.work.costs) if issue.part != "update" else inf for issue in issues]
        issues = [replace(each, host_s=min(each.host_s, most)) for each, most in zip(issues, most_s, strict=True)]
    if options.cuda_graph_blocks:
        issues = launch.captured_blocks(device, network, issues)
    if options.framework == "deepspeed-zero3":
        issues = launch.hooked(device, network, issues)
    scale = issuer.scale
    if scale != 1.0:
        issues = [issue if issue.part == "update" else replace(issue, host_s=scale * issue.host_s) for issue in issues]
    if options.launch_blocking:
        issues = [replace(issue, waits=True) for issue in issues]
    return tuple(issues)


@once
def gradient_work(device: Device, network: Network, options: StepOptions) -> Mapping[str, DeviceWork]:
    """Return the kernels of *device* for gradients of parameters in the backward pass of *network*, by layer."""
    issuer = _Issuer(device, network, options)
    found = {}
    for step in backward_steps(network):
        if step.layer.trained and not isinstance(step.layer.operator, ops.Exchange):
            priced = issuer.priced(step.layer, "bwd_weight")
            if priced is not None:
                found[step.layer.name] = priced[1]
    return found


def _forward(issuer: _Issuer, group: FusedLayers) -> Iterator[Launch]:
    if len(group.layers) == 1:
        yield from issuer.layer(group.layers[0], "fwd", "forward")
    else:
        yield issuer.fused(group, "forward")


def _backward(issuer: _Issuer, groups: Sequence[FusedLayers]) -> Iterator[Launch]:
    network = issuer.network
    steps = {id(step.layer): step for step in backward_steps(network)}
    by_name = {step.layer.name: step for step in steps.values()}
    group_of = {place: number for number, group in enumerate(groups) for place in group.places}
    recomputed: dict[int, dict[int, None]] = {}  # the groups that run again, by that before whose backward pass they do
    for rerun in reruns_of(network, issuer.options):
        again = dict.fromkeys(sorted({group_of[place] for place in rerun.layers}))
        recomputed.setdefault(group_of[rerun.before], {}).update(again)
    for place in range(len(groups) - 1, -1, -1):
        for number in recomputed.get(place, ()):
            for issue in _forward(issuer, groups[number]):
                yield replace(issue, name=f"{issue.name} (again)", part="backward", again=True)
        group = groups[place]
        found = [steps[id(layer)] for layer in group.layers if id(layer) in steps]
        if len(group.layers) > 1 and found:
            yield issuer.fused(group, "backward", sum(sum(step.added_elements) for step in found))
            continue
        for step in found:
            yield from issuer.layer(step.layer, step.phase, "backward")
            yield from issuer.accumulated(step.layer)
            for elements in issuer.added(step, by_name):
                run = issuer.lowering.added(elements, step.layer)
                added = issuer.streamed(f"{step.layer.name} (gradients added)", "backward", run, step.layer.name)
                needs = issuer.added_needs.get(step.layer.name)
                yield replace(added, needs=needs) if needs else added


def _update(issuer: _Issuer, network: Network, options: StepOptions) -> Iterator[Launch]:
    n, has_buffer = network.trained_count, has_gradient_buffer(options)
    count = sum(map(own_tensors, network.layers)) if has_buffer else sum(p.trained for p in network.parameters)
    gathering_s = host_time(issuer.device, "update_s", count)
    if has_buffer:
        # Besides, Megatron-Core's distributed optimiser takes six calls of views and copies in Python a parameter
        # (_copy_model_grads_to_main_grads, _copy_main_params_to_model_params in
        # megatron/core/optimizer/distrib_optimizer.py).
        gathering_s += 6 * count * bare_launch_time(issuer.device)
    # The gradient scaler checks that all gradients are finite before the optimiser may step, Megatron-LM their norm.
    looks = scales(options.precision) or sums_in_fp32(options)
    passes = [(name, issuer.streamed(name, "update", run)) for name, run in issuer.lowering.update()]
    if has_buffer and passes:  # zeros before a step, a norm that must be finite, and the mean of the ranks' sums
        # zero_grad_buffer, check_grads, start_grad_sync in megatron/core/distributed.  NCCL divides in its place with
        # --ddp-average-in-collective, but for experts.
        n_bytes = n * buffer_element_bytes(options)
        zeroed, averaged = Streaming("fill", n, 0, n_bytes), Streaming("mul_scalar", n, n_bytes, n_bytes)
        yield replace(issuer.streamed("gradients zeroed", "update", KernelRun(zeroed)), over="all")
        checked = KernelRun(Streaming("sum", n, n_bytes, 0))
        yield replace(issuer.streamed("gradients checked", "update", checked), over="all")
        yield replace(issuer.streamed("gradients averaged", "update", KernelRun(averaged)), over="summed")
    yield from (issue for name, issue in passes if name in (UNSCALE, TO_MASTER, NORM))
    for issue in (issuer.tensor_updated(*each) for each in issuer.lowering.singly()):
        yield replace(issue, waits=issue.waits or looks)
        looks, gathering_s = False, gathering_s if options.optimizer == "muon" else 0.0  # of Adam's tensors
    for issue in (issue for name, issue in passes if name not in (UNSCALE, TO_MASTER, NORM)):
        yield replace(issue, host_s=issue.host_s + gathering_s, waits=looks and gathering_s > 0.0)
        looks, gathering_s = False, 0.0
