"""Changes of a step's options that may make it faster, or make it fit into memory."""

from collections.abc import Iterator, Mapping
from typing import Any

from simulator.devices.gpu import Gpu
from simulator.devices.predict import Device
from simulator.errors import mention, spelt, word_of
from simulator.questions.options import Policy, StepOptions
from simulator.records import dataclass, replace

_OF_32_BITS: tuple[Policy, ...] = ("fp32", "tf32", "torch")
_HALVES = ("bf16", "fp16")


@dataclass(frozen=True, slots=True)
class Change:
    """A change of ``options``; ``time`` and ``memory``: whether it may save them; ``instead``: of what it is made."""

    options: Mapping[str, Any]
    time: bool
    memory: bool
    instead: str = ""

    @property
    def words(self) -> str:
        """The change as options of the command line."""
        name, value = next(iter(self.options.items()))
        return spelt(mention(name, True if value == "full" else value), "command") + self.instead

    def applied(self, options: StepOptions) -> StepOptions:
        """Return *options* with this change."""
        return replace(options, **self.options)


def possible_changes(options: StepOptions, device: Device) -> Iterator[Change]:
    """Yield changes of *options* on *device*, least intrusive first; in training, half precision is autocast."""
    on_gpu = isinstance(device, Gpu)
    updates = options.mode == "train" and options.optimizer != "none"
    if updates and options.optimizer in ("adam-loop", "bert-adam"):
        yield Change({"optimizer": "adam"}, time=True, memory=False)
    if updates and not options.fused_optimizer and options.optimizer in ("sgd", "momentum", "adam"):
        yield Change({"fused_optimizer": True}, time=True, memory=options.optimizer == "adam")
    if options.trains and (options.recompute != "full" or options.recompute_blocks is not None):
        instead = f" instead of {' '.join(options.recompute_words)}" if options.recompute_words else ""
        again = {"recompute": "full", "recompute_blocks": None}
        yield Change(again, time=False, memory=True, instead=instead)
    peaks = device.peak_flops_per_s
    if options.precision in _OF_32_BITS:
        if options.precision != "tf32" and "tf32" in peaks:
            yield Change({"precision": "tf32"}, time=True, memory=False)
        halves = [name for name in _HALVES if name in peaks]
        for half in halves:
            policy = f"amp-{half}" if options.trains else half
            yield Change({"precision": policy}, time=True, memory=half == halves[0])
    for own, other in (_HALVES, _HALVES[::-1]):
        if options.precision.endswith(own) and peaks.get(other, 0.0) > peaks.get("fp32", 0.0) >= peaks.get(own, 0.0):
            policy = options.precision.removesuffix(own) + other  # the half format that the device gains by
            yield Change({"precision": policy}, time=True, memory=False)
    if not options.channels_last and on_gpu:
        yield Change({"channels_last": True}, time=True, memory=False)
    if not options.compiled:
        yield Change({"compiled": True}, time=True, memory=False)
    if not options.cuda_graph and not options.launch_blocking and on_gpu:
        yield Change({"cuda_graph": True}, time=True, memory=False)
    if on_gpu and options.mode == "train" and options.optimizer in ("adam", "adam-loop", "bert-adam"):
        instead = f" instead of {word_of('fused_optimizer')}" if options.fused_optimizer else ""
        yield Change({"optimizer": "adam-8bit", "fused_optimizer": False}, time=False, memory=True, instead=instead)
