"""The network that a launch line names: ``--model_name_or_path gpt2``, ``--arch resnet50``."""

from __future__ import annotations

from simulator.errors import InputError
from simulator.launch.arguments import Arguments
from simulator.workload.hugging_face import is_config
from simulator.workload.zoo.registry import find_entry

__all__ = ["named_network"]

_ARGUMENTS = ("model-name-or-path", "model-name", "model-id", "model", "arch")  # of the Trainer, timm, torchvision


def named_network(args: Arguments) -> tuple[str, str]:
    """Return the network that *args* name, and the argument that names one which is not known; each may be empty.

    A folder with a ``config.json`` is a network; of other names (``openai-community/gpt2``) the last part counts.
    """
    unknown = ""
    for argument in _ARGUMENTS:
        said = args.text(argument)
        if not said:
            continue
        if is_config(said):
            return said, ""
        name = said.rstrip("/").rpartition("/")[2]
        try:
            find_entry(name)
        except InputError:
            unknown = unknown or f"--{argument.replace('-', '_')} {said}"
        else:
            return name, ""
    return "", unknown
