"""Each term of products and streams acts on the generations where it was observed, and on no other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from simulator.api import Session
from simulator.constants import Constants
from simulator.devices.gpu.product import tiles_for
from simulator.topology.parts import GpuPart
from tests.devices import find_gpu
from validate.constants.families import FAMILIES, TERMS, Term, read_rows
from validate.kinds.kind import MeasuredRow
from validate.tables.cells import NotScored
from validate.tables.names import RowNames

DEVICES = {
    "maxwell": "m40",
    "pascal": "p4",
    "volta": "v100-pcie-32gb",
    "turing": "t4",
    "ampere": "a100-pcie-40gb",
    "ada": "l4",
    "hopper": "h100-sxm5-80gb",
    "blackwell": "b200",
    "vega": "mi25",
    "cdna2": "mi250-gcd",
}
# According to the published tables (docs/constants.md); newer chips also run kernels of Ampere's library in fp32.
LANES = {"ampere", "ada", "hopper", "blackwell"}
ACTS = {
    "address translation": {"maxwell", "pascal", "volta", "turing", "ampere", "ada"},
    "slower where k is split": LANES,
    "clocks above boost": {"pascal"},
    "power": {"pascal", "volta", "turing", "ada"},
    "latency along k": {"ampere", "ada", "hopper", "blackwell"},
    "energy": {"hopper", "blackwell"},
    "check bits": {"turing", "ada"},
}


@pytest.fixture(scope="module")
def names() -> RowNames:
    return RowNames()


@pytest.fixture(scope="module")
def rows(names: RowNames, tmp_path_factory: pytest.TempPathFactory) -> list[MeasuredRow]:
    table = tmp_path_factory.mktemp("terms") / "ops.csv"
    table.write_text("device,op,variant,phase,dtype,m,n,k,rows,cols,time_s\n" + "\n".join(_lines()) + "\n")
    return read_rows([str(table)], names, {"operators"})


def _lines() -> Iterator[str]:
    for device in DEVICES.values():
        for m, n, k in ((8192, 8192, 32768), (256, 256, 8192), (512, 512, 512)):
            yield f"{device},linear,,fwd,fp32,{m},{n},{k},,,1"
            if "fp16" in find_gpu(device).peak_flops_per_s:
                yield f"{device},linear,,fwd,fp16,{m},{n},{k},,,1"
        yield f"{device},elementwise,add,fwd,fp32,,,,65536,4096,1"


def seen_on(term: Term, rows: Sequence[MeasuredRow], session: Session) -> dict[str, int]:
    """Return the number of *rows* whose prediction the term changes, by generation of their GPU."""
    off = session.calibrated(session.calibrations, Constants(dict(term.off)))
    found: dict[str, int] = {}
    for row in rows:
        if not isinstance(row.part, GpuPart):
            continue
        try:
            if row.asked.time_s(session) != row.asked.time_s(off):
                generation = row.part.architecture.split()[0].lower()
                found[generation] = found.get(generation, 0) + 1
        except NotScored:
            continue
    return dict(sorted(found.items()))


@pytest.mark.parametrize("name", ACTS)
def test_a_term_acts_where_it_was_seen(name: str, rows: list[MeasuredRow], names: RowNames) -> None:
    (term,) = [term for term in TERMS if term.name == name and term.family != "matrix_product"]
    mine = [row for row in rows if row.cells["dtype"] == "fp32"] if term.family == "gemm" else rows
    assert set(seen_on(term, mine, names.session)) == ACTS[name]


@pytest.mark.parametrize("term", TERMS, ids=lambda term: f"{term.family}, {term.name}")
def test_terms_are_switched_off_by_constants_that_their_family_fits(term) -> None:
    (family,) = [family for family in FAMILIES if family.name == term.family]
    free = {name for stage in family.stages for name in stage.free}
    assert free >= {*term.off, *term.idle}
    Constants(dict(term.off))  # raises for unknown constants


@pytest.mark.parametrize(("device", "is_wide"), [("a100-pcie-40gb", True), ("l4", True), ("h100-sxm5-80gb", False)])
def test_batches_in_fp32_run_in_wide_tiles_where_they_were_seen_to(device: str, is_wide: bool) -> None:
    tiles = tiles_for(find_gpu(device), "fp32", "NN", True)
    assert (min(min(tile.columns, tile.rows) for tile in tiles) == 128) is is_wide
