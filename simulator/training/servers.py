"""Parameter servers as a key-value store: push, pull, and bounded staleness (docs/decisions/parallelism.md)."""

from collections.abc import Sequence
from math import isqrt
from typing import Any, NamedTuple

from simulator.collectives.communicator import ConcurrentGroups, Unsuitable
from simulator.collectives.registry import find_strategy
from simulator.devices.optimizer import state_copies
from simulator.kept import Kept
from simulator.network.route import Route
from simulator.plan.plan import Flow, Fragment, Perturbation, Plan, PlanBuilder
from simulator.questions.step import StepQuestion
from simulator.records import dataclass, replace
from simulator.step.precision import gradient_bytes
from simulator.topology.parts import CpuPart
from simulator.training.plan import SharedStep
from simulator.training.roles import Role, loaded, slowest_of
from simulator.training.teams import MOST_FLOWS, Key, Loss, NodeTeam, bundled, keys_of
from simulator.training.worker import Worker
from simulator.workload import Collective

READ, INSIDE, TO_CPU, PUSH = "read and split", "local aggregation", "to the CPU", "push"
UPDATE, PULL, TO_GPUS, SPREAD = "update", "pull", "to the GPUs", "local all-gather"
STAGES = READ, INSIDE, TO_CPU, PUSH, UPDATE, PULL, TO_GPUS, SPREAD
ARRIVES = "arrives"  # label of the activities that stand for the latency of a transfer


class ServerLabel(NamedTuple):
    """Label of an activity: a stage of a key's exchange in a team's step; ``team`` is -1 for all teams together."""

    stage: str
    team: int
    step: int
    key: int
    server: int = -1


def pace_in(question: StepQuestion, teams: Sequence[NodeTeam], team: NodeTeam, role: Role) -> float:
    """Return the pace of a device of *role*, with waits for others: without synchrony, for its node's alone."""
    if not question.contention:
        return role.pace
    device = role.place.device
    alike = sum(r.count for each in teams for r in each.roles if r.place.device is device)
    alike = alike if question.staleness is not None else role.count // len(team.cpus)
    return role.pace * slowest_of(alike, device.constants)


def plan_servers(
    shared: SharedStep,
    teams: Sequence[NodeTeam],
    servers: Sequence[int],
    steps: Sequence[int],  # of each team
    *,
    starts_s: Sequence[float] = (),  # at which teams begin, if not all at once
    loss: Loss | None = None,  # of one of the servers
) -> Plan:
    """Return the plan of *teams* over their *steps* from *starts_s* on, perhaps with a *loss*; or Unsuitable."""
    writer = _Writer(shared, teams, servers, loss)
    for state, number, start_s in zip(writer.states, range(len(starts_s)), starts_s, strict=False):
        stream = writer.named(ServerLabel("begins", number, 0, -1))["stream"]
        state.last = (writer.builder.work("begins", "", start_s, stream=stream),)
    for step in range(max(steps)):
        going = [number for number, count in enumerate(steps) if step < count]
        for number in going:
            writer.compute(number, step)
        for number in going:
            writer.push(number, step)
        writer.update(going, step)
        for number in going:
            writer.pull(number, step)
    return writer.builder.build()


@dataclass(slots=True)
class _State:
    workers: list[Worker]
    keys: list[list[Key]]  # by worker
    ends: list[list[int]]  # by worker: the end of each issue in the last step
    last: tuple[int, ...] = ()  # the last issues of the step before
    here: list[list[int]] | None = None  # by key: its parameters' arrival on the GPUs


