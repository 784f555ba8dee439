"""Write docs/launch-options.md, what becomes of options of launch lines: ``python -m docs.make_launch_options``."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from docs.launch_options.answers import LISTS, TITLES, List, option_list, what_becomes_of

PAGE = Path(__file__).resolve().parent / "launch-options.md"
_HEAD = """# Every option of a launch line

What `--launch` makes of each option in the programs' own lists. This page is generated: each option, with values of
its own list and others, is given to launch lines, and the answer is what they say. An option is modelled if some value
of it changes the step or is refused as a value; where others are not modelled, the line's notes tell what is simulated
in their place, as for options that are not modelled at all. The lists stand in `docs/launch_options`.
"""


def page() -> str:
    """Return the page: a section for each list."""
    return "\n".join([_HEAD, *("\n".join(_section(name)) for name in LISTS)])


def _section(name: List) -> list[str]:
    found = option_list(name)
    by_answer: dict[str, list[str]] = defaultdict(list)
    instead: dict[str, list[str]] = defaultdict(list)
    for option, (answer, why) in what_becomes_of(name).items():
        by_answer[answer].append(f"`{option}`")
        if why and answer != "modelled":
            instead[f"{answer}: {why}"].append(f"`{option}`")
    lines = [f"## {TITLES[name]}", "", f"{len(found.options)} options, version {found.version}: {found.source}", ""]
    lines += ["| what becomes of them | options |", "|---|---|"]
    for answer in ("modelled", "without influence"):
        if by_answer[answer]:
            lines.append(f"| {answer} ({len(by_answer[answer])}) | {' '.join(by_answer[answer])} |")
    lines += [f"| {why} | {' '.join(options)} |" for why, options in sorted(instead.items())]
    return [*lines, ""]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
