"""A table split in two: its questions, which a prediction may see, and the whole, sealed until it is scored."""

from __future__ import annotations

import base64
import binascii
import zlib

from simulator.errors import Fault, InputError
from simulator.user_files import read_user_file
from validate.kinds.kind import Kind
from validate.tables.conventions import rule_columns
from validate.tables.csv_text import MAX_BYTES, csv_bytes
from validate.tables.table import Table, shown_as

_HEAD = b"sealed table of measurements; validate blind score opens it\n"
_TOLD = ("row_id", "dataset", "source", "trust")  # whose rows these are
_WIDTH = 120


def questions_of(table: Table, kind: Kind) -> bytes:
    """Return *table* as CSV without what was measured: columns that a prediction, or what an empty cell means, sees."""
    seen = {*kind.asked, *({*_TOLD, *rule_columns(kind.name)} - {*kind.measured})}
    columns = [name.strip() for name in table.header if name.strip().lower() in seen]
    places = [table.position[name.lower()] for name in columns]
    rows = ([row.fields[at] if at < len(row.fields) else "" for at in places] for row in table.rows)
    return csv_bytes([columns, *rows])


def sealed(raw: bytes) -> bytes:
    """Return the table *raw* as text that nobody reads by accident."""
    text = base64.b64encode(zlib.compress(raw, 9))
    return _HEAD + b"".join(text[i : i + _WIDTH] + b"\n" for i in range(0, len(text), _WIDTH))


def opened_seal(file: str) -> bytes:
    """Return the table that the sealed *file* holds; raises InputError where it holds none."""
    raw = read_user_file(file, MAX_BYTES, needed="a sealed table")
    if not raw.startswith(_HEAD):
        raise InputError(Fault("is no sealed table; validate blind add writes one", shown_as(file), 1, 1))
    try:
        opening = zlib.decompressobj()
        found = opening.decompress(base64.b64decode(raw[len(_HEAD) :]), MAX_BYTES)
    except (binascii.Error, zlib.error):
        found, opening = b"", None
    if opening is None or not opening.eof:
        raise InputError(Fault("is damaged: it does not hold the whole table", shown_as(file), 2, 1))
    return found
