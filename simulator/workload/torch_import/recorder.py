"""Record the aten operators that run, as layers of a network."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from simulator.errors import Fault
from simulator.workload.network import Layer, Parameter
from simulator.workload.operators import CrossEntropy, Operator, Softmax
from simulator.workload.torch_import.call import FREE, Call, KnownValues, call_of, operators_of
from simulator.workload.torch_import.faults import TraceFault, stack_place

_DYNAMIC = (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)


class ModuleStack:
    """The submodules whose forward pass is running, innermost last; hooks maintain it while it is entered."""

    def __init__(self, module: Any) -> None:
        self._names: dict[int, str] = {id(child): name for name, child in module.named_modules()}
        self._running: list[Any] = []
        self._hooks: list[Any] = []

    def __enter__(self) -> "ModuleStack":
        hooks = torch.nn.modules.module
        self._hooks = [
            hooks.register_module_forward_pre_hook(self._enter),
            hooks.register_module_forward_hook(self._leave),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _enter(self, module: Any, _inputs: Any) -> None:
        self._running.append(module)

    def _leave(self, module: Any, _inputs: Any, _output: Any) -> None:
        while self._running and self._running.pop() is not module:
            pass  # pops also modules that raised an exception that their caller caught

    @property
    def path(self) -> str:
        """The name of the innermost running submodule; "" for the module itself."""
        names = (self._names.get(id(module)) for module in reversed(self._running))
        return next((name for name in names if name is not None), "")

    @property
    def is_leaf(self) -> bool:
        """Whether the running module is one of torch's own without submodules."""
        running = self._running[-1:]
        return any(type(m).__module__.startswith("torch.nn.") and next(m.children(), None) is None for m in running)


