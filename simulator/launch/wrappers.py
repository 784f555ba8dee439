"""Commands that run another one: :func:`bare` leaves them out, :func:`container_gpus` says what a container shows.

Their options are no launcher's: ``numactl -N 0`` names a node of memory, ``nice -n 5`` a priority.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from simulator.launch.words import Word

_CONTAINERS = frozenset(("docker", "podman", "nerdctl", "nvidia-docker", "singularity", "apptainer", "enroot"))
_WRAPPERS = _CONTAINERS | frozenset(
    (
        *("numactl", "taskset", "nice", "ionice", "chrt", "nohup", "setsid", "timeout", "stdbuf", "unbuffer", "sudo"),
        *("nsys", "ncu", "nvprof", "rocprof", "perf", "py-spy", "strace", "catchsegv"),
    )
)
_SHOWS = "NVIDIA_VISIBLE_DEVICES"  # to a container; outside it has no effect
_DEVICES = re.compile(r'"?device=([\w.:/-]+(?:,(?!\w+=)[\w.:/-]+)*)')
_COUNT = re.compile(r"(?:count=)?(\d{1,4})(?:,.*)?")


def bare(words: Sequence[Word], launchers: Collection[str], last: Callable[[Word], bool]) -> Sequence[Word]:
    """Return *words* without wrappers and their options, up to one of *launchers*; none follows the *last* command."""
    found: list[Word] = []
    within = False
    for at, word in enumerate(words):
        name = word.text.rpartition("/")[2]
        if last(word):
            return [*found, *words[at:]] if len(found) < at else words
        within = name in _WRAPPERS or (within and name not in launchers)
        if not within:
            found.append(word)
    return found if len(found) < len(words) else words


def container_gpus(words: Sequence[Word]) -> Word | None:
    """Return which GPUs ``docker run --gpus`` shows to *words*, as NVIDIA_VISIBLE_DEVICES says it; None: not said."""
    start = next((i for i, word in enumerate(words) if word.text.rpartition("/")[2] in _CONTAINERS), len(words))
    for before, word in zip(words[start:], words[start + 1 :], strict=False):
        option, equals, value = word.text.partition("=")
        if before.text == "--gpus" or (option == "--gpus" and equals):
            return _shown(word, word.text if before.text == "--gpus" else value)
        if before.text in ("-e", "--env") and option == _SHOWS:
            return replace(word, text=value)
    return None


def _shown(word: Word, said: str) -> Word:
    devices, count = _DEVICES.match(said), _COUNT.fullmatch(said)
    if devices is not None:
        return replace(word, text=devices[1])
    if count is not None:
        return replace(word, text=",".join(map(str, range(int(count[1])))))
    return replace(word, text=said.partition(",")[0])
