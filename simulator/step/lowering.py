"""The kernels of a step, as the framework or a compiler runs each operator's (docs/decisions/step-models.md)."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from simulator.devices import KernelCost
from simulator.devices.cpu import Cpu
from simulator.devices.gpu import Gpu
from simulator.devices.gpu.memory import resident_share
from simulator.devices.gpu.product import is_pipelined
from simulator.devices.optimizer import TensorPass, first_reads, optimizer_kernels, state_tensors, tensor_passes
from simulator.devices.predict import Device, kernel_cost
from simulator.questions.options import PYTORCH, QUANTISED, StepOptions
from simulator.records import dataclass, replace
from simulator.step import conversions
from simulator.step.fusion import FusedLayers
from simulator.step.megatron import buffer_element_bytes, has_gradient_buffer, sums_in_fp32
from simulator.step.memory import held_in, need_of
from simulator.step.precision import autocasts, casts, has_master, precision_of, scales, storage_of, updated_bytes
from simulator.workload.backward import needs_gradient
from simulator.workload.kernels import Gemm, Kernel, PassForm, Rowwise, Streaming
from simulator.workload.network import Layer, Network, readers_of
from simulator.workload.operators import BatchNorm, Conv2d, Convolution, Copy, Linear, Operator, Phase
from simulator.workload.precision import ELEMENT_BYTES, Precision

if TYPE_CHECKING:
    from simulator.step.megatron_passes import JointProduct
    from simulator.step.muon import WeightMatrix

UNSCALE = "unscale gradients"
TO_MASTER = "gradients to fp32"
NORM = "norm of gradients"
FP32_BYTES = ELEMENT_BYTES["fp32"]
_BOUNDARY_BYTES = 16  # at which compilers start the rows of products


@dataclass(frozen=True, slots=True)
class KernelRun:
    """A kernel as a step runs it."""

    kernel: Kernel
    cold: float = 0.0  # share of its bytes that is in no cache
    moved_bytes: float = 0.0  # of a whole group of which it is the reduction; 0: its own

    def cost(self, device: Device) -> KernelCost:
        """Return the cost on *device*; time grows in proportion to any bytes beyond the kernel's own."""
        alone = kernel_cost(device, self.kernel, self.cold)
        if not self.moved_bytes:
            return alone
        stretch = max(1.0, self.moved_bytes / alone.bytes) if alone.bytes else 1.0
        return replace(alone, time_s=alone.time_s * stretch, bytes=max(alone.bytes, self.moved_bytes))


class Mix(NamedTuple):
    """The format in which an operator computes, and the number of its inputs in a narrower format."""

    precision: Precision
    narrow_inputs: int = 0
    narrow_rows: bool = False  # autocast casts the log-softmax for the loss alone (aten/.../LossNLL.cpp)
    strided: bool = False  # a copy of one tensor in another order


def forgotten_share(device: Device, step_bytes: float) -> float:
    """Return the share of old data that is in no cache after *step_bytes* have passed through it."""
    if isinstance(device, Cpu):
        from simulator.devices.cpu.memory import held_share

        return 1.0 - held_share(device, step_bytes)
    return 1.0 - resident_share(device, step_bytes)


_COLOURS = 3
_NORMS = ("layer_norm", "layer_norm_bwd", "rms_norm", "rms_norm_bwd")


