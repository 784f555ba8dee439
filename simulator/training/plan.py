"""The plan of a step over one device or several: ``plan_step``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from simulator.collectives.communicator import Communicator
from simulator.collectives.request import Strategy
from simulator.devices.predict import Device
from simulator.network.machine import Machine
from simulator.plan.plan import Plan, PlanBuilder
from simulator.questions.step import StepQuestion
from simulator.training.data_parallel import write_data_parallel
from simulator.training.exchange import Exchange
from simulator.training.micro_batches import Batches
from simulator.training.roles import Role
from simulator.training.sharded import write_sharded
from simulator.training.slowest import slowest_of
from simulator.training.worker import Worker
from simulator.workload.network import Network

__all__ = ["plan_step"]


def plan_step(
    machine: Machine,
    roles: Sequence[Role],
    network: Network,
    question: StepQuestion,
    group: Communicator | None = None,
    strategy: str | Strategy = "nccl",
    batches: Batches | None = None,
) -> Plan:
    """Return the plan of a step in which the ranks of *group* play *roles*; without a group one device steps alone.

    *batches* are its micro-batches, each written out unless said.

    Raises Unsuitable where *strategy* does not fit.
    """
    builder = PlanBuilder()
    options = question.options
    batches = batches or Batches(question.micro_batches)
    contends = question.contention and group is not None and (options.trains or question.parallel == "fsdp")
    alike = Counter[Device]()  # ranks on devices of a part
    for role in roles:
        alike[role.place.device] += role.count
    workers = [
        (
            role,
            Worker(
                builder,
                machine,
                role.place,
                captured=options.cuda_graph,
                loads=contends,
                pace=slowest_of(alike[role.place.device], role.place.device.constants) if contends else 1.0,
                prefix=f"{role.place.name}/" if len(roles) > 1 else "",
            ),
        )
        for role in roles
    ]
    if group is None:
        for role, worker in workers:
            for number in batches:
                worker.go_on(batches.skip(builder, number))
                for issue in role.issues:
                    if number == batches.last or issue.part != "update":
                        worker.issue(issue, micro_batch=number)
        return builder.build()
    exchange = Exchange(builder, group, strategy, [role.node for role in roles] if contends else ())
    if question.parallel == "fsdp":
        write_sharded(
            workers,
            network,
            options,
            exchange,
            batches,
            n_ranks=group.n_ranks,
            sums_in_fp32=question.sums_in_fp32,
            prefetches=question.prefetches,
        )
    else:
        write_data_parallel(
            workers,
            network,
            options,
            exchange,
            batches,
            bucket_bytes=question.bucket_bytes,
            copies=contends and question.bucket_bytes > 0,
        )
    return builder.build()