class _Writer:
    def __init__(
        self, shared: SharedStep, teams: Sequence[NodeTeam], servers: Sequence[int], loss: Loss | None
    ) -> None:
        self.builder = PlanBuilder()
        self.known = Kept()  # flows, routes and collectives, which repeat from step to step
        self.bare: dict[int, tuple[Sequence[Flow], tuple[Flow, ...], float]] = {}  # of flows, by identity
        self.group, self.machine, self.question = shared.group, shared.machine, shared.question
        self.teams, self.servers, self.loss = teams, servers, loss
        question, network = self.question, shared.network
        self.input_bytes = float(network.fed_elements * (8 if network.tokens else 4))  # fp32, or tokens
        element = gradient_bytes(question.options, sums_in_fp32=question.sums_in_fp32)
        nodes = [cpu for team in teams for cpu in team.cpus]
        # By team: the routes of all its nodes but the first, which is simulated in full.
        rests = [(team.cpus[1:], [cpu for cpu in nodes if cpu not in team.cpus[1:]]) for team in teams]
        self.bundles = [bundled(self.group, *rest, servers) for rest in rests]
        sending = sum(2 if bundle else len(team.cpus) for bundle, team in zip(self.bundles, teams, strict=True))
        if (n_flows := sending * len(servers)) > MOST_FLOWS:
            fewer = MOST_FLOWS // len(nodes)
            most = isqrt(MOST_FLOWS) if set(servers) == set(nodes) else MOST_FLOWS // len(servers)
            raise Unsuitable(
                f"{len(nodes)} nodes exchange with {len(servers)} servers: {n_flows:,} flows a key, and {MOST_FLOWS} "
                f"at most are simulated; take at most {most} nodes"
                + (f", or parameter-server-{fewer}" if fewer else "")
            )
        several_roles = sum(len(team.roles) for team in teams) > 1
        spread = any(team.spread for team in teams)
        self.states = []
        for team in teams:
            workers = [
                Worker(
                    self.builder,
                    self.machine,
                    role.place,
                    captured=question.options.cuda_graph,
                    loads=question.contention,
                    pace=pace_in(question, teams, team, role),
                    prefix=f"{role.place.name}/" if several_roles else "",
                )
                for role in team.roles
            ]
            keys = [keys_of(network, role.passes, element, len(servers), spread=spread) for role in team.roles]
            self.states.append(_State(workers, keys, [[] for _ in workers]))
        self.keys = self.states[0].keys[0]
        self.recovered = [] if loss is None else self._recovered(loss)
        self.pushed: dict[tuple[int, int, int], list[int]] = {}  # team, step, key
        self.updated: dict[tuple[int, int, int], list[int]] = {}  # team (-1: all), step, key

    def compute(self, number: int, step: int) -> None:
        team, state = self.teams[number], self.states[number]
        flows = self._to_gpus(number, self.input_bytes)
        batch = self._moved(ServerLabel(READ, number, step, -1), flows, list(state.last))  # beside the previous step
        state.last = tuple(worker.last[0] for worker in state.workers if worker.last)
        for place, (role, worker) in enumerate(zip(team.roles, state.workers, strict=True)):
            passes, needs = role.passes, dict[int, list[int]]({0: list(batch)})
            for key, there in zip(state.keys[place], state.here or [], strict=state.here is not None):
                needs.setdefault(key.needed_by, []).extend(there)
            for repeat in range(self.question.micro_batches):
                waits = needs if repeat == 0 else {}
                state.ends[place] = [
                    worker.issue(issue, after=waits.get(i, ()), micro_batch=step) for i, issue in enumerate(passes)
                ]

    def push(self, number: int, step: int) -> None:
        team, state = self.teams[number], self.states[number]
        for k, key in enumerate(self.keys):
            own = [keys[k].ready_after if self.question.bucket_bytes else -1 for keys in state.keys]
            after = [ends[place] for ends, place in zip(state.ends, own, strict=True)]
            after = self._inside(ServerLabel(INSIDE, number, step, k), after)
            flows = self._to_gpus(number, key.size_bytes / len(team.ranks), back=True)
            after = self._moved(ServerLabel(TO_CPU, number, step, k), flows, after)
            self.pushed[number, step, k] = self._exchanged(ServerLabel(PUSH, number, step, k), after)

    def update(self, going: Sequence[int], step: int) -> None:
        """Add the servers' updates with the pushes of the teams *going*: all at once, or each team's separately."""
        together, loss = self.question.staleness == 0, self.loss
        optimizer = self.question.options.optimizer
        states = None if optimizer == "none" else state_copies(optimizer)
        for number in [-1] if together else going:
            own = going if together else [number]
            workers = sum(len(self.teams[n].cpus) for n in own)
            # Read all pushes and write their sum once; then read it, and read and write parameters and their state.
            passes = workers + 1.0 if together else 0.0
            passes += 1.0 + 2.0 * (1 + states) if states is not None else 0.0 if together else 3.0
            passes *= 1 if together else workers
            for k, key in enumerate(self.keys):
                after = [end for n in own for end in self.pushed.pop((n, step, k))]
                at = ServerLabel(UPDATE, number, step, k)
                late = loss is not None and loss.progress(PUSH, step, k) != "done"
                ends = self._updated(at, loss.without(key) if loss is not None and late else key, passes, after)
                gone = loss is not None and not late and loss.progress(PULL, step, k) != "done"
                if loss is not None and gone and key.shares_bytes[loss.server]:
                    again = loss.only(key)
                    flows = [flow for n in own for flow in self._network(n, again, True)]
                    pushed = self._moved(ServerLabel(PUSH, own[0], step, k), flows, [*ends, *self.recovered])
                    ends = self._updated(at, again, passes, pushed)
                self.updated[number, step, k] = ends

    def _updated(self, at: ServerLabel, key: Key, passes: float, after: list[int]) -> list[int]:
        """Add *passes* over each server's share of *key* in its memory, one team at a time; return their ends."""
        ends = []
        for j, (server, share) in enumerate(zip(self.servers, key.shares_bytes, strict=True)):
            if share:
                node = self.machine.nodes[server]
                memory_Bps = node.part.memory_bandwidth if isinstance(node.part, CpuPart) else None
                busy_s = passes * share / memory_Bps if memory_Bps else 0.0
                turn = (f"{node.name}:updates",) if at.team >= 0 and busy_s else ()
                self.builder.queues |= dict.fromkeys(turn, 1)
                stream = f"{node.name}/update" + ("" if at.team < 0 else f" for team {at.team}")
                of: dict[str, Any] = {"stream": stream, "takes": turn, "gives": turn, "about": at._replace(server=j)}
                ends.append(self.builder.work(f"{UPDATE} {key.layer}", node.name, busy_s, after=after, **of))
        return ends

    def pull(self, number: int, step: int) -> None:
        state, late = self.states[number], self.question.staleness
        state.here = []
        for k, key in enumerate(self.keys):
            after = list(self.updated[-1 if late == 0 else number, step, k])
            if late:  # the others' pushes, `late` steps earlier
                for other in range(len(self.teams)):
                    after += self.updated.get((other, step - late, k), ()) if other != number else ()
            after = self._exchanged(ServerLabel(PULL, number, step, k), after)
            flows = self._to_gpus(number, key.size_bytes / len(self.teams[number].ranks))
            after = self._moved(ServerLabel(TO_GPUS, number, step, k), flows, after)
            state.here.append(self._inside(ServerLabel(SPREAD, number, step, k), after))

    def named(self, about: ServerLabel) -> dict[str, Any]:
        cpu = self.machine.nodes[self.teams[about.team].cpus[0]].name
        return {
            "label": f"{about.stage} {self.keys[about.key].layer}" if about.key >= 0 else about.stage,
            "stream": f"{cpu}/{about.stage}" if len(self.teams) > 1 else about.stage,
            "place": cpu,
            "about": about,
        }

    def _to_gpus(self, number: int, size_bytes: float, *, back: bool = False) -> list[Flow]:
        """Return flows of *size_bytes* from the CPU of a team's node to each of its GPUs, or *back*."""

        def find() -> list[Flow]:
            cpu, gpus = self.teams[number].cpus[0], [self.group.ranks[rank] for rank in self.teams[number].ranks]
            route = self.group.router.route
            return [Flow(route(gpu, cpu) if back else route(cpu, gpu), size_bytes) for gpu in gpus]

        return self.known.once(("GPUs", number, size_bytes, back), find)

    def _inside(self, at: ServerLabel, after: list[int]) -> list[int]:
        """Add a collective over the GPUs of a node, along its rings."""
        team = self.teams[at.team]
        if len(team.ranks) < 2:
            return after

        def find() -> Fragment:
            op: Collective = "reduce-scatter" if at.stage == INSIDE else "all-gather"
            loads_on = loaded(team.roles) if self.question.contention else {}
            part = self.group.part(team.ranks)
            ring, size_bytes = find_strategy("ring"), self.keys[at.key].size_bytes
            return ConcurrentGroups([part]).collective(op, size_bytes, ring, loads_on=loads_on)

        fragment = self.known.once((at.stage, at.team, at.key), find)
        return [self.builder.add(parts=(fragment,), after=after, **self.named(at))]

    def _exchanged(self, at: ServerLabel, after: list[int]) -> list[int]:
        """Add the transfer of a key to or from the servers, and its repetition if a server's loss interrupts it."""
        key, pushes, loss = self.keys[at.key], at.stage == PUSH, self.loss
        first, whole = len(self.builder.tasks), self._network(at.team, key, pushes)
        if loss is None:
            return self._moved(at, whole, after)
        progress = loss.progress(at.stage, at.step, at.key)
        if progress != "not begun":
            after = self._moved(at, whole, after)
        if progress == "done":
            return after
        added = range(first, len(self.builder.tasks))
        self.builder.perturbations += [Perturbation(loss.at_s, cancels=task) for task in added]
        return self._moved(at, self._network(at.team, loss.without(key), pushes), [*after, *self.recovered])

    def _recovered(self, loss: Loss) -> list[int]:
        """Add the transfer of the lost server's keys from the first worker to the remaining servers."""
        node = self.machine.nodes[self.servers[loss.server]].name
        lost = self.builder.work("server lost", node, loss.at_s, stream=f"{node}/lost")
        held = sum(key.shares_bytes[loss.server] for key in self.keys) / (len(self.servers) - 1)
        left = [server for j, server in enumerate(self.servers) if j != loss.server]
        cpu = self.teams[0].cpus[0]
        flows = [Flow(self.group.router.route(cpu, server), held) for server in left if server != cpu]
        if not flows:
            return [lost]
        place, about = self.machine.nodes[cpu].name, ServerLabel("keys of the lost server", 0, -1, -1)
        stream = f"{place}/recovery"
        return [self.builder.add(about.stage, flows, stream=stream, after=[lost], about=about, place=place)]

    def _network(self, number: int, key: Key, pushes: bool) -> list[Flow]:
        """Return the flows of a key between a team's nodes and the servers; none within a server's own node."""

        def find() -> list[Flow]:
            found, bundle = [], self.bundles[number]
            for cpu in self.teams[number].cpus[: 2 if bundle else None]:
                for server, share in zip(self.servers, key.shares_bytes, strict=True):
                    if share and server != cpu:
                        ends = (cpu, server) if pushes else (server, cpu)
                        found.append(Flow(bundle.get(ends) or self.group.router.route(*ends), share))
            return found

        return self.known.once(("network", number, key.shares_bytes, pushes), find)

    def _moved(self, at: ServerLabel, flows: Sequence[Flow], after: list[int]) -> list[int]:
        """Add *flows*; the stream is free once the bytes are sent, and the result arrives one latency later."""
        if not flows:
            return after
        if id(flows) not in self.bare:
            bare = tuple([Flow(self._without_latency(flow.route), flow.bytes) for flow in flows])
            self.bare[id(flows)] = flows, bare, max(flow.route.latency_s for flow in flows)
        _, bare, latency_s = self.bare[id(flows)]
        named = self.named(at)
        end = self.builder.add(parts=bare, after=after, **named)
        if not latency_s:
            return [end]
        label, stream = f"{named['label']} arrives", f"{named['stream']} {at.key}"
        return [self.builder.work(label, "", latency_s, stream=stream, after=[end], about=ARRIVES)]

    def _without_latency(self, route: Route) -> Route:
        return self.known.once(id(route), lambda: (route, replace(route, latency_s=0.0)))[1]
