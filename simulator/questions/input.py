"""The input pipeline of a step, from storage to the devices (:class:`InputQuestion`), and files that describe one."""

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from simulator.errors import Fault, InputError, mention, nearest, one_line, refused
from simulator.questions.checks import Checked, From
from simulator.records import dataclass
from simulator.topology.catalogue import validate
from simulator.topology.schema import expand
from simulator.topology.yaml_source import YamlSource, parse_yaml, read_yaml
from simulator.units import Duration, Size

Decoder = Literal["jpeg", "none"]
Cache = Literal["none", "memory"]
Held = Literal["images", "sequences", ""]
HELD: tuple[Held, ...] = ("images", "sequences")
_SAMPLES = From(0, 10**12)
_FEW = From(1, 64)
MEMORY = "memory"  # instead of a disk: all samples are in memory from the start


@dataclass(frozen=True, slots=True, kw_only=True)
class InputQuestion(Checked):
    """A data set, its disks, and the loader of each process that feeds devices; :class:`InputFile` tells the fields.

    ``samples`` and ``pixels`` are 0, and ``holds`` is empty, where that is not known.  ``sample_s``: seconds a core
    takes; None: the model's.  ``block_bytes`` 0: each sample is a file.  ``disks``: names in the machine, or
    ``memory``; empty: its first disk.  ``batch_s``: seconds that the loop takes the host in each step besides.
    ``steps_under_way``: steps begun and not ended.  Raises InputError if fields do not go together.
    """

    faults_of: ClassVar[str] = "input"

    name: str
    sample_bytes: float
    samples: Annotated[int, _SAMPLES] = 0
    holds: Held = ""
    pixels: Annotated[float, From(0)] = 0.0
    decode: Decoder = "none"
    sample_s: Annotated[float, From(0)] | None = None
    block_bytes: Annotated[float, From(0)] = 0.0
    disks: tuple[str, ...] = ()
    workers: Annotated[int, From(0, 64)] = 4
    prefetch: Annotated[int, _FEW] = 2
    shuffle: bool = True
    cache: Cache = "none"
    epochs: Annotated[int, From(1, 100_000)] = 1
    augment: bool = True
    pinned: bool = True
    ahead: Annotated[int, From(0, 64)] = 1
    batch_s: Annotated[float, From(0)] = 0.0
    steps_under_way: Annotated[int, _FEW] = 2
    evaluate: Annotated[int, _SAMPLES] = 0

    def _faults(self) -> Iterator[str]:
        if not self.sample_bytes > 0.0:
            yield "a sample has more than zero bytes"
        if self.decode == "jpeg" and not self.pixels and self.sample_s is None:
            yield "decode: jpeg needs pixels, for example 469x387, or sample_time"
        if self.pixels and self.holds == "sequences":
            yield "pixels apply to images; this set holds sequences"
        if self.epochs > 1 and not self.samples:
            yield "epochs needs samples, the size of the set"
        if self.cache == "memory" and not self.samples:
            yield "cache: memory needs samples, the size of the set"
        if not self.pinned and self.ahead:
            yield "ahead needs pinned: a copy from pageable memory waits"

    @property
    def set_bytes(self) -> float:
        """Bytes of the whole data set."""
        return self.samples * self.sample_bytes


_NEEDS = "an input needs sample, the bytes of one as it is stored"
_LARGEST = 10**12
_PIXELS = re.compile(r"\s*([1-9]\d{0,4})\s*x\s*([1-9]\d{0,4})\s*")
_FIELDS = {  # of the question, by the key that says them
    "sample": "sample_bytes",
    "sample_time": "sample_s",
    "block": "block_bytes",
    "disk": "disks",
    "batch_time": "batch_s",
    "under_way": "steps_under_way",
}
_YES = {"yes": True, "no": False, "true": True, "false": False}


def _pixels(value: object) -> object:
    found = _PIXELS.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("width and height, for example 469x387")
    return float(int(found[1]) * int(found[2]))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for word in text.split("+") for name in expand(word.strip()))


_Names = Annotated[tuple[str, ...], BeforeValidator(lambda v: _names(v) if isinstance(v, str) else v)]
_Pixels = Annotated[float, BeforeValidator(_pixels)]
_YesNo = Annotated[bool, BeforeValidator(lambda v: _YES.get(v, v) if isinstance(v, str) else v), Field(strict=True)]
_WHOLE = re.compile(r"\d+", re.ASCII)
_Count = Annotated[
    int, BeforeValidator(lambda v: int(v) if isinstance(v, str) and _WHOLE.fullmatch(v) else v), Field(strict=True)
]


