"""The processor as read from a system's files."""

from dataclasses import replace
from pathlib import Path

import pytest

from simulator.topology.load import topology_from_text
from simulator.topology.parts import CpuPart
from validate.cli.describe import draft_of
from validate.machine.describe.processor import CacheFacts, Processor, disk_part, read_processor


def system(root: Path, packages: int = 2, cores: int = 3, threads: int = 2) -> Path:
    """Write the files of a system that numbers its logical processors core by core, as Linux does."""
    count = packages * cores * threads
    blocks = []
    for i in range(count):
        core, package = i % (packages * cores) % cores, i % (packages * cores) // cores
        blocks.append(
            f"processor\t: {i}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel name\t: Intel(R) Xeon(R) @ 2.50GHz\n"
            f"cpu MHz\t\t: 1200.000\nphysical id\t: {package}\ncore id\t\t: {core}\nflags\t\t: sse2 avx fma\n"
        )
    (root / "proc").mkdir(parents=True)
    (root / "proc/cpuinfo").write_text("\n".join(blocks) + "\n")
    (root / "proc/meminfo").write_text("MemTotal:       16777216 kB\nMemFree: 1 kB\n")
    every = ",".join(str(i) for i in range(count) if i % (packages * cores) < cores)
    for index, level, kind, size, shared in (
        (0, 1, "Data", "48K", f"0,{packages * cores}"),
        (1, 1, "Instruction", "32K", "0"),
        (2, 3, "Unified", "30M", every),
    ):
        folder = root / f"sys/devices/system/cpu/cpu0/cache/index{index}"
        folder.mkdir(parents=True)
        for name, text in (("level", level), ("type", kind), ("size", size), ("shared_cpu_list", shared)):
            (folder / name).write_text(f"{text}\n")
    return root


def test_a_system_says_its_sockets_cores_threads_clock_caches_and_memory(tmp_path) -> None:
    found = read_processor(system(tmp_path))
    assert (found.vendor, found.family, found.sockets, found.cores, found.threads) == ("intel", 6, 2, 3, 6)
    assert (found.clock_Hz, found.turbo_Hz, found.memory_bytes) == (2.5e9, None, 16 << 30)
    assert found.caches == (CacheFacts(1, 48 << 10, 1), CacheFacts(3, 30 << 20, 3))
    assert [found.socket_of[i] for i in (0, 2, 3, 5, 6, 9)] == [0, 0, 1, 1, 0, 1]


def test_a_process_has_the_cores_that_it_may_use(tmp_path) -> None:
    root = system(tmp_path)
    one_socket = read_processor(root, usable={0, 1, 6, 7})
    assert (one_socket.sockets, one_socket.cores, one_socket.threads) == (1, 2, 4)
    assert one_socket.caches[-1].shared_by_cores == 2
    single_threads = read_processor(root, usable=range(6))
    assert (single_threads.sockets, single_threads.cores, single_threads.threads) == (2, 3, 3)


def test_a_container_has_its_share(tmp_path) -> None:
    root = system(tmp_path)
    (root / "sys/fs/cgroup").mkdir(parents=True)
    (root / "sys/fs/cgroup/cpu.max").write_text("400000 100000\n")
    (root / "sys/fs/cgroup/memory.max").write_text("2147483648\n")
    found = read_processor(root)
    assert (found.sockets, found.cores, found.memory_bytes) == (1, 4, 2 << 30)
    (root / "sys/fs/cgroup/cpu.max").write_text("max 100000\n")
    (root / "sys/fs/cgroup/memory.max").write_text("max\n")
    found = read_processor(root)
    assert (found.sockets, found.cores, found.memory_bytes) == (2, 3, 16 << 30)


def test_the_driver_of_the_clock_goes_before_the_name(tmp_path) -> None:
    folder = system(tmp_path) / "sys/devices/system/cpu/cpu0/cpufreq"
    folder.mkdir()
    (folder / "base_frequency").write_text("2100000\n")
    (folder / "cpuinfo_max_freq").write_text("3700000\n")
    found = read_processor(tmp_path)
    assert (found.clock_Hz, found.turbo_Hz) == (2.1e9, 3.7e9)


def test_a_system_that_says_nothing_has_a_draft_too(tmp_path) -> None:
    found = read_processor(tmp_path)
    assert found.cores >= 1
    text, _ = draft_of(found, (), "")
    assert 'clock: "UNVERIFIED' in text
    assert topology_from_text(text).devices[0].name == "cpu0"


