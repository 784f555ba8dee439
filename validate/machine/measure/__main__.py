"""``python -m validate.measure``: measure a machine that has only torch."""

from __future__ import annotations

import argparse
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
    parser.add_argument("--out", required=True, metavar="DIR", help="where the tables go; an archive of a certificate")
    parser.add_argument("--certificate", action="store_true", help="measure what certifies predictions, in one archive")
    parser.add_argument("--minutes", type=float, default=9.0, metavar="MINUTES", help="of a certificate, in all; 9")
    parser.add_argument("--asked", default="", metavar="DIR", help="for a certificate: steps of validate run --prepare")
    parser.add_argument("--folder", default="", help=argparse.SUPPRESS)  # of the process that measures a certificate
    parser.add_argument("--begun", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--only", default="", metavar="GROUP,...", help="groups to measure; all if not said")
    parser.add_argument("--device", default="", metavar="NAME", help="cuda:0 or cpu; the first GPU if not said")
    parser.add_argument("--budget", default="", metavar="TIME", help="begin no case after this time, such as 120s")
    parser.add_argument("--machine", default="", metavar="NAME", help="the name of the machine in the tables")
    parser.add_argument("--within", default="1%", metavar="PART", help="how well medians are to be known; 1%%")
    parser.add_argument("--workload", default="", metavar="NETWORK", help="with --gpus: this step, and nothing else")
    parser.add_argument("--batch", type=int, default=32, metavar="COUNT", help="samples a rank; 32")
    parser.add_argument("--gpus", default="", metavar="N,...", help="over so many ranks, such as 1,2,4,8")
    parser.add_argument("--precision", default="fp32", metavar="NAME", help="fp32, tf32, amp-bf16, ...; fp32")
    parser.add_argument("--parallel", default="dp", metavar="HOW", help="dp: replicas; fsdp: shards; dp,fsdp; dp")
    parser.add_argument("--overlap", default="", metavar="bucket:SIZE", help="bytes of a bucket of gradients; 25 MiB")
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
        from validate.machine.measure.launched import launch
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
    """Return the budget in s and the interval; exit with status 2 on others, and on options that lack their own."""
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
    """Measure a certificate, or in its own process the parts of one, and return the exit status."""
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
