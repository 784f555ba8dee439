"""Find and call the user's factory, and bring its result into one form."""

import contextlib
import copy
import importlib
import importlib.util
import inspect
import pkgutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from simulator.errors import InputError, mention, nearest, one_line
from simulator.records import dataclass
from simulator.workload.torch_import.call import FollowingValues, KnownValues, tensors_in
from simulator.workload.torch_import.faults import fault_of
from simulator.workload.torch_import.request import TorchRequest

_PACKAGES = frozenset(("torchvision", "torchaudio", "timm", "transformers", "diffusers"))  # common sources of factories
Parts = tuple[Any, Any, Callable[[Any], Any] | None]
"""A module, its inputs, and its loss."""
_RETURNS = "a torch.nn.Module, (module, inputs) or (module, inputs, loss)"


@dataclass(frozen=True, slots=True)
class Subject:
    """A module on ``meta`` with its inputs.

    ``loss`` computes a scalar from the module's output; without it, the output's own ``loss`` or the sum of its
    tensors is used.  ``what`` names the workload in errors.
    """

    what: str
    name: str
    module: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    loss: Callable[[Any], Any] | None
    samples: int
    sample: str
    values: KnownValues


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Run the user's code without warnings, and with its standard output redirected to standard error."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore")
        yield


def build_subject(request: TorchRequest, sizes: Mapping[str, int]) -> Subject:
    """Return the result of *request*'s factory, called with those of *sizes* that it accepts.

    Raises InputError if there is no such factory, if it fails, or if it returns something else.
    """
    what, values = mention("workload", one_line(request.text, 80)), KnownValues()
    with quietly():
        factory = _find(request, what)
        accepted = _accepted(factory, sizes, request, what)
        module, inputs, loss = _parts(_call(factory, accepted, values, what), what)
        if not request.shapes:
            if inputs is None:
                raise InputError(
                    f"{what}: nothing says what goes in; return (module, inputs) from the factory, or write the shape "
                    f"of one input behind it: torch:{request.module}:{request.factory}:3x224x224"
                )
            return _subject(what, request.factory, (module, inputs, loss), values, sizes, accepted)
        if inputs is not None:
            raise InputError(f"{what}: the factory says what goes in, and so does the workload; leave one out")
        if "batch" not in sizes:
            raise InputError(f"{what}: the shape of an input needs {mention('batch')} besides")
        floating = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
        made = []
        for shape in request.shapes:  # float32, the default format, stands for the format of the weights
            dtype = floating if shape.dtype == "float32" else getattr(torch, shape.dtype)
            made.append(torch.empty((sizes["batch"], *shape.sizes), dtype=dtype, device="meta"))
        accepted["batch"] = sizes["batch"]
        return _subject(what, request.factory, (module, tuple(made), loss), values, sizes, accepted)


def subject_of_module(module: Any, inputs: Any, loss: Callable[[Any], Any] | None) -> Subject:
    """Return *module* with its *inputs*; the subject is a copy without data, and the module is left unchanged.

    Raises InputError if the inputs are missing, or if module, inputs or loss have the wrong type.
    """
    what = f"workload {type(module).__name__}"
    without_data: dict[int, Any] = {}
    for tensor in (*module.parameters(), *module.buffers()):
        empty = tensor.detach().to("meta")
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        without_data[id(tensor)] = torch.nn.Parameter(empty, tensor.requires_grad) if is_parameter else empty
    own, inputs, loss = _parts((copy.deepcopy(module, without_data), inputs, loss), what)
    if inputs is None:
        raise InputError(f"{what}: nothing says what goes in; give inputs: a tensor, a tuple, or a dict by name")
    return _subject(what, type(module).__name__, (own, inputs, loss), KnownValues(), {}, {})


def _subject(
    what: str, name: str, parts: Parts, values: KnownValues, sizes: Mapping[str, int], accepted: Mapping[str, int]
) -> Subject:
    """Return the subject with inputs on ``meta``; *accepted* are those of *sizes* that the factory took.

    Its batch size is the one passed to the factory, or the first dimension of the inputs.
    """
    module, inputs, loss = parts

    def moved(leaf: Any) -> Any:
        return values.moved(leaf) if isinstance(leaf, torch.Tensor) else leaf

    inputs = torch.utils._pytree.tree_map(moved, inputs)
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    if isinstance(inputs, Mapping):
        kwargs = dict(inputs)
    elif isinstance(inputs, tuple | list | torch.Tensor):
        args = (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)
    else:
        raise InputError(
            f"{what}: the inputs are {_described(inputs)}; they must be a tensor, a tuple, or a dict by name"
        )
    tensors = tensors_in((args, kwargs))
    first = next((int(tensor.shape[0]) for tensor in tensors if tensor.dim()), 1)
    if "batch" not in accepted and sizes.get("batch", first) != first:
        raise InputError(
            f"{what}: {mention('batch', sizes['batch'])}, but the factory has no parameter batch and its inputs "
            f"hold {first}; add the parameter and use it for the inputs"
        )
    sample = "images" if tensors and tensors[0].dim() == 4 else "samples"
    if "sequence_length" in accepted or (tensors and not tensors[0].is_floating_point()):
        sample = "sequences"
    return Subject(what, name, module, args, kwargs, loss, accepted.get("batch", first), sample, values)


