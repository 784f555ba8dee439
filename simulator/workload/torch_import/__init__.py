"""Any ``torch.nn.Module`` as a workload (docs/torch.md); PyTorch is imported only when a module is traced."""

from simulator.errors import MissingDependency, mention, one_line, refused
from simulator.workload.network import Network
from simulator.workload.torch_import.request import parse_torch


def load_torch_workload(
    text: str,
    *,
    batch: int | None = None,
    training: bool = True,
    sequence_length: int | None = None,
    image: int | None = None,
) -> Network:
    """Return the network of one pass through the module that *text* names.

    The factory is called with ``batch``, ``sequence_length`` and ``image``, where these are given and it has
    parameters of these names.  Without *training*, the module runs in ``eval`` mode, without loss or backward pass.

    Raises InputError, with place and remedy, if there is no such factory, if it fails, or if its result cannot be
    traced; MissingDependency if PyTorch is not installed.
    """
    request = parse_torch(text) if text.startswith("torch:") else None
    try:
        import torch  # noqa: F401
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            why = "PyTorch, which is not installed"
        else:
            why = f"PyTorch, which cannot be imported ({one_line(error)})"
        how = "in the clone: pip install -e '.[torch]'"
        raise MissingDependency(f"{mention('workload', one_line(text, 80))} needs {why}; {how}") from None
    from simulator.workload.torch_import.factory import build_subject
    from simulator.workload.torch_import.trace import trace_subject

    for key, value in (("batch", batch), ("sequence_length", sequence_length), ("image", image)):
        if value is not None and value < 1:
            raise refused("workload", f"{key} must be at least 1; got {value}", one_line(text, 80))
    sizes = {"batch": batch, "sequence_length": sequence_length, "image": image}
    if request is None:
        from simulator.workload.torch_import.of_config import subject_of_config

        return trace_subject(subject_of_config(text, batch or 1, sequence_length, training), training=training)
    subject = build_subject(request, {key: value for key, value in sizes.items() if value is not None})
    return trace_subject(subject, training=training)