class InputFile(BaseModel):
    """The keys of an input file."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    schema_version: Annotated[int, Field(strict=True, ge=1, le=1)] = 1
    description: str = Field("", description="What it is, in a few words")
    source: str = Field("", description="Where the figures come from")
    sample: Size = Field(..., gt=0, description="Bytes of one sample as it is stored, on average")
    samples: _Count = Field(0, ge=0, le=_LARGEST, description="Samples of the set")
    holds: Held = Field("", description="images or sequences; images where pixels are said")
    pixels: _Pixels = Field(0.0, description="Width x height of a stored image, on average")
    decode: Decoder = Field("none", description="jpeg; none: stored as it is used")
    sample_time: Duration | None = Field(None, description="Decoding and augmenting one, by a core; else the model's")
    block: Size = Field(0.0, description="Samples lie in large files and are read in such blocks; 0: a file each")
    disk: _Names = Field((), description="Disks of the machine (nvme0, nvme[0-3]), or memory; else its first disk")
    workers: _Count = Field(4, ge=0, le=64, description="Loading processes for each that feeds devices; 0: itself")
    prefetch: _Count = Field(2, ge=1, le=64, description="Batches that a worker may be ahead")
    shuffle: _YesNo = Field(True, description="Samples are read in random order")
    cache: Cache = Field("none", description="memory: what was read stays there as far as there is room")
    epochs: _Count = Field(1, ge=1, le=100_000, description="How often the set is read")
    augment: _YesNo = Field(True, description="Images are cropped at random and resized")
    pinned: _YesNo = Field(True, description="Copied through page-locked memory while the device computes")
    ahead: _Count = Field(1, ge=0, le=64, description="Batches that wait on the device")
    batch_time: Duration = Field(0.0, description="What the loop takes the host each step besides")
    under_way: _Count = Field(2, ge=1, le=64, description="Steps begun and not ended; 1: the host waits for each")
    evaluate: _Count = Field(0, ge=0, le=_LARGEST, description="Samples evaluated on one device after each epoch")

    @model_validator(mode="after")
    def _fits_together(self) -> "InputFile":
        try:
            self.question("")
        except InputError as error:
            raise ValueError(error.faults[0].message.removeprefix(f"{mention('input')}: ")) from None
        return self

    def question(self, name: str) -> InputQuestion:
        """Return the question of this input, with *name* for the data set."""
        said = self.model_dump(exclude={"schema_version", "description", "source"})
        said["holds"] = self.holds or ("images" if self.pixels else "")
        said["ahead"] = self.ahead if self.pinned or "ahead" in self.model_fields_set else 0
        return InputQuestion(name=name, **{_FIELDS.get(key, key): value for key, value in said.items()})


def data_sets() -> tuple[str, ...]:
    """Return the names of the catalogue's data sets."""
    folder = files("simulator.workload").joinpath("data_sets")
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")))


def parse_input(text: str) -> InputQuestion:
    """Return the input described by *text*: ``SET``, ``FILE.yaml`` or ``sample=4KB``, then ``,KEY=VALUE`` any times.

    Keys are those of :class:`InputFile`, and replace what the set or file says.  Raises InputError with all faults.
    """
    first, *rest = [word.strip() for word in text.split(",")]
    if "=" in first:
        return _validated(_of_words([first, *rest])).question("input")
    if first.endswith((".yaml", ".yml")):
        source = read_yaml(Path(first), one_line(first, 1000), needs=_NEEDS)
        validate(source, InputFile)
        return _validated({**source.data, **_of_words(rest)}).question(Path(first).stem)
    known = data_sets()
    if first not in known:
        hint = nearest(first, known) if first else f"write a data set ({', '.join(known)}), a YAML file, or sample=4KB"
        raise refused("input", f"no such data set; {hint}", one_line(first, 60))
    own = files("simulator.workload").joinpath("data_sets", f"{first}.yaml").read_bytes()
    said = parse_yaml(own, f"{first}.yaml", needs=_NEEDS).data
    return _validated({**said, **_of_words(rest)}).question(first)


def _of_words(words: list[str]) -> dict[str, str]:
    said: dict[str, str] = {}
    for word in words:
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals or not key or not value:
            raise refused("input", "write a key and a value, for example workers=8", one_line(word, 60))
        if key in said:
            raise refused("input", f"{one_line(key, 40)} is given twice", one_line(word, 60))
        said[key] = value
    return said


def _validated(data: dict[str, Any]) -> InputFile:
    said = mention("input")
    try:
        return validate(YamlSource(said, data, None), InputFile)
    except InputError as error:
        raise InputError([Fault(f"{said}: {each.message.removeprefix(': ')}") for each in error.faults]) from None
