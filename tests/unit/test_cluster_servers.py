"""Push and pull between real sockets, on loopback addresses: the sum is right, whoever serves."""

from __future__ import annotations

import random
import sys
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from validate.machine.cluster.parameter_server import Servers, shares

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="127.0.0.2 and on are Linux's")

N = 4


def add(total: memoryview, parts: list[bytearray]) -> None:
    numbers = total.cast("i")
    for part in parts:
        for i, value in enumerate(memoryview(part).cast("i")):
            numbers[i] += value


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[Servers]]:
    addresses = [f"127.0.0.{i + 1}" for i in range(N)]
    with ThreadPoolExecutor(N) as pool:
        for port in random.Random(4).sample(range(20_000, 30_000), 5):
            try:
                made = list(pool.map(lambda rank, port=port: Servers(rank, addresses, port), range(N)))
            except OSError:
                continue  # somebody has the port
            break
        else:
            pytest.skip("no free port on the loopback interface")
    yield made
    for host in made:
        host.close()


@pytest.mark.parametrize(("n", "n_servers"), [(n, k) for n in (2, 3, 4) for k in range(1, n + 1)])
@pytest.mark.parametrize("length", [1, 7, 50_000])
def test_every_host_ends_with_the_sum(hosts: list[Servers], n: int, n_servers: int, length: int) -> None:
    buffers = [array("i", [(rank + 1) * 10**6 + i for i in range(length)]) for rank in range(n)]
    expected = [sum(rank + 1 for rank in range(n)) * 10**6 + n * i for i in range(length)]
    with ThreadPoolExecutor(n) as pool:
        calls = [
            pool.submit(hosts[rank].push_pull, memoryview(buffers[rank]).cast("B"), 4, n, n_servers, add)
            for rank in range(n)
        ]
        for call in calls:
            call.result(timeout=60)
    assert [list(buffer) for buffer in buffers] == [expected] * n


@pytest.mark.parametrize(("length", "n"), [(0, 1), (1, 3), (10, 3), (1_000_003, 7)])
def test_shares_are_all_and_alike(length: int, n: int) -> None:
    found = shares(length, n)
    assert [a for a, _ in found[1:]] == [b for _, b in found[:-1]]
    assert (found[0][0], found[-1][1], len(found)) == (0, length, n)
    sizes = [b - a for a, b in found]
    assert max(sizes) - min(sizes) <= 1
