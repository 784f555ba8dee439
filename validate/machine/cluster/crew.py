"""The controller's side of the workers: start them in their namespaces, query them together, always end them."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from typing import IO, Any

from simulator.errors import TopocastError, one_line
from validate.machine.cluster.names import HOST_INTERFACE, RunNames

_STORE_PORT = 29600
_START_S = 180.0
_DIES_WITHIN_S = 5.0


class WorkerFailed(TopocastError):  # noqa: N818  the name says the fault
    """A worker has exited, reported an error, or not answered in time."""


def worker_command(names: RunNames, host: int) -> tuple[str, ...]:
    """Return the command that starts the worker of *host* in its namespace."""
    return ("ip", "netns", "exec", names.host(host), sys.executable, "-m", "validate.machine.cluster.worker")


class HostWorkers:
    """One worker on each of *n_hosts* hosts, as a context manager.

    ``versions`` holds what worker 0 reports of its software.  Entering raises WorkerFailed where one does not start.
    """

    def __init__(self, names: RunNames, n_hosts: int, node_counts: list[int]) -> None:
        self.versions: dict[str, str] = {}
        self._names = names
        self._n_hosts = n_hosts
        self._node_counts = node_counts
        self._workers: list[subprocess.Popen[str]] = []
        self._errors: list[IO[bytes]] = []

    def __enter__(self) -> HostWorkers:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "OMP_NUM_THREADS": "1",  # hosts share this machine's cores
        }
        try:
            for host in range(self._n_hosts):
                errors = tempfile.TemporaryFile()
                self._errors.append(errors)
                self._workers.append(
                    subprocess.Popen(
                        worker_command(self._names, host),
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=errors,
                        text=True,
                        env=environment,
                        start_new_session=True,  # Ctrl-C reaches only the controller
                    )
                )
            self._start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def ask(self, question: dict[str, Any], within_s: float) -> list[dict[str, Any]]:
        """Send *question* to all workers and return their answers, ordered by host.

        Raises WorkerFailed where a worker exits, reports an error, or does not answer within *within_s* seconds.
        """
        return self._ask([question] * self._n_hosts, within_s)

    def _start(self) -> None:
        common = {
            "do": "start",
            "interface": HOST_INTERFACE,
            "port": _STORE_PORT,
            "addresses": [self._names.address(i) for i in range(self._n_hosts)],
            "node_counts": self._node_counts,
        }
        answers = self._ask([{**common, "rank": rank} for rank in range(self._n_hosts)], _START_S)
        self.versions = dict(answers[0]["versions"])

    def _ask(self, questions: list[dict[str, Any]], within_s: float) -> list[dict[str, Any]]:
        for host, (worker, question) in enumerate(zip(self._workers, questions, strict=True)):
            assert worker.stdin is not None
            try:
                worker.stdin.write(json.dumps(question) + "\n")
                worker.stdin.flush()
            except OSError:
                raise self._failed(host, "has ended") from None
        limit = time.monotonic() + within_s
        answers: dict[int, dict[str, Any]] = {}
        while len(answers) < self._n_hosts:  # in order of arrival, to notice an exit at once
            waiting = {
                worker.stdout: host
                for host, worker in enumerate(self._workers)
                if worker.stdout is not None and host not in answers
            }
            ready, _, _ = select.select(list(waiting), [], [], max(0.0, limit - time.monotonic()))
            if not ready:
                raise self._failed(min(waiting.values()), f"has said nothing for {within_s:.0f} s")
            answers |= {waiting[stream]: self._answer(waiting[stream], stream) for stream in ready}
        return [answers[host] for host in range(self._n_hosts)]

    def _answer(self, host: int, stream: IO[str]) -> dict[str, Any]:
        line = stream.readline()
        if not line:
            raise self._failed(host, "has ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerFailed(f"the worker of host {host} failed: {one_line(answer['error'], 200)}")
        return answer

    def _failed(self, host: int, what: str) -> WorkerFailed:
        errors = self._errors[host]
        errors.seek(0)
        last = errors.read().decode("utf-8", "replace").strip().splitlines()[-1:]
        return WorkerFailed(f"the worker of host {host} {what}" + (f": {one_line(last[0], 200)}" if last else ""))

    def end(self) -> None:
        """Kill the workers and forget them."""
        for worker in self._workers:
            with contextlib.suppress(OSError):
                worker.kill()
        for worker in self._workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(_DIES_WITHIN_S)
            for stream in (worker.stdin, worker.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
        for errors in self._errors:
            errors.close()
        self._workers, self._errors = [], []
