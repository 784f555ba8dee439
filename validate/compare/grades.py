"""Grades of trust that a user names."""

from __future__ import annotations

from simulator.errors import InputError, nearest, one_line
from validate.compare.folder import Folder

__all__ = ["read_grades"]

_GRADES = ("A", "B", "C")


def read_grades(text: str, folder: Folder) -> tuple[str, ...]:
    """Return the grades in *text*, the value of ``--trust``.

    Raises
    ------
    InputError
        Where one is missing between two commas, or is neither A, B or C nor the grade of a row of *folder*.

    """
    grades = tuple(dict.fromkeys(grade.strip().upper() for grade in text.split(",")))
    if not all(grades):
        raise InputError(f"--trust: grades such as A,B are needed, with commas between; got '{one_line(text, 60)}'")
    rows = ((table, record) for table in folder.tables.values() for record in table.rows)
    known = {*_GRADES, *(table.cell(record, "trust").upper() for table, record in rows)} - {""}
    for grade in grades:
        if grade not in known:
            raise InputError(f"--trust: no grade '{one_line(grade, 20)}'; {nearest(grade, known)}")
    return grades
