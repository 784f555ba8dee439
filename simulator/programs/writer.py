"""Writes a program as a plan: :class:`Writer` (docs/decisions/host.md)."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import assert_never

from simulator.collectives.communicator import Unsuitable
from simulator.devices.cpu import Cpu
from simulator.errors import InputError
from simulator.host.copies import copy_plan, copy_within_s
from simulator.network.routing import Router
from simulator.places import Place, Places
from simulator.plan.plan import PlanBuilder, Resource
from simulator.programs import costs as c
from simulator.programs import statements as s
from simulator.questions.single import CopyKind, CopyQuestion
from simulator.questions.where import Where
from simulator.records import replace

HOST = "host"
LOCK = "interpreter lock"
MAX_STEPS = 200_000  # statements and activities that do not repeat evenly and are simulated one by one


class Writer:
    """Writes statements in turn into ``builder`` from ``state``; *write_loop* writes a body as often as it must."""

    def __init__(
        self,
        program: s.Program,
        places: Places,
        router: Router,
        costs: c.ProgramPricer,
        device: str | None,
        threads: int | None,
        write_loop: "Callable[[Writer, s.Statement], None]",
    ) -> None:
        self.program, self.places, self.router, self.costs = program, places, router, costs
        self.threads, self.write_loop = threads, write_loop
        self.default = places.find(device).name
        self.front = places.constants["front_ends"]
        self.is_mxnet = program.software.front_end == "mxnet"
        self.builder = PlanBuilder()
        self.state = c.State()
        self.host = HOST
        self.locks: tuple[str, ...] = ()
        self.runs_on_cpu = False
        self.statements = 0
        self.executed = 0  # activities, to see whether loops repeat evenly; each takes longer than to write it
        self.run_on = frozenset(_run_on(program.body))
        self.place = cache(self._place)
        self.host_place = self.place(None).host  # the CPU on which Python runs

    def _place(self, name: str | None) -> Place:
        """Return the device *name*, by default the program's own; raises InputError where there is none."""
        is_cpu = self._kind(name or self.default) in ("", "cpu")  # "cpu" names all sockets, no device
        return self.places.find(name or self.default, threads=self.threads if is_cpu else None)

    def _kind(self, device: str) -> str:
        """Return the kind of *device*; "" if no device has this name."""
        node = self.places.machine.find(device)
        return "" if node is None else node.kind

    def stream(self, device: str, name: str) -> c.Stream:
        """Return the stream *name* of *device*, created empty at first use."""
        key = f"{device}/{name}"
        if key not in self.state.streams:
            self.state.streams[key] = c.Stream(device, c.StreamQueue(self.program.software.depth))
        return self.state.streams[key]

    def _named(self, name: str) -> c.Stream:
        device, _, stream = name.partition("/")
        return self.stream(self.place(device).name, stream)

    def _ready(self, names: Sequence[str]) -> list[int]:
        return [number for name in names for number in self.state.tensors[name].ready]

    def block(self, body: Sequence[s.Statement]) -> None:
        """Write *body* once; raises InputError where a statement cannot be simulated."""
        for statement in body:
            self.statements += 1
            self.count(statement.path, len(self.builder.tasks) + self.statements)
            self._write(statement, statement.keys)

    def _write(self, statement: s.Statement, keys: s.Keys) -> None:
        state = self.state
        match statement.verb:
            case "run":
                self._run(statement, keys)
            case "copy" | "move":
                self._copy(keys)
            case "exchange":
                self._exchange(statement, keys)
            case "tensor":
                state.tensors[keys.tensor] = c.DeviceTensor(self.place(keys.device).name, statement.size_bytes)
            case "read":
                self._read(keys.read, keys.form)
            case "wait":
                self._wait(keys.wait)
            case "record":
                self.on_host("event", self.front.call_s, use="issue")
                state.events[keys.record] = self._named(keys.stream).last
            case "hold":
                self.on_host("event", self.front.call_s, use="issue")
                stream = self._named(keys.hold)
                stream.after = (*stream.after, *state.events.get(keys.until, ()))
            case "python":
                self.on_host("python", keys.python, use="python")
            case "mark":
                noted = state.marks.setdefault(keys.mark, c.MarkState())
                noted.numbers.append(self.on_host(keys.mark, 0.0, use="mark"))
                noted.count += 1
            case "repeat":
                self.write_loop(self, statement)
            case "threads":
                self._threads(statement)
            case _:
                assert_never(statement.verb)

    def count(self, path: s.Path, steps: int) -> None:
        """Raise InputError at *path* if there are more than ``MAX_STEPS`` *steps*."""
        if steps > MAX_STEPS:
            told = f"more than {MAX_STEPS:,} statements and activities that do not repeat evenly; repeat it less often"
            raise InputError(self.program.source.fault(path, told))

    def on_host(self, label: str, seconds: float, *, use: c.Use, after: Sequence[int] = ()) -> int:
        """Add an activity of the host and return its number; where threads share the lock, all but waits need it."""
        locks = self.locks if use != "wait" and seconds > 0 else ()
        stream, about, add = self.host, c.ProgramLabel(use), self.builder.work
        return add(label, self.host_place, seconds, stream=stream, after=after, takes=locks, gives=locks, about=about)

    def _run(self, run: s.Statement, keys: s.Keys) -> None:
        tensors = self.state.tensors
        place = self.place(keys.device or next((tensors[name].device for name in keys.reads), None))
        self.runs_on_cpu |= isinstance(place.device, Cpu)
        try:
            calls, result_bytes = self.costs.of(run, place)
        except InputError as error:
            raise InputError(self.program.source.fault((*run.path, "run"), error.spelt("value"))) from None
        needs = self._ready(keys.reads)
        last: tuple[int, ...] = ()
        for call in calls:
            last = (self._call(call, place, run.stream, needs),)
            needs = []
        if keys.gives is not None:
            tensors[keys.gives] = c.DeviceTensor(place.name, result_bytes, last, calls[-1].back_s if calls else 0.0)

    def _call(self, call: c.CallPrice, place: Place, name: str, needs: Sequence[int]) -> int:
        self.state.operators += 1
        stream = self.stream(place.name, name)
        after, add = (*stream.after, *needs), partial(self.builder.work, call.label, place.name)
        if place.name == place.host and not self.program.software.cpu_queue:
            locks, about = self.locks, c.ProgramLabel("kernel", call.bound, issue_s=call.issue_s)
            seconds = call.issue_s + call.compute_s
            number = add(seconds, stream=self.host, after=after, takes=locks, gives=locks, about=about)
            stream.last, stream.after, stream.back_s = (number,), (), 0.0
            return number
        blocker = stream.queue.blocker()
        room = [] if blocker is None else [self.later(*blocker)]
        issued = self.on_host(call.label, call.issue_s, use="issue", after=room)
        loads, about = self._loads(place, call), c.ProgramLabel("kernel", call.bound)
        number = add(call.compute_s, stream=f"{place.name}/{name}", after=(issued, *after), loads=loads, about=about)
        stream.queue.add(number)
        stream.last, stream.after, stream.back_s = (number,), (), call.back_s
        if call.holds_bytes:
            self.state.held.append(c.HeldMemory(issued, number, call.holds_bytes))
        return number

    def later(self, number: int, late_s: float) -> int:
        """Return an activity that ends *late_s* after the end of *number*."""
        if not late_s:
            return number
        stream = f"later/{len(self.builder.tasks)}"
        return self.builder.work("", "", late_s, stream=stream, after=[number], about=c.ProgramLabel("hidden"))

    def _loads(self, place: Place, call: c.CallPrice) -> tuple[tuple[Resource, float], ...]:
        """Return the resources of its device that *call* uses, where other streams of the device may share them."""
        if len({stream for device, stream in self.run_on if device in (place.name, "")}) < 2:
            return ()
        node = self.places.machine.find(place.name)
        if node is None:
            return ((f"{place.name}:multiprocessors", 1.0),)
        return (node.multiprocessors, call.shares[0]), (node.memory, call.shares[1])

    def _copy(self, keys: s.Keys) -> None:
        name, to = keys.copy_ or keys.move, self.place(keys.to)
        tensor, gives = self.state.tensors[name], keys.gives or name
        if keys.move and tensor.device == to.name:
            self.on_host(f"{name} is there", self.front.call_s, use="issue")
            self.state.tensors[gives] = tensor
            return
        done, is_sync = self._copied(name, tensor, to, pinned=keys.pinned, fresh=keys.fresh, over=keys.stream)
        waits = keys.blocking if keys.blocking is not None else not self.is_mxnet
        if waits or (is_sync and not self.is_mxnet):
            done = self.on_host("wait", self.front.wait_s, use="wait", after=[done])
        self.state.tensors[gives] = c.DeviceTensor(to.name, tensor.size_bytes, (done,), self.front.wait_s)

    def _copied(
        self, name: str, tensor: c.DeviceTensor, to: Place, *, pinned: bool, fresh: bool, over: str = ""
    ) -> tuple[int, bool]:
        """Add the copy of *tensor* to *to* on the stream *over*; return its last activity, and whether it blocks."""
        question = self._question(tensor, to, pinned=pinned, fresh=fresh)
        kind, label, add = question.kind, f"copy {name}", self.builder.add
        self.state.copies += 1
        issued = self.on_host(label, self.costs.call_s(to), use="issue")
        about = c.ProgramLabel("copy", bytes=tensor.size_bytes)
        gpu = tensor.device if kind in ("d2h", "d2d", "p2p") else to.name
        ordered = None
        if not self.is_mxnet or over:
            ordered = self.stream(gpu, (over or s.STREAM).rpartition("/")[2])
        behind = () if ordered is None else (*ordered.last, *ordered.after)
        after: tuple[int, ...] = (issued, *tensor.ready, *behind)
        within_s = copy_within_s(question, self.places)
        if within_s is not None:
            beside = "compute" if kind == "d2d" else "copies"
            number = self.builder.work(label, gpu, within_s, stream=f"{gpu}/{beside}", after=after, about=about)
        else:
            beside = f"copies {'in' if kind == 'h2d' else 'out'}"
            for task in copy_plan(question, self.places, self.router).tasks:
                own = label if task.label == "copy" else task.label
                number = add(own, task.parts, stream=f"{gpu}/{beside}", after=after, place=gpu, about=about)
                after = (number,)
        self.stream(gpu, beside).last = (number,)
        if ordered is not None and (behind or over):
            ordered.after = (*ordered.after, number)
        return number, not pinned and kind in ("h2d", "d2h", "h2h")

    def _question(self, tensor: c.DeviceTensor, to: Place, *, pinned: bool, fresh: bool) -> CopyQuestion:
        gpus = {self.places.machine.nodes[index].name: i for i, index in enumerate(self.places.machine.gpus)}
        src, dst = gpus.get(tensor.device), gpus.get(to.name)
        kind: CopyKind
        if src is None:
            kind = "h2h" if dst is None else "h2d"
        elif dst is None:
            kind = "d2h"
        else:
            kind = "d2d" if src == dst else "p2p"
        end = tensor.device if kind == "h2d" else to.name
        is_socket = kind in ("h2d", "d2h") and self._kind(end) == "cpu"  # all sockets together have no memory of theirs
        return CopyQuestion(
            where=Where(""),
            kind=kind,
            size_bytes=max(1.0, tensor.size_bytes),  # a tensor of no size costs what a copy costs at least
            src=dst if src is None and dst is not None else src or 0,
            dst=dst or 0,
            pinned=pinned or kind in ("p2p", "d2d"),
            fresh=fresh,
            threads=1 if kind == "h2h" else None,
            socket=end if is_socket else "",
        )

    def _exchange(self, exchange: s.Statement, keys: s.Keys) -> None:
        gpu = self.places.machine.nodes[self.places.machine.gpus[0]].name
        try:
            fragment = self.costs.exchanged(exchange)
        except Unsuitable as error:
            message = f"{keys.strategy} does not fit: {error.why}"
            raise InputError(self.program.source.fault((*exchange.path, "exchange"), message)) from None
        self.state.copies += 1
        label, stream, name = keys.exchange, self.stream(gpu, exchange.stream), f"{gpu}/{exchange.stream}"
        issued = self.on_host(label, self.places.constants["dispatch"].bare_launch_s, use="issue")
        after = (issued, *stream.after, *self._ready(keys.reads))
        about = c.ProgramLabel("copy", bytes=exchange.size_bytes)
        number = self.builder.add(label, (fragment,), stream=name, after=after, place=gpu, about=about)
        stream.last, stream.after, stream.back_s = (number,), (), self.front.wait_s

    def _wait(self, what: str) -> None:
        tensor, streams = self.state.tensors.get(what), [*self.state.streams.values()]
        after: Sequence[int]
        if what != "all" and tensor is not None:
            back_s, after = tensor.back_s, tensor.ready
        elif what != "all" and what in self.state.events:
            back_s, after = self.front.wait_s, self.state.events[what]
        else:
            if "/" in what:
                streams = [self._named(what)]
            elif what != "all":
                device = self.place(what).name
                streams = [stream for stream in streams if stream.device == device]
            after = [number for stream in streams for number in (*stream.last, *stream.after)]
            back_s = max((stream.back_s for stream in streams), default=0.0)
        self.on_host(f"wait for {what}", back_s, use="wait", after=after)

    def _read(self, name: str, form: str) -> None:
        tensor = self.state.tensors[name]
        is_array, is_gpu = form == "numpy", self._kind(tensor.device) == "gpu"
        done: Sequence[int] = tensor.ready
        if is_gpu:
            part = replace(tensor, size_bytes=tensor.size_bytes if is_array else min(tensor.size_bytes, 8.0))
            cpu = self.place(self.host_place) if self.places.machine.find(self.host_place) else self.place("cpu")
            done = (self._copied(name, part, cpu, pinned=not is_array, fresh=is_array)[0],)
        back_s = tensor.back_s if tensor.ready else self.front.wait_s
        self.on_host(f"wait for {name}", back_s, use="wait", after=done)
        if is_array and not is_gpu and self.is_mxnet:
            question = self._question(tensor, self.place(tensor.device), pinned=False, fresh=True)
            self.on_host(f"copy {name}", copy_within_s(question, self.places) or 0.0, use="python")
        if self.is_mxnet:
            self.on_host("array", self.places.constants["front_ends.mxnet"].operator_s, use="python")
        if form == "print":
            self.on_host("print", self.front.print_s, use="python")

    def _threads(self, threads: s.Statement) -> None:
        started = self.on_host("threads start", 0.0, use="mark")
        host, ends = self.host, [started]
        self.builder.queues[LOCK] = 1
        for i, body in enumerate(threads.bodies):
            self.host, self.locks = f"{host} {i}", (LOCK,)
            self.on_host("thread starts", 0.0, use="mark", after=[started])
            self.block(body)
            ends.append(self.on_host("thread ends", 0.0, use="mark"))
        self.host, self.locks = host, ()
        self.on_host("threads end", 0.0, use="mark", after=ends)


def _run_on(body: Sequence[s.Statement]) -> Iterator[tuple[str, str]]:
    """Yield the device, ``""`` for the default one, and the stream of each operator."""
    for statement in body:
        if statement.verb == "run":
            yield statement.keys.device or "", statement.stream
        for each in statement.bodies:
            yield from _run_on(each)
