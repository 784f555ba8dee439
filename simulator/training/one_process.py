"""One Python process that drives all GPUs: ``loop``, and torch's nn.DataParallel (docs/decisions/parallelism.md)."""

from collections.abc import Sequence

from simulator.collectives.communicator import Unsuitable
from simulator.devices.dispatch import dispatch_time
from simulator.network.routing import Router
from simulator.plan.plan import Flow, PlanBuilder
from simulator.questions.options import StepOptions
from simulator.step.issue import work_of
from simulator.step.launch import Launch
from simulator.step.precision import gradient_bytes
from simulator.training.data_parallel import ready_after
from simulator.training.roles import Role
from simulator.training.worker import AUTOGRAD, HOST, STREAM, CollectiveLabel, GroupExchange, RankRoles, Worker
from simulator.workload.kernels import Streaming
from simulator.workload.network import Network
from simulator.workload.operators import Copy, CrossEntropy


def write_process(
    crew: RankRoles, router: Router, network: Network, options: StepOptions, builder: PlanBuilder
) -> None:
    """Add a step of *crew*, whose replicas sum gradients tensor by tensor, to *builder*; raises Unsuitable."""
    replicas = _fed(crew, router, network, builder)
    for part in ("forward", "backward"):
        for role, worker in replicas:
            for issue in role.issues:
                if issue.part == part:
                    worker.issue(issue)
    element = gradient_bytes(options)
    (first, adder), *others = replicas
    tensors = [parameter.elements for parameters in ready_after(first.passes, network) for parameter in parameters]
    for elements in reversed(tensors):  # in network order
        size = elements * element
        host_s = dispatch_time(first.place.device, Copy(elements), "fwd")
        work = work_of(first.place.device, [Streaming("add", elements, 2 * int(size), int(size))])
        adding = Launch("add", "backward", host_s, work)
        for role, worker in others:
            copied = _copied(builder, router, role, first, size, (*worker.last, *adder.last))
            adder.issue(adding, after=[copied])
        for role, worker in others:
            worker.last = (_copied(builder, router, first, role, size, (*worker.last, *adder.last)),)
    for role, worker in replicas:
        after = worker.last
        for issue in role.issues:
            if issue.part == "update":
                worker.issue(issue, after=after)


def write_data_parallel_module(
    crew: RankRoles, router: Router, network: Network, options: StepOptions, exchange: GroupExchange
) -> None:
    """Add a step of nn.DataParallel over *crew*; raises Unsuitable."""
    builder, count, element = exchange.builder, len(crew.roles), gradient_bytes(options)
    (first, leader), *others = replicas = _fed(crew, router, network, builder)
    n_bytes = float(network.parameter_count * element)
    # Replicas are created in every step: one view of the broadcast data per parameter and replica.
    tensor_s = dispatch_time(first.place.device, Copy(1), "fwd")
    made_s = count * len(network.parameters) * tensor_s
    made = builder.work("replicate", first.place.host, made_s, stream=HOST, about=None)
    there = exchange("broadcast", n_bytes, [made, *leader.last])
    loss = network.layers[-1].name if isinstance(network.layers[-1].operator, CrossEntropy) else ""
    logits = float(network.elements[network.layers[-1].inputs[0]] * element) if loss else 0.0  # of a replica
    for same in crew.passes():  # threads take turns at the interpreter
        for worker, issue in zip(crew.workers, same, strict=True):
            if issue.part == "forward" and issue.layer != loss:
                worker.issue(issue, after=[there])
    for role, worker in others:
        leader.last = (_copied(builder, router, role, first, logits, (*worker.last, *leader.last), "gather"),)
    gathered = leader.last
    for part in ("forward", "backward"):
        for issue in first.issues:
            if issue.layer == loss and issue.part == part:
                leader.issue(issue, after=gathered, share=float(count))
    begun = {id(worker): leader.last for _, worker in replicas}
    for role, worker in others:
        begun[id(worker)] = (_copied(builder, router, first, role, logits, leader.last, "scatter gradients"),)
    for role, worker in replicas:
        worker.host_stream = f"{role.place.name}/{AUTOGRAD}"
        for issue in role.issues:
            if issue.part == "backward" and issue.layer != loss:
                worker.issue(issue, after=begun[id(worker)])
    summed = exchange("reduce", n_bytes, [number for _, worker in replicas for number in worker.last])
    leader.host_stream = HOST
    leader.last = (summed,)
    for issue in first.issues:
        if issue.part == "update":
            leader.issue(issue, after=[summed])


def _fed(crew: RankRoles, router: Router, network: Network, builder: PlanBuilder) -> list[tuple[Role, Worker]]:
    """Add the copy of each GPU's part of the batch from host memory; return the replicas; raises Unsuitable."""
    replicas = list(zip(crew.roles, crew.workers, strict=True))
    hosts = {router.machine.nodes[role.node].host for role, _ in replicas}
    if len(hosts) > 1:
        raise Unsuitable(f"one process drives the GPUs of one node, and these are in {len(hosts)}")
    fed = network.fed_elements
    size = float(fed * (8 if network.tokens else 4))
    for role, worker in replicas:
        issued_s = dispatch_time(role.place.device, Copy(fed), "fwd")
        issued = builder.work("split the batch", role.place.host, issued_s, stream=HOST)
        cpu = router.nearest_cpu(role.node)
        flows = [] if cpu is None else [Flow(router.route(cpu, role.node), size)]
        stream = f"{role.place.name}/copies"
        worker.last = (builder.add("batch", flows, stream=stream, after=[issued], place=role.place.name),)
        worker.waits_once = worker.last
    return replicas


def _copied(
    builder: PlanBuilder, router: Router, src: Role, dst: Role, size: float, after: Sequence[int], label: str = "copy"
) -> int:
    issued_s = dispatch_time(src.place.device, Copy(1), "fwd")
    issued = builder.work(label, src.place.host, issued_s, stream=HOST)
    flow, about = Flow(router.route(src.node, dst.node), size), CollectiveLabel("send-recv", size, 0)
    name, place = f"{label} {src.place.name} to {dst.place.name}", dst.place.name
    return builder.add(name, [flow], stream=STREAM, after=[issued, *after], about=about, place=place)