class Recorder(TorchDispatchMode):  # type: ignore[misc]  # torch is not read by the type checker
    """While entered and ``active``, records every operator that runs a kernel.

    A tensor is identified by its storage, so a view has the number of its base.  An in-place write gives the storage a
    new number.  ``unknown`` collects the operators without a model, each once.
    """

    def __init__(self, module: Any, stack: ModuleStack, values: KnownValues) -> None:
        super().__init__()
        self.stack = stack
        self.active = True
        self.layers: list[Layer] = []
        self.elements: list[int] = []
        self.unknown: dict[str, Fault] = {}
        # Parameters by storage, of which frozen ones are None; storages are held, so that no address is used again.
        self._parameters: dict[int, Parameter | None] = {}
        self._held = [tensor.untyped_storage() for tensor in (*module.buffers(), *module.parameters())]
        self._buffers = frozenset(buffer.untyped_storage()._cdata for buffer in module.buffers())
        for name, parameter in module.named_parameters():
            trained = Parameter(name, parameter.numel()) if parameter.requires_grad else None
            self._parameters.setdefault(parameter.untyped_storage()._cdata, trained)
        self._parameter_keys = frozenset(self._parameters)
        self._order = {p: i for i, p in enumerate(self._parameters.values()) if p is not None}
        self._numbers: dict[int, int] = {}
        self._uses: dict[str, int] = {}
        self._log_softmax: set[int] = set()
        self._values = values

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self.active:
            return func(*args, **kwargs)
        refusal = _refusal(func, args)
        if refusal:
            if not self._values.knows((args, kwargs)):
                raise TraceFault(refusal)
            out = self._values.on_meta(self._values.compute(func, args, kwargs))
        else:
            out = func(*args, **kwargs)
            self._values.follow(func, args, kwargs, out)
        call = call_of(func, args, kwargs, out, self._parameter_keys)
        if call.outputs and not self._is_free(call):
            self._note(call)
        return out

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Run operators without recording them."""
        was, self.active = self.active, False
        try:
            yield
        finally:
            self.active = was

    def append(
        self,
        operator: Operator,
        inputs: tuple[int, ...],
        parameters: tuple[Parameter, ...],
        output: int,
        *,
        function: str,
        in_place: bool = False,
    ) -> None:
        """Append a layer by its tensors' numbers; *function* is its name within the submodule.

        In a leaf module of torch's own, the layer has the submodule's name alone, unless *function* begins with a dot.
        """
        path = self.stack.path
        whole = path and self.stack.is_leaf and not function.startswith(".")
        name = path if whole else f"{path}.{function.strip('._')}".lstrip(".")
        uses = self._uses[name] = self._uses.get(name, 0) + 1
        name = name if uses == 1 else f"{name}_{uses}"
        self.layers.append(Layer(name, operator, inputs, output, parameters, in_place))

    def split(self, tensors: Sequence[Any]) -> tuple[tuple[int, ...], tuple[Parameter, ...]]:
        """Return the numbers of the activations among *tensors*, and the trained parameters among them."""
        numbers: list[int] = []
        parameters: list[Parameter] = []
        for tensor in tensors:
            key = tensor.untyped_storage()._cdata
            if key not in self._parameters:
                numbers.append(self._number(tensor))
            elif (parameter := self._parameters[key]) is not None:
                parameters.append(parameter)
        return tuple(numbers), tuple(sorted(dict.fromkeys(parameters), key=self._order.__getitem__))

    def new_number(self, elements: int) -> int:
        """Return the number of a new tensor of *elements* elements."""
        self.elements.append(elements)
        return len(self.elements) - 1

    def bind(self, tensor: Any, number: int) -> None:
        """Give *tensor* and its views the number *number*."""
        storage = tensor.untyped_storage()
        self._held.append(storage)
        self._numbers[storage._cdata] = number

    def _number(self, tensor: Any) -> int:
        known = self._numbers.get(tensor.untyped_storage()._cdata)
        return self._new(tensor) if known is None else known

    def _new(self, tensor: Any) -> int:
        number = self.new_number(tensor.untyped_storage().nbytes() // tensor.element_size())
        self.bind(tensor, number)
        return number

    def _is_free(self, call: Call) -> bool:
        """Return whether nothing runs: a view, an allocation, an update of the module's own counter."""
        if call.name in FREE or all(tensor.numel() == 0 for tensor in call.outputs):
            return True
        storages = {tensor.untyped_storage()._cdata for tensor in call.inputs}
        written = [tensor.untyped_storage()._cdata for tensor in call.outputs]
        if not call.func._schema.is_mutable:
            return bool(call.inputs) and all(key in storages for key in written)
        return call.out.dim() == 0 and written[0] in self._buffers  # BatchNorm counts its batches

    def _note(self, call: Call) -> None:
        operators = operators_of(call)
        if operators is None:
            name, (file, line) = call.func._schema.name, stack_place()
            where = f" in {self.stack.path}" if self.stack.path else ""
            advice = "write it with operators of torch that are known (docs/torch.md), or leave it out of the factory's"
            told = f"the operator {name}{where} is not known; {advice} module"
            self.unknown.setdefault(name, Fault(told, file, line, 1 if line else 0))
            return
        keeps_statistics = call.name.endswith(("batch_norm", "batch_norm_legit", "batch_norm_with_update"))
        own = self._buffers if keeps_statistics else frozenset()
        inputs = [tensor for tensor in call.inputs if tensor.untyped_storage()._cdata not in own]
        numbers, parameters = self.split(inputs)
        if inputs and not numbers:  # computed from parameters alone: the first is treated as an input
            numbers = (self._number(inputs[0]),)
        last = self.layers[-1] if self.layers and call.name.startswith("nll_loss") else None
        if last is not None and last.output == numbers[0] and last.output in self._log_softmax:
            # The log-softmax and the loss that reads it next are one, as ``cross_entropy`` runs them.
            assert isinstance(last.operator, Softmax)
            self.layers.pop()
            whole = CrossEntropy(last.operator.rows, last.operator.cols)
            read = (*last.inputs, *numbers[1:])
            self.append(whole, read, last.parameters, self._new(call.out), function="loss")
            return
        for operator in operators[:-1]:
            between = self.new_number(operator.output_elements)
            self.append(operator, numbers, parameters, between, function=call.name)
            numbers, parameters = (between,), ()
        key = call.out.untyped_storage()._cdata
        in_place = call.func._schema.is_mutable and key == call.first.untyped_storage()._cdata if call.inputs else False
        output = self._new(call.out)
        for other in call.outputs[1:]:
            if other.untyped_storage()._cdata not in self._buffers:
                self.bind(other, output)
        if operators:
            self.append(operators[-1], numbers, parameters, output, function=call.name, in_place=in_place)
        if call.name == "_log_softmax":
            self._log_softmax.add(output)


def _refusal(func: Any, args: Any) -> str:
    """Return why the result's shape, or a number given to Python, depends on values of tensors; "" if it does not."""
    name = func._schema.name
    if name == "aten::index":
        if not any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]):
            return ""
        what = "indexing with a mask gives a tensor whose size depends on numbers"
    elif not any(tag in func.tags for tag in _DYNAMIC):
        return ""
    elif name == "aten::_local_scalar_dense":
        what = "a number, or a decision, is taken from a tensor"
    else:
        what = f"{name} gives what depends on numbers"
    return f"{what}, and a trace has shapes alone; compute it from shapes, or choose with torch.where"