def test_the_first_disk_is_told_by_its_name_and_whether_it_turns(tmp_path) -> None:
    for name, size, turns in (("loop0", 100, 0), ("sda", 0, 0), ("sdb", 500, 1), ("zram0", 9, 0)):
        folder = tmp_path / "sys/block" / name / "queue"
        folder.mkdir(parents=True)
        (folder / "rotational").write_text(f"{turns}\n")
        (folder.parent / "size").write_text(f"{size}\n")
    assert disk_part(tmp_path) == ("hdd-7200", "sata-600")
    (tmp_path / "sys/block/sdb/queue/rotational").write_text("0\n")
    assert disk_part(tmp_path) == ("sata-ssd", "sata-600")
    (tmp_path / "sys/block/nvme0n1").mkdir()
    (tmp_path / "sys/block/nvme0n1/size").write_text("500\n")
    assert disk_part(tmp_path) == ("nvme-gen3", "pcie3-x4")
    (tmp_path / "sys/block/nvme0n1/device").mkdir()
    (tmp_path / "sys/block/nvme0n1/device/model").write_text("Amazon Elastic Block Store\n")
    assert disk_part(tmp_path) == ("ebs-gp2", "pcie3-x4")
    assert disk_part(tmp_path / "nowhere") is None


def test_a_disk_that_a_hypervisor_lends_is_no_disk_of_the_machine(tmp_path) -> None:
    (tmp_path / "sys/block/vda").mkdir(parents=True)
    (tmp_path / "sys/block/vda/size").write_text("500\n")
    assert disk_part(tmp_path) == ("virtio-disk", "pcie3-x4")


def test_a_disk_hangs_at_the_first_processor(tmp_path) -> None:
    text, _ = draft_of(read_processor(system(tmp_path)), (), "", disk=("sata-ssd", "sata-600"))
    topology = topology_from_text(text)
    assert [device.part_name for device in topology.devices if device.kind == "storage"] == ["sata-ssd"]
    assert ("disk0", "cpu0") in [(wire.a, wire.b) for wire in topology.wires]


def guest(root: Path, cores: int, size: str = "32768K", model: str = "AMD EPYC") -> Processor:
    """Return the processor of a guest that has *cores* cores of a Zen 4 chip."""
    flags = "sse2 avx fma avx512f hypervisor"
    block = f"vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nstepping\t: 1\nmodel name\t: {model}\n"
    blocks = [
        f"processor\t: {i}\n{block}cpu MHz\t\t: 2596.000\ncore id\t: {i}\nflags\t: {flags}\n" for i in range(cores)
    ]
    (root / "proc").mkdir(parents=True)
    (root / "proc/cpuinfo").write_text("\n".join(blocks) + "\n")
    folder = root / "sys/devices/system/cpu/cpu0/cache/index3"
    folder.mkdir(parents=True)
    said = (("level", "3"), ("type", "Unified"), ("size", size), ("ways_of_associativity", "16"))
    for name, text in (*said, ("shared_cpu_list", f"0-{cores - 1}")):
        (folder / name).write_text(f"{text}\n")
    return read_processor(root)


def part_of_draft(processor: Processor) -> CpuPart:
    topology = topology_from_text(draft_of(processor, (), "")[0])
    (part,) = (device.part for device in topology.devices)
    assert isinstance(part, CpuPart)
    return part


def test_a_guest_has_neighbours_on_its_cache_two_page_tables_and_its_designs_clock(tmp_path) -> None:
    found = guest(tmp_path / "two", 2)
    assert (found.model_number, found.stepping, found.is_guest) == (17, 1, True)
    part, few = part_of_draft(found), part_of_draft(guest(tmp_path / "six", 6))
    assert part.clock == 2.596e9
    assert part.turbo_clock == part.vector_clock == 3.7e9
    assert part.architecture == "Genoa"
    assert part.caches["l3"].ways == 16
    assert part.nested_page == 2 << 20
    assert part.lines_in_flight == 48
    of_two, of_six = part.caches["l3"].neighbours, few.caches["l3"].neighbours
    assert of_two is not None
    assert of_six is not None
    assert of_two == pytest.approx(3 * of_six, rel=1e-3)  # neighbours on six cores, and on two
    assert part_of_draft(guest(tmp_path / "all", 8)).caches["l3"].neighbours is None


def test_what_a_guest_sees_of_another_size_says_nothing_of_neighbours(tmp_path) -> None:
    assert part_of_draft(guest(tmp_path, 2, "16384K")).caches["l3"].neighbours is None


def test_a_machine_of_ones_own_has_no_neighbours_and_one_page_table(tmp_path) -> None:
    found = replace(guest(tmp_path, 2), is_guest=False)
    part = part_of_draft(found)
    assert (part.nested_page, part.caches["l3"].neighbours, part.vector_clock) == (None, None, None)
    assert part.turbo_clock is not None


def test_a_guest_of_a_chip_that_is_built_in_is_not_that_chip(tmp_path) -> None:
    name = "AMD EPYC 9654 96-Core Processor"
    few = part_of_draft(guest(tmp_path / "few", 4, model=name))
    assert few.core_count == 4
    assert few.caches["l3"].neighbours is not None
    assert few.nested_page is not None
    text, _ = draft_of(guest(tmp_path / "all", 96, model=name), (), "")
    assert "parts:" not in text
    assert "part: epyc-9654" in text
    own, _ = draft_of(replace(guest(tmp_path / "own", 4, model=name), is_guest=False), (), "")
    assert "part: epyc-9654, core_count: 4" in own
