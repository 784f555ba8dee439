"""What devices achieve that step alone, to which steps of several are compared: :func:`alone_rate`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from simulator.devices.dispatch import graph_launch_time
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.predict import Device
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.step.issue import Launch, launches_of
from simulator.training.roles import Role
from simulator.workload.network import Network, once

_SAME = 1e-9  # relative: two micro-batches whose times differ only by rounding


def alone_rate(roles: Iterable[Role], network: Network, question: StepQuestion) -> float:
    """Return the samples per second of the devices of *roles* if all step alone at their usual pace; raises InputError.

    *network* is the undivided one of a micro-batch.
    """
    counts = Counter[Device]()
    for role in roles:
        counts[role.place.device] += role.count
    samples = network.samples * question.micro_batches
    times = [(alone_s_of(device, network, question), count) for device, count in counts.items()]
    return sum(count * samples / alone_s for alone_s, count in times if alone_s > 0)


def alone_s_of(device: Device, network: Network, question: StepQuestion, pace: float = 1.0) -> float:
    """Return the seconds of a step of the undivided *network* on *device* alone; raises InputError.

    *pace* is the time of its kernels relative to the mean device.
    """
    return _alone_s(device, pace, network, question.options, question.micro_batches)


@once
def _alone_s(device: Device, pace: float, network: Network, options: StepOptions, micro_batches: int) -> float:
    """Return the end of the plan of a step on one device, whose two streams share nothing, in closed form."""
    issues = launches_of(device, network, options)
    passes = [issue for issue in issues if issue.part != "update"]
    captured_s = graph_launch_time(device) if options.cuda_graph else None

    def run(issues: Sequence[Launch], host: float, last: float) -> tuple[float, float]:
        """Return the ends of the host and of the device after *issues*, from *host* and *last* on."""
        for issue in issues:
            if not isinstance(device, Gpu):
                host = last = host + (issue.host_s + issue.device_s)
                continue
            if captured_s is None:
                host = (max(host, last) if issue.waits else host) + issue.host_s
            last = max(host, last) + pace * issue.device_s
        return host, last

    host, last = run([issue for issue in passes if not issue.adds], captured_s or 0.0, 0.0)
    before = (-1.0, -1.0)
    for left in range(micro_batches - 1, 0, -1):
        starts = host, last
        host, last = run(passes, host, last)
        took = host - starts[0], last - starts[1]
        if max(abs(now_s - before_s) for now_s, before_s in zip(took, before, strict=True)) <= _SAME * max(host, last):
            host, last = host + (left - 1) * took[0], last + (left - 1) * took[1]
            break
        before = took
    return max(run([issue for issue in issues if issue.part == "update"], host, last))