def _find(request: TorchRequest, what: str) -> Callable[..., Any]:
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(request.module)
    except ModuleNotFoundError as error:
        if error.name and (request.module == error.name or request.module.startswith(f"{error.name}.")):
            if error.name in _PACKAGES:
                raise InputError(f"{what}: no module '{error.name}'; pip install {error.name}") from None
            parent, _, last = error.name.rpartition(".")
            path = getattr(sys.modules.get(parent), "__path__", None) if parent else None
            hint = nearest(last, [found.name for found in pkgutil.iter_modules(path)], listed=0)
            advice = "the directory that holds it must be the current one or on PYTHONPATH"
            told = f"{hint} Otherwise {advice}" if hint.startswith("did") else advice
            raise InputError(f"{what}: no module '{error.name}'; {told}") from None
        hint = f"install {error.name}" if error.name else ""
        raise fault_of(error, f"{what}: importing {request.module} failed", hint=hint) from None
    except (Exception, SystemExit) as error:
        raise fault_of(error, f"{what}: importing {request.module} failed") from None
    found: Any = module
    for part in request.factory.split("."):
        if not hasattr(found, part):
            names = [name for name, value in vars(found).items() if callable(value) and not name.startswith("_")]
            raise InputError(f"{what}: no '{part}' in {found.__name__}; {nearest(part, names) or 'it has nothing'}")
        found = getattr(found, part)
    if not callable(found):
        raise InputError(
            f"{what}: {request.factory} is {_kind(found)} and cannot be called; write a function that returns "
            f"{_RETURNS}"
        )
    if isinstance(found, torch.nn.Module):
        raise InputError(
            f"{what}: {request.factory} is a module that was built on import; write a function that returns it, "
            "so that it can be built without its weights"
        )
    factory: Callable[..., Any] = found
    return factory


def _accepted(
    factory: Callable[..., Any], sizes: Mapping[str, int], request: TorchRequest, what: str
) -> dict[str, int]:
    """Return those of *sizes* that the factory has parameters for; raises InputError if others must be given."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        parameters = {}.values()
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = {parameter.name: parameter for parameter in parameters if parameter.kind in by_keyword}
    accepted = {key: size for key, size in sizes.items() if key in named}
    for key in ("sequence_length", "image"):
        if key in sizes and key not in accepted:
            raise InputError(f"{what}: {request.factory} has no parameter {key}; add it, or leave the option out")
    missing = [name for name, p in named.items() if p.default is p.empty and name not in accepted]
    if missing:
        options = {"batch": mention("batch"), "sequence_length": mention("seq_len"), "image": mention("image")}
        given = [options[name] for name in missing if name in options]
        hint = f"give {' and '.join(given)}" if given else "give them defaults, or write a function without them"
        raise InputError(f"{what}: {request.factory} needs {', '.join(missing)}; {hint}")
    return accepted


def _call(factory: Callable[..., Any], accepted: Mapping[str, int], values: KnownValues, what: str) -> Any:
    """Return the factory's result, built on ``meta``, or on the CPU if the factory needs values."""
    doing = f"{what}: the factory failed"
    try:
        with torch.device("meta"), FollowingValues(values):
            return factory(**accepted)
    except (Exception, SystemExit) as error:
        if "meta" not in str(error).lower():
            raise fault_of(error, doing) from None
    try:
        return factory(**accepted)
    except (Exception, SystemExit) as error:
        raise fault_of(error, doing) from None


def _parts(made: Any, what: str) -> Parts:
    parts = made if isinstance(made, tuple) else (made,)
    if not 1 <= len(parts) <= 3 or not isinstance(parts[0], torch.nn.Module):
        raise InputError(f"{what}: the factory returned {_described(made)}; it must return {_RETURNS}")
    module, inputs, loss = (*parts, None, None)[:3]
    module = getattr(module, "_orig_mod", module)  # unwraps torch.compile
    lazy = [name for name, parameter in module.named_parameters() if torch.nn.parameter.is_lazy(parameter)]
    if lazy:
        raise InputError(f"{what}: {lazy[0]} has no size yet; write the layer with its sizes, not as a lazy one")
    if loss is not None and not callable(loss):
        raise InputError(f"{what}: the loss is {_kind(loss)}; it must be a function of the module's output")
    if inputs is None:
        inputs = getattr(module, "example_input", None)
    return module.to("meta"), inputs, loss


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _described(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(type(part).__name__ for part in value)})"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return "None" if value is None else _kind(value)
