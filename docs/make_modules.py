"""Print every source file with the first line of its docstring, folder by folder: ``python -m docs.make_modules``.

The site shows the same below docs/modules.md.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("simulator", "validate", "reports")


def tables() -> str:
    """Return a heading and a table for each folder."""
    parts = []
    for folder in sorted({path.parent for room in ROOMS for path in (ROOT / room).rglob("*.py")}):
        rows = [(path.name, _first_line(path)) for path in sorted(folder.glob("*.py"))]
        about = next((line for name, line in rows if name == "__init__.py"), "")
        files = [f"| `{name}` | {line} |" for name, line in rows if name != "__init__.py"]
        table = ["| file | |", "|---|---|", *files] if files else []
        parts += [f"## {folder.relative_to(ROOT)}", about, "\n".join(table)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _first_line(path: Path) -> str:
    told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    words = " ".join(told.split("\n\n")[0].split()).replace("``", "`").replace("|", "\\|")
    return re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", words)


if __name__ == "__main__":
    sys.stdout.write(tables())
