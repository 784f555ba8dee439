"""Tables of facts that come with the packages, as YAML or JSON, and regular expressions among them."""

import json
import re
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def own_data(package: str, name: str) -> Any:
    """Return what *name*, a file in *package*, holds: one object for all, which nobody changes."""
    raw = files(package).joinpath(name).read_bytes()
    if name.endswith(".json"):
        return json.loads(raw)
    import yaml  # the zoo needs the standard library alone

    return yaml.load(raw, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def own_patterns(package: str, name: str, topic: str) -> dict[str, re.Pattern[str]]:
    """Return the regular expressions in what *name*, a file in *package*, holds under *topic*, by what they find."""
    return {what: re.compile(pattern) for what, pattern in own_data(package, name)[topic].items()}
