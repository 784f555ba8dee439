"""``python -m validate.measure``: measure a machine that has only torch."""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from validate.machine.measure.duration import bucket_bytes, duration_s, fraction

_OF_CERTIFICATES = ("minutes", "asked")
_OF_STEPS = ("batch", "precision", "parallel", "overlap")
_LEAST_MINUTES, _MOST_MINUTES = 0.5, 120.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m validate.measure", description="Measure this machine; as validate run, with torch alone."
    )
    for name, how in json.loads(Path(__file__).with_name("options.json").read_text(encoding="utf-8")).items():
        kind = {} if "action" in how else {"type": type(how.get("default", ""))}
        parser.add_argument(f"--{name}", **{"help": argparse.SUPPRESS, **how, **kind})  # of our own process
    given = parser.parse_args(arguments)
    if sys.version_info < (3, 11):  # noqa: UP036  a copied folder has had no installer check the version
        sys.stderr.write(f"Python 3.11 or later is needed; this is {sys.version.split()[0]}\n")
        return 2
    if given.certificate:
        return _certificate(parser, given)
    budget_s, interval = _limits(parser, given)
    try:
        from validate.machine.measure.case import short_line
        from validate.machine.measure.cases.steps import write_scaling
        from validate.machine.measure.ranks import launch
        from validate.machine.measure.run import Settings, measure
        from validate.machine.measure.timing import Effort
    except KeyboardInterrupt:
        return 130
    except ImportError as error:
        sys.stderr.write(f"torch is needed: {error}\n")
        return 4
    here = launch()
    if here is not None and here.rank:
        try:
            here.serve()
        except KeyboardInterrupt:
            return 130
        except RuntimeError as error:  # the store ended with the first rank
            sys.stderr.write(f"rank {here.rank}: the first rank has ended: {short_line(error)}\n")
            return 1
        return 0
    status = 2
    groups = tuple(name.strip() for name in given.only.split(",") if name.strip())
    try:
        if given.workload or given.gpus:
            if not (given.workload and given.gpus) or groups:
                raise ValueError("--workload and --gpus go together, and without --only")
            if not re.fullmatch(r"\d{1,5}(,\d{1,5})*", given.gpus, re.ASCII):
                raise ValueError(f"--gpus: numbers of ranks such as 1,2,4,8 are needed; got '{given.gpus[:60]}'")
            counts = [int(word) for word in given.gpus.split(",")]
            bucket = bucket_bytes(given.overlap) if given.overlap else 0
            ways = given.parallel.split(",")
            write_scaling(Path(given.out), given.workload, given.batch, counts, given.precision, bucket, ways)
            groups = ("scaling",)
        settings = Settings(Path(given.out), groups, given.device, budget_s, given.machine, Effort(interval=interval))
        status = measure(settings)
        sys.stderr.write(f"wrote {given.out}; elsewhere: validate compare {given.out} --topology FILE\n")
    except (ValueError, OSError) as error:
        sys.stderr.write(f"--out {given.out}: {error.strerror}\n" if isinstance(error, OSError) else f"{error}\n")
    finally:
        if here is not None:
            here.end()
    return status


def _said(parser: argparse.ArgumentParser, given: argparse.Namespace, names: Sequence[str]) -> str:
    """Return the first of *names* that the command line changes; empty if none."""
    return next((name for name in names if getattr(given, name) != parser.get_default(name)), "")


def _limits(parser: argparse.ArgumentParser, given: argparse.Namespace) -> tuple[float | None, float]:
    if alone := _said(parser, given, _OF_CERTIFICATES):
        parser.error(f"--{alone}: is of a certificate; add --certificate")
    if not given.workload and (alone := _said(parser, given, _OF_STEPS)):
        parser.error(f"--{alone}: is of the step of --workload; add --workload and --gpus")
    option = "--budget"
    try:
        budget_s = duration_s(given.budget) if given.budget else None
        option = "--within"
        return budget_s, fraction(given.within)
    except ValueError as error:
        parser.error(f"{option}: {error}")


def _certificate(parser: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    from validate.machine.measure.certificate import measure_parts, write_certificate

    if wrong := _said(parser, given, ("only", "budget", "machine", "within", "workload", "gpus", *_OF_STEPS)):
        parser.error(f"--{wrong}: a certificate measures the same everywhere; --minutes and --asked are its options")
    if not _LEAST_MINUTES <= given.minutes <= _MOST_MINUTES and not given.folder:
        parser.error(f"--minutes: from {_LEAST_MINUTES:g} to {_MOST_MINUTES:g}; got {given.minutes:g}")
    try:
        if given.folder:
            return measure_parts(Path(given.folder), Path(given.out), given.minutes, given.device, given.begun)
        return write_certificate(Path(given.out), given.minutes, given.device, given.asked)
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError) as error:
        sys.stderr.write(f"--out {given.out}: {error.strerror}\n" if isinstance(error, OSError) else f"{error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
