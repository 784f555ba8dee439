"""The command ``validate import``."""

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from simulator.console.files import OutputFile
from simulator.errors import InputError, nearest, one_line
from simulator.topology.catalogue import part_names
from validate.cli.command import Given
from validate.importing import formats
from validate.importing.formats import Source, SourceTable
from validate.importing.other_operators import primus_rows, simumax_rows
from validate.tables.statistics import one_in

FORMATS = ("aiconfigurator", "simumax", "primus")
_SINGLE = {"simumax": ("SimuMax", simumax_rows), "primus": ("Primus", primus_rows)}


def import_command(given: Given) -> None:
    """Turn published measurements into tables for validate score."""
    collection, out = given.collection, given.out
    if collection not in FORMATS:
        raise InputError(f"no such collection: '{one_line(collection, 60)}'; {nearest(collection, FORMATS)}")
    if collection in _SINGLE:
        given.remark(_of_file(collection, given.source, out, given.device, given.sample or given.sample_attention))
        return
    share = one_in("--sample", given.sample) if given.sample is not None else 1
    apart = given.sample_attention
    attending = one_in("--sample-attention", apart) if apart is not None else share
    package = Source(given.source)
    devices = package.chosen(given.device)
    products = formats.read_products(package)
    left_out: formats.LeftOut = Counter()
    for folder, count in package.unknown.items() if given.device is None else ():
        left_out[f"table of {one_line(folder, 40)}: no part of it"] += count
    files: dict[Path, bytes] = {}
    said = []
    for name in devices:
        found = {
            "products": formats.product_rows(products, name, share, left_out),
            "of attention": formats.attention_rows(package, name, attending, left_out),
            "collectives": formats.collective_rows(package, name, left_out),
        }
        product, attention, collectives = (rows for rows, _ in found.values())
        if product or attention:
            files[Path(out) / name / "ops.csv"] = formats.csv_of(formats.OPERATORS, [*product, *attention])
        if collectives:
            files[Path(out) / name / "collectives.csv"] = formats.csv_of(formats.COLLECTIVES, collectives)
        counts = (f"{len(rows)} {kind}{_of(tables)}" for kind, (rows, tables) in found.items())
        said.append(f"{name}: {'; '.join(counts)}")
    _write(files)
    given.remark([*said, *_ended(out, files, left_out)])


def _of_file(collection: str, source: str, out: str, device: str | None, sampled: str | None) -> list[str]:
    """Write the table of *source*, a file of one device, and return what to say."""
    name, rows_in = _SINGLE[collection]
    if device is None or "," in device:
        raise InputError(f"--device: {name}'s file does not say which part it was measured on; name one, such as b200")
    if sampled is not None:
        raise InputError(f"--sample: a file of {name} is small; it is imported whole")
    if device not in part_names("gpu"):
        raise InputError(f"--device: there is no '{one_line(device, 60)}'; {nearest(device, part_names('gpu'))}")
    rows, left_out = rows_in(source, device)
    if not rows:
        why = ", ".join(_left_out(left_out)) or "the file holds no operator that tables hold"
        raise InputError(f"no row can be imported: {why}")
    files = {Path(out) / device / "ops.csv": formats.csv_of(formats.OPERATORS, rows)}
    _write(files)
    counts = sorted(Counter(str(row["op"]) for row in rows).items())
    return [f"{device}: {'; '.join(f'{count} {op}' for op, count in counts)}", *_ended(out, files, left_out)]


def _left_out(found: formats.LeftOut) -> list[str]:
    return [f"{count} x {one_line(reason, 200)}" for reason, count in sorted(found.items()) if count]


def _ended(out: str, files: dict[Path, bytes], left_out: formats.LeftOut) -> list[str]:
    said = [f"left out: {words}" for words in _left_out(left_out)]
    tables = f"{len(files)} table{'s' if len(files) != 1 else ''}"
    return [*said, f"wrote {tables} into {one_line(out)}; try: validate score {one_line(next(iter(files)))}"]


def _of(tables: Sequence[SourceTable]) -> str:
    return f" ({', '.join(f'{table.framework} {table.version}' for table in tables)})" if tables else ""


def _write(files: dict[Path, bytes]) -> None:
    if not files:
        raise InputError("no row can be imported: the package holds none of these devices that is modelled")
    with ExitStack() as stack:
        outputs = []
        for path, content in files.items():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InputError(f"--out {one_line(path.parent)}: cannot be made: {error.strerror}") from None
            outputs.append((stack.enter_context(OutputFile("--out", str(path))), content))
        for output, content in outputs:
            output.write(content)
