"""Run a schedule on sets of contributions in place of numbers, and check that it performs its collective.

For each chunk, a rank holds the set of ranks whose contributions are in its sum, as a bit mask; 0 means nothing.
Sends of one repetition are simultaneous: all are read before any is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simulator.collectives.schedules import Schedule

State = list[list[int]]


class WrongScheduleError(AssertionError):
    """The schedule does not perform the collective; the message names the rank and the chunk."""


def initial(schedule: Schedule, collective: str, root: int = 0) -> State:
    """Return the initial contents of all ranks; helpers hold nothing."""
    n, m = schedule.n_ranks, schedule.n_chunks
    ends = [max(s.src, s.dst) for r in schedule.rounds for s in r.sends]
    state = [[0] * m for _ in range(max([n - 1, *ends]) + 1)]
    for rank in range(n):
        for chunk in range(m):
            state[rank][chunk] = _given(collective, n, m, rank, chunk, root) << rank
    return state


def _given(collective: str, n: int, m: int, rank: int, chunk: int, root: int) -> bool:
    if collective in ("all-reduce", "reduce", "reduce-scatter"):
        return True
    if collective == "broadcast":
        return rank == root
    # Blocks of equal length: one per rank, or n per rank for all-to-all.
    return chunk * n // m == rank


def play(
    schedule: Schedule,
    state: State,
    ranks: Sequence[int] | None = None,
    chunks: Callable[[int], Sequence[int]] = lambda c: (c,),
) -> None:
    """Run *schedule* on *state*.

    *ranks* maps the schedule's ranks to those of *state*, and *chunks* its chunks, so that a schedule can run as a
    phase of a larger one.
    """
    where = range(len(state)) if ranks is None else ranks
    m = schedule.n_chunks
    for number, step in enumerate(schedule.rounds):
        if step.repeat < 1 or not step.sends:
            raise WrongScheduleError(f"round {number} does nothing")
        for repetition in range(step.repeat):
            arriving = []
            for send in step.sends:
                if send.src == send.dst:
                    raise WrongScheduleError(f"round {number}: rank {send.src} sends to itself")
                if not 1 <= send.width <= m:
                    raise WrongScheduleError(f"round {number}: {send.width} of {m} chunks are sent")
                first = send.chunk(repetition, m)
                for chunk in (c for i in range(send.width) for c in chunks((first + i) % m)):
                    held = state[where[send.src]][chunk]
                    if not held:
                        raise WrongScheduleError(
                            f"round {number}: rank {send.src} sends chunk {chunk}, which it does not hold"
                        )
                    arriving.append((where[send.dst], chunk, held, send.reduce))
            written: dict[tuple[int, int], bool] = {}
            for rank, chunk, held, reduce in arriving:
                if written.get((rank, chunk), reduce) is not reduce or (not reduce and (rank, chunk) in written):
                    raise WrongScheduleError(f"round {number}: two sends write chunk {chunk} of rank {rank}")
                written[rank, chunk] = reduce
                if reduce and state[rank][chunk] & held:
                    raise WrongScheduleError(
                        f"round {number}: a contribution to chunk {chunk} counts twice at rank {rank}"
                    )
                state[rank][chunk] = state[rank][chunk] | held if reduce else held


def expect(state: State, collective: str, n: int, m: int, root: int = 0, pairs: Sequence[tuple[int, int]] = ()) -> None:
    """Raise :class:`WrongScheduleError` where *state* is not the result of *collective*."""
    everyone = (1 << n) - 1
    for rank in range(n):
        for chunk in range(m):
            owner = chunk * n // m
            whole = (
                collective == "all-reduce"
                or (collective == "reduce" and rank == root)
                or (collective == "reduce-scatter" and owner == rank)
            )
            moved = (
                collective == "all-gather"
                or (collective == "all-to-all" and chunk % n == rank)
                or (collective == "send-recv" and (owner, rank) in pairs)
            )
            wanted = everyone if whole else 1 << owner if moved else 1 << root if collective == "broadcast" else None
            if wanted is not None and state[rank][chunk] != wanted:
                raise WrongScheduleError(
                    f"{collective}: rank {rank} ends with {state[rank][chunk]:b} in chunk {chunk}, not {wanted:b}"
                )


def check(schedule: Schedule, collective: str, *, root: int = 0, pairs: Sequence[tuple[int, int]] = ()) -> None:
    """Raise :class:`WrongScheduleError` unless *schedule* performs *collective*, counting each contribution once."""
    state = initial(schedule, collective, root)
    play(schedule, state)
    expect(state, collective, schedule.n_ranks, schedule.n_chunks, root, pairs)


def sent_chunks(schedule: Schedule) -> dict[int, int]:
    """Return the number of chunks that each rank and helper sends."""
    sent: dict[int, int] = dict.fromkeys(range(schedule.n_ranks), 0)
    for step in schedule.rounds:
        for send in step.sends:
            sent[send.src] = sent.get(send.src, 0) + send.width * step.repeat
    return sent


def n_steps(schedule: Schedule) -> int:
    """Return the number of rounds, counting repetitions."""
    return sum(step.repeat for step in schedule.rounds)
