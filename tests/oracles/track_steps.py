"""Prints what torch takes for each of the steps of :mod:`tests.oracles.torch_steps`, as JSON.

Run it with ``python -W ignore -m tests.oracles.track_steps``; it has a process of its own, since that pretends a GPU.
"""

import json
import os
import sys
from dataclasses import asdict

from tests.oracles.cpu_steps import ON_CPUS
from tests.oracles.torch_steps import STEPS
from tests.oracles.torch_tracked import fake_step

if __name__ == "__main__":
    found = {
        name: {way: asdict(fake_step(step.build, way, wide=step.wide, loss_way=step.loss_way)) for way in step.ways}
        for name, step in STEPS.items()
    }
    found |= {name: {"fp32": asdict(fake_step(step.build, "fp32", wide=step.wide))} for name, step in ON_CPUS.items()}
    sys.stdout.write(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)  # the thread that autograd has for a GPU would not end
