"""The network that a launch line names: ``--model_name_or_path gpt2``, ``--arch resnet50``."""

from __future__ import annotations

import re

from simulator.errors import InputError
from simulator.launch.arguments import Arguments
from simulator.workload.find import is_config
from simulator.workload.zoo.registry import find_entry

_MADE = re.compile(r"(-(hf|instruct|chat|it|sft|dpo|v\d+(\.\d+)?|\d{4}))+$")
NAMING = ("model-name-or-path", "model-name", "model-id", "model", "arch", "a")  # of the Trainer, timm, torchvision


def named_network(args: Arguments) -> tuple[str, str]:
    """Return the network that *args* name, and the argument that names one which is not known; each may be empty.

    A folder with a ``config.json`` is a network; of other names (``openai-community/gpt2``) the last part counts.
    """
    unknown = ""
    for argument in NAMING:
        said = args.text(argument)
        if not said:
            continue
        if is_config(said):
            return said, ""
        last = said.rstrip("/").rpartition("/")[2]
        for name in (last, _plain(last)):
            try:
                find_entry(name)
            except InputError:
                continue
            return name, ""
        unknown = unknown or f"--{argument.replace('-', '_')} {said}"
    return "", unknown


def _plain(name: str) -> str:
    """Return *name* without what leaves the network as it is: its training, the version of its weights, its maker."""
    short = _MADE.sub("", name.lower().replace("_", "-")).removeprefix("meta-")
    short = re.sub(r"^llama-([23])-", r"llama\1-", short)
    image = re.fullmatch(r"(?:vit|deit)-(base|large|huge)-patch(\d+)-224(-.*)?", short)
    return f"vit-{image[1][0]}{image[2]}" if image is not None else short