def padded(device: Device, kernel: Kernel) -> Kernel:
    """Return *kernel*, or the same product with rows padded to 16 bytes, whichever is faster on *device*."""
    if isinstance(kernel, Convolution) and kernel.shape.c_in == _COLOURS and kernel.shape.groups == 1:
        wider = replace(kernel, shape=replace(kernel.shape, c_in=_COLOURS + 1))
        return min((kernel, wider), key=lambda each: kernel_cost(device, each).time_s)
    if not isinstance(kernel, Gemm) or not isinstance(device, Gpu) or not is_pipelined(device, kernel.precision):
        return kernel
    whole = _BOUNDARY_BYTES // ELEMENT_BYTES[kernel.precision]
    left, right = kernel.layout
    rows = {"n", "k" if left == "N" else "m", "n" if right == "N" else "k"}  # lengths of the rows of C, A and B
    aligned = replace(kernel, **{side: -(-getattr(kernel, side) // whole) * whole for side in rows})
    if aligned == kernel:
        return kernel
    return min((kernel, aligned), key=lambda product: kernel_cost(device, product).time_s)


class Lowering:
    """The kernels of a step of *network* with *options* on *device*."""

    def __init__(self, device: Device, network: Network, options: StepOptions) -> None:
        self._device, self._network, self._options = device, network, options
        self._element_bytes = element = ELEMENT_BYTES[storage_of(options.precision)]
        self._wide = conversions.wide_in(network, options)
        self._turned = conversions.lays_out_channels_last(device, network, options)
        self._written = {layer.output for layer in network.layers}
        self._bias_later = {  # convolutions whose results only pointwise operators and reductions over rows read
            layer.name
            for layer in (network.layers if options.compiled else ())
            if isinstance(layer.operator, Conv2d) and layer.operator.bias
            if (readers := readers_of(network).get(layer.output)) and all(each.operator.fuses for each in readers)
        }
        self._needed = needs_gradient(network)
        eager = not options.compiled and options.precision not in QUANTISED
        self._dynamic = eager and options.framework in (*PYTORCH, "paddle") and options.framework != "megatron"
        narrow = (
            network.layers[index]
            for index in sorted(conversions.quantised_layers(network, options.precision), reverse=True)
        )
        once = options.compiled and options.scales_by_moment
        linear = (x for x in reversed(network.layers) if once and isinstance(x.operator, Linear) and x.inputs)
        # The first layer that reads an input in 8 bits, where one cast of it serves all.
        self._casts_in = {layer.inputs[0]: layer.name for layer in linear if not conversions.is_plain(layer)}
        self._quantises = {layer.inputs[0]: layer.name for layer in narrow}  # the first of the layers that read it
        self.joined: Mapping[str, JointProduct] = {}
        if options.framework == "megatron":
            from simulator.step.megatron_passes import joint_products

            self.joined = joint_products(network)
        self._sizes = [n * (FP32_BYTES if w else element) for n, w in zip(network.elements, self._wide, strict=True)]
        for tensor in conversions.read_by_products(network) if options.compiled else ():
            self._sizes[tensor] = network.elements[tensor] * element  # compilers write these in the products' format
        need = need_of(held_in(network, options), options, device)
        self._forgotten = forgotten_share(device, need.allocated_bytes - need.workspace_bytes)

    def mix(self, layer: Layer) -> Mix:
        """Return the number formats in which *layer* computes."""
        precision = precision_of(self._options.precision, layer.operator, self._device)
        if precision in ("fp8", "nvfp4") and conversions.is_plain(layer):
            precision = storage_of(self._options.precision)  # the logits stay in bf16
        if isinstance(layer.operator, Copy):
            strided = self._dynamic and len(layer.inputs) == 1
            return Mix("fp32" if self._wide[layer.output] else precision, strided=strided)
        narrow = sum(not self._wide[tensor] for tensor in layer.inputs)
        if not autocasts(self._options.precision) and (self._wide[layer.output] or narrow < len(layer.inputs)):
            return Mix("fp32", 0 if layer.operator.is_product else narrow)  # an adapter's
        if not self._wide[layer.output] or layer.operator.is_product:
            return Mix(precision)
        if layer.operator.fp32_always and self._dynamic and not conversions.is_before(self._device, "1.10"):
            return Mix("fp32", narrow_rows=not self._wide[layer.inputs[0]])
        promotes = layer.operator.autocast == "promotes"
        return Mix("fp32", narrow if promotes else 0)

    def computed(self, layer: Layer, phase: Phase) -> Operator | None:
        """Return the operator whose kernels compute *layer*, without what others add; None if they are another's."""
        joined = self.joined.get(layer.name)
        if joined is not None:
            return joined.operator
        operator = layer.operator
        if phase == "fwd" and layer.name in self._bias_later:
            assert isinstance(operator, Conv2d)
            return replace(operator, bias=False)
        return operator

    def layer(self, operator: Operator, phase: Phase, mix: Mix, *, has_parameters: bool) -> tuple[KernelRun, ...]:
        """Return the kernels of one operator in *phase*; none if it is folded into others."""
        options, element, forward = self._options, self._element_bytes, phase == "fwd"
        if options.precision in QUANTISED and operator.folds:
            return ()
        fused = options.compiled and options.framework in ("tensorflow", "pytorch")
        kernels = operator.kernels(phase, mix.precision, "" if fused else options.framework)
        if self._dynamic:
            kernels = tuple(k.by_index() if isinstance(k, Streaming) else k for k in kernels)
        if mix.narrow_inputs or mix.narrow_rows or mix.strided:
            kernels = tuple(self._mixed(at, kernel, operator, phase, mix) for at, kernel in enumerate(kernels))
        if options.compiled and (fused or not conversions.is_before(self._device, "2.1")):
            kernels = tuple(padded(self._device, kernel) for kernel in kernels)
        if self._is_pointwise(operator):
            kernels = (Streaming("batch_norm", n := operator.output_elements, n * element, n * element),)
        if isinstance(operator, Conv2d | BatchNorm):
            kernels = conversions.laid_out(self._device, kernels, channels_last=self._is_by_pixels(operator))
        if not self._dynamic:
            kernels = tuple(replace(k, own=False) if isinstance(k, Rowwise) else k for k in kernels)
        if options.framework == "megatron":  # Transformer Engine's normalisation
            kernels = tuple(replace(k, in_warps=k.kind in _NORMS) if isinstance(k, Rowwise) else k for k in kernels)
        if isinstance(operator, Linear) and options.accumulation == "product" and has_gradient_buffer(options):
            added: dict[str, Any] = {"adds": True, "out_bytes": buffer_element_bytes(options)}  # weights' gradients
            kernels = tuple(replace(k, **added) if isinstance(k, Gemm) and k.layout == "TN" else k for k in kernels)
        if forward and casts(options.precision):  # what is read has just been cast
            return tuple(self._run(k, 0.0) for k in kernels)
        return tuple(self._run(k, k.old_bytes(forward=forward, has_parameters=has_parameters)) for k in kernels)

    def _mixed(self, at: int, kernel: Kernel, operator: Operator, phase: Phase, mix: Mix) -> Kernel:
        """Return the kernel *at* this place in a *phase*, as *mix*; backward, each narrow factor is read once."""
        if isinstance(kernel, Rowwise) and mix.narrow_rows:
            return replace(kernel, precision=storage_of(self._options.precision))
        if isinstance(kernel, Streaming) and mix.strided:
            return replace(kernel, form=kernel.form or "strided")
        narrow = mix.narrow_inputs if phase == "fwd" else int(at < mix.narrow_inputs)
        if not isinstance(kernel, Streaming) or not narrow or (phase != "fwd" and kernel.function != "mul"):
            return kernel
        saved = narrow * operator.output_elements * (FP32_BYTES - self._element_bytes)
        return replace(kernel, read_bytes=kernel.read_bytes - saved, form="casts" if self._dynamic else kernel.form)

    def casts(self, layer: Layer, *, forward: bool) -> Iterator[KernelRun]:
        """Yield casts around fp32 operators, autocast's of weights or their gradients, and turns of images."""
        policy, half, elements = self._options.precision, self._element_bytes, self._network.elements
        if forward and self._turned and isinstance(layer.operator, Conv2d) and not autocasts(policy):
            for n in (elements[tensor] for tensor in layer.inputs if tensor not in self._written):
                yield self._copied(n, half, half)
        if policy in QUANTISED:
            yield from self._requantised(layer)
            return
        if not casts(policy) and not has_master(policy):
            yield from self._around_adapters(layer, forward=forward)
            return
        is_cast = not forward or self.computed(layer, "fwd") is not None  # else for the layer that stands for it
        precision = self.mix(layer).precision
        if layer.inputs and is_cast and precision == "fp8":
            yield from self._to_fp8(layer, elements[layer.inputs[0] if forward else layer.output], forward=forward)
        elif precision == "nvfp4" and (not forward or self._quantises[layer.inputs[0]] == layer.name):
            yield from map(KernelRun, conversions.nvfp4_passes(elements[layer.inputs[0] if forward else layer.output]))
        if autocasts(policy):  # compilers fuse these into the kernels that write what is cast
            for cast in conversions.casts_of(layer, self._wide, policy):
                fused = self._options.compiled and cast.tensor in self._written
                if not fused and (not cast.backward_alone if forward else self._needed[cast.tensor]):
                    widths = (FP32_BYTES, half) if cast.to_half == forward else (half, FP32_BYTES)
                    yield self._copied(elements[cast.tensor], *widths)
        elif precision_of(policy, layer.operator, self._device) == "fp32":
            for tensor in (layer.inputs[0], layer.output) if layer.inputs else ():
                yield self._copied(elements[tensor], half, FP32_BYTES)
            return
        is_done = layer.operator.saves_gradients and not forward  # in the format of the parameters
        if has_master(policy) or not layer.operator.is_product or is_done:
            return
        for n in (parameter.elements for parameter in layer.trained if parameter.elements > 0):
            widths = (FP32_BYTES, half) if forward else (half, FP32_BYTES)
            yield self._run(self._copied(n, *widths).kernel, n * FP32_BYTES if forward else 0.0)

    def _to_fp8(self, layer: Layer, elements: int, *, forward: bool) -> Iterator[KernelRun]:
        """Yield the cast of an operand with its transpose: both are read by rows.

        PyTorch's layers (torchao, ``get_tensor_memory_traffic_ovhd_s`` of testing/training/roofline_utils.py) scale by
        the largest value of the moment, and cast their weights in both passes; compiled ones cast an input once.
        """
        half, narrow = self._element_bytes, ELEMENT_BYTES["fp8"]
        by_torch = self._options.scales_by_moment
        if not forward or self._casts_in.get(layer.inputs[0], layer.name) == layer.name:
            if by_torch:
                yield KernelRun(Streaming("sum", elements, elements * half, 0))
            yield self._copied(elements, half, 2 * narrow)
        if by_torch and layer.parameters:
            weights = layer.parameters[0].elements
            if forward:
                yield KernelRun(Streaming("sum", weights, weights * half, 0))
            yield self._copied(weights, half, narrow)

    def _around_adapters(self, layer: Layer, *, forward: bool) -> Iterator[KernelRun]:
        """Yield the casts of what an adapter in fp32 reads, and of its sum with the frozen layer's result, and back."""
        wide, written = [self._wide[tensor] for tensor in layer.inputs], self._wide[layer.output]
        opens, closes = written and not all(wide), any(wide) and not written
        if self._options.compiled or not (opens or closes):
            return  # compilers cast in the kernels beside
        up, down = (self._element_bytes, FP32_BYTES), (FP32_BYTES, self._element_bytes)
        elements = self._network.elements[layer.inputs[0]]
        if forward or closes:
            yield self._copied(elements, *(up if opens or not forward else down))
        if not forward and self._needed[layer.inputs[0]]:
            yield self._copied(elements, *down)

    def _copied(self, elements: int, read: int, written: int) -> KernelRun:
        """Return a copy; PyTorch has kernels for casts to 16 bits from 2.6 on (pull request 137053), not to fp32."""
        has_kernel = written == read or (written < read and not conversions.is_before(self._device, "2.6"))
        form: PassForm = "" if has_kernel or not self._dynamic else "casts"
        return KernelRun(Streaming("copy", elements, elements * read, elements * written, form))

    def _requantised(self, layer: Layer) -> Iterator[KernelRun]:
        """Yield the conversions around operators in floating point, and of the network's input and output."""
        network, stored = self._network, self._element_bytes
        own, is_last = ELEMENT_BYTES[self.mix(layer).precision], layer is network.layers[-1]
        if layer is network.layers[0] and not network.tokens:
            yield self._copied(network.elements[layer.inputs[0]], FP32_BYTES, stored)
        if own > stored:
            yield self._copied(network.elements[layer.inputs[0]] if layer.inputs else 0, stored, own)
        if own > stored or is_last:
            yield self._copied(network.elements[layer.output], own, FP32_BYTES if is_last else stored)

    def added(self, elements: int, layer: Layer) -> KernelRun:
        """Return the kernel that adds two gradients of *elements* elements, of an input of *layer*."""
        size = elements * (FP32_BYTES if any(self._wide[tensor] for tensor in layer.inputs) else self._element_bytes)
        return KernelRun(Streaming("add", elements, 2 * size, size))

    def accumulated(self, layer: Layer) -> KernelRun | None:
        """Return the pass that adds *layer*'s gradients to earlier ones; None if the products do that."""
        n, how = sum(parameter.elements for parameter in layer.trained), self._options.accumulation
        if not n or how == "product":
            return None
        size = FP32_BYTES if casts(self._options.precision) else self._element_bytes
        read, written = 2 * size, size
        if how == "fp32":
            read, written = read + size + FP32_BYTES, written + FP32_BYTES + size
        return self._run(Streaming("add", n, read * n, written * n), float(read * n))

    def group(self, group: FusedLayers, *, forward: bool, added_elements: int = 0) -> tuple[KernelRun, ...]:
        """Return a fused group's kernels: one by its bytes, or a reduction over rows; sums for parameters apart."""
        elements = self._network.elements
        read_bytes, written_bytes = (sum(self._sizes[t] for t in tensors) for tensors in (group.reads, group.writes))
        kept_bytes = 0
        if not forward:
            added = added_elements * self._element_bytes
            kept_bytes, read_bytes, written_bytes = read_bytes, read_bytes + written_bytes + added, read_bytes
        reducing = group.reduction
        if reducing is None or self._is_pointwise(reducing.operator):
            most = max(elements[layer.output] for layer in group.layers)
            return (self._run(Streaming("fused", most, read_bytes, written_bytes), kept_bytes),)
        moved = float(read_bytes + written_bytes)
        cold = self._forgotten * kept_bytes / moved if moved else 0.0
        kernels = reducing.operator.kernels("fwd" if forward else "bwd", self.mix(reducing).precision)
        if isinstance(reducing.operator, BatchNorm):
            kernels = conversions.laid_out(self._device, kernels, channels_last=self._is_by_pixels(reducing.operator))
        over_rows, *others = (kernel for kernel in kernels if isinstance(kernel, Rowwise))
        of_parameters = others if reducing.trained else ()
        return (KernelRun(over_rows, cold, moved), *(KernelRun(kernel) for kernel in of_parameters))

    def update(self) -> Iterator[tuple[str, KernelRun]]:
        """Yield the passes over all parameters by multi-tensor kernels, each with its name."""
        options, n = self._options, self._network.trained_count
        if not n or options.optimizer == "none":
            return
        half, wide, master = self._element_bytes * n, FP32_BYTES * n, has_master(options.precision)
        if sums_in_fp32(options):  # Megatron-LM's buffer, from whose norm all gradients may be scaled down
            yield NORM, self._run(Streaming("sum", n, wide, 0), float(wide))
        elif master:  # this also unscales
            name = UNSCALE if scales(options.precision) else TO_MASTER
            yield name, self._run(Streaming("mul_scalar", n, half, wide), float(half))
        elif scales(options.precision):
            yield UNSCALE, self._run(Streaming("mul_scalar", n, wide, wide), float(wide))
        size, others = updated_bytes(options.precision), n
        fused, rule = options.fused_optimizer, options.optimizer
        if rule == "muon":  # Adam's of the other parameters, which Megatron-LM fuses
            rule, fused = "adam", options.framework == "megatron"
            others -= sum(each if isinstance(each, int) else each.elements for _, each in self.singly())
        if not tensor_passes(rule) and others:
            graph = options.framework == "tensorflow" and not options.compiled
            kernels = optimizer_kernels(rule, others, size, fused=fused, graph=graph)
            firsts = first_reads(rule, fused=fused, graph=graph)
            if fused and options.framework in ("pytorch", "adaptdl"):  # apex and DeepSpeed have kernels of their own
                kernels = tuple(replace(kernel, form="tensors") for kernel in kernels)
            for kernel, first in zip(kernels, firsts, strict=True):
                yield f"{rule} step", self._run(kernel, float(first * others * size))
        if master:
            yield "weights from fp32", self._run(Streaming("copy", n, wide, half), 0.0)
        # Transformer Engine casts weights once a step, for its first micro-batch.
        linear = (layer for layer in self._network.layers if isinstance(layer.operator, Linear) and layer.parameters)
        if options.precision == "master-fp8" and not options.scales_by_moment:
            narrow = sum(layer.parameters[0].elements for layer in linear if self.mix(layer).precision == "fp8")
            if narrow:  # with their transposes, by the scales of earlier steps (delayed scaling)
                cast = Streaming("copy", narrow, self._element_bytes * narrow, 2 * narrow)
                yield "weights to fp8", self._run(cast, 0.0)
        quantised = conversions.nvfp4_weights(self._network, options.precision)
        for kernel in conversions.nvfp4_passes(quantised) if quantised else ():
            yield "weights to nvfp4", self._run(kernel, 0.0)

    def singly(self) -> "tuple[tuple[str, int | WeightMatrix], ...]":
        """Return the name and the elements, or the matrix, of each tensor that the optimiser updates singly."""
        if self._options.optimizer == "muon":
            from simulator.step.muon import matrices_of

            return matrices_of(self._network, self._options)
        has_passes = bool(tensor_passes(self._options.optimizer))
        return tuple([(p.name, p.elements) for p in self._network.parameters if p.trained and has_passes])

    def tensor_update(self, elements: "int | WeightMatrix") -> Iterator[tuple[TensorPass, KernelRun]]:
        """Yield the calls that update a tensor of *elements* elements, or a matrix, as :meth:`singly` has it."""
        rule, element = self._options.optimizer, updated_bytes(self._options.precision)
        if not isinstance(elements, int):
            from simulator.step.muon import calls

            found = calls(elements, self._options)
            yield from (
                (each, self._run(kernel, float(each.first * element * elements.elements))) for each, kernel in found
            )
            return
        size = elements * element
        for each in tensor_passes(rule):
            kept = sum(state_tensors(rule, elements, element, paged=True)) if each.with_state else 0
            moves = each.reads + each.writes > 0
            read, written = (each.reads * size + kept, each.writes * size + kept) if moves else (FP32_BYTES, FP32_BYTES)
            kernel = Streaming(f"{rule}_step", elements if moves else 1, read, written)
            yield each, self._run(kernel, float(each.first * size + kept))

    def _is_pointwise(self, operator: Operator) -> bool:
        """Return whether *operator* normalises by known statistics, in one pass."""
        return isinstance(operator, BatchNorm) and not self._options.trains

    def _is_by_pixels(self, operator: Operator) -> bool:
        """Return whether the kernels of *operator* work by pixels: due to the layout, or as compilers split sums."""
        by_compiler = self._turned or (self._options.compiled and isinstance(operator, BatchNorm))
        return self._options.channels_last or by_compiler

    def _run(self, kernel: Kernel, old: float) -> KernelRun:
        return KernelRun(kernel, self._forgotten * min(1.0, old / kernel.bytes) if kernel.bytes else 0.0)
