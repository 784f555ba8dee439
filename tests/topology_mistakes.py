"""Mistakes in topology files, and the expected error lines."""

from __future__ import annotations

HEAD = "schema_version: 1\nname: x\n"
GPUS = "devices:\n  gpu[0-1]: {kind: gpu}\n"
CLUSTER = "cluster:\n  node: p3.16xlarg\n  nodes: 0\n  fabric: ethernet-10gb\n  switch: ethernet-swich\n"
LINK = "links:\n  - {between: [gpu0, gpu1], kind: pcie, bandwidth: 16 GB/s}\n"


def devices(line: str) -> str:
    """Return a file with its devices described on the fourth line."""
    return f"{HEAD}devices:\n  {line}\n{LINK}"


def link(inside: str) -> str:
    """Return a file of two GPUs with one link, on the sixth line."""
    return f"{HEAD}{GPUS}links:\n  - {{{inside}}}\n"


def mesh(*rows: str) -> str:
    """Return a file of two GPUs with a mesh that begins on the eighth line."""
    matrix = "".join(f"      {row}\n" for row in rows)
    return f"{HEAD}{GPUS}meshes:\n  - kind: nvlink\n    bandwidth: 25 GB/s\n    matrix: |\n{matrix}"


MANY = """\
schema_version: 1
name: x
colour: red
devices:
  gpu[0-1]: {part: v100-sxm2-61gb}
  gpu2: {kind: gpu}
  gpu2x: {kind: gpu, memory_size: 16}
  cpu0: {kind: cpu, memory_bandwidth: 20 GB}
links:
  - {between: [gpu0, gpu8], part: nvlink9}
  - {between: [gpu0, cpu0], kind: pcie, bandwidth: 16}
  - {between: [gpu1, gpu1], kind: nvlink, bandwidth: 1 GB/s}
meshes:
  - {kind: nvlink, bandwidth: 1 Gb/s, matrix: ''}
transport: {peer_to_peer: far}
"""
MANY_LINES = """\
t.yaml:3:1: unknown key 'colour'; did you mean 'cluster'?
t.yaml:5:20: no part is called 'v100-sxm2-61gb'; did you mean 'v100-sxm2-16gb'?
t.yaml:7:35: devices.gpu2x.memory_size: size needs a unit, for example "160 MB"; got the bare number 16
t.yaml:8:39: devices.cpu0.memory_bandwidth: 'GB' is not a unit of bandwidth; that is a unit of size; write for example "16 GB/s"
t.yaml:10:22: no device is called 'gpu8'; did you mean 'gpu2'?
t.yaml:10:35: no part is called 'nvlink9'; did you mean 'nvlink5'?
t.yaml:11:52: links.1.bandwidth: bandwidth needs a unit, for example "16 GB/s"; got the bare number 16
t.yaml:12:15: the link joins 'gpu1' with itself
t.yaml:14:31: meshes.0.bandwidth: 'Gb/s' is not a unit of bandwidth; did you mean Gbit/s or GB/s?
t.yaml:15:27: transport.peer_to_peer: got 'far'; allowed: none, phb, pix, pxb, sys
"""  # noqa: E501

# By mistake: the file, and all lines of the error message.
CASES: dict[str, tuple[str, list[str]]] = {
    "unknown_key": (
        HEAD + "devicse: {}\n" + GPUS + LINK,
        ["t.yaml:3:1: unknown key 'devicse'; did you mean 'devices'?"],
    ),
    "unknown_key_of_a_device": (
        devices("gpu[0-1]: {kind: gpu, memroy_size: 16 GB}"),
        ["t.yaml:4:25: unknown key 'memroy_size'; did you mean 'memory_size'?"],
    ),
    "key_of_a_part_given_to_a_device": (
        devices("gpu[0-1]: {part: rtx-4090, pcie_peers: false}"),
        [
            (
                "t.yaml:4:30: unknown key 'pcie_peers'; "
                "it is a key of parts: give it to one of your own under parts, and name that here"
            )
        ],
    ),
    "unknown_key_of_a_link": (
        link("between: [gpu0, gpu1], kind: pcie, bandwith: 16 GB/s"),
        ["t.yaml:6:41: unknown key 'bandwith'; did you mean 'bandwidth'?"],
    ),
    "unknown_key_of_a_mesh": (
        HEAD + GPUS + "meshes:\n  - {kind: nvlink, bandwidth: 1 GB/s, duplex: half, matrix: ''}\n",
        ["t.yaml:6:39: unknown key 'duplex'; allowed: kind, matrix, bandwidth, efficiency, latency, part, source"],
    ),
    "unknown_key_of_the_transport": (
        HEAD + GPUS + LINK + "transport: {peertopeer: pix}\n",
        ["t.yaml:7:13: unknown key 'peertopeer'; did you mean 'peer_to_peer'?"],
    ),
    "missing_unit": (
        link("between: [gpu0, gpu1], kind: pcie, bandwidth: 16"),
        ['t.yaml:6:52: links.0.bandwidth: bandwidth needs a unit, for example "16 GB/s"; got the bare number 16'],
    ),
    "missing_unit_as_text": (
        link("between: [gpu0, gpu1], kind: pcie, bandwidth: '16'"),
        ['t.yaml:6:52: links.0.bandwidth: bandwidth needs a unit, for example "16 GB/s"; got the bare number 16'],
    ),
    "gigabits_or_gigabytes": (
        link("between: [gpu0, gpu1], kind: pcie, bandwidth: 16 Gb/s"),
        ["t.yaml:6:52: links.0.bandwidth: 'Gb/s' is not a unit of bandwidth; did you mean Gbit/s or GB/s?"],
    ),
    "unit_of_another_dimension": (
        link("between: [gpu0, gpu1], kind: pcie, bandwidth: 16 GB"),
        [
            "t.yaml:6:52: links.0.bandwidth: 'GB' is not a unit of bandwidth; that is a unit of size; write for example \"16 GB/s\""  # noqa: E501
        ],
    ),
    "zero_bandwidth": (
        link("between: [gpu0, gpu1], kind: pcie, bandwidth: 0 GB/s"),
        ["t.yaml:6:52: links.0.bandwidth: bandwidth must be more than zero; got '0 GB/s'"],
    ),
    "negative_latency": (
        link("between: [gpu0, gpu1], kind: pcie, bandwidth: 1 GB/s, latency: -1 us"),
        ["t.yaml:6:69: links.0.latency: time must be at least zero and finite; got '-1 us'"],
    ),
    "latency_read_as_base_60": (
        link("between: [gpu0, gpu1], kind: pcie, bandwidth: 1 GB/s, latency: 1:30"),
        ["t.yaml:6:69: '1:30' is read as a number to base 60; write it in quotes if it is text"],
    ),
    "efficiency_above_one": (
        link("between: [gpu0, gpu1], kind: pcie, bandwidth: 1 GB/s, efficiency: 1.5"),
        ["t.yaml:6:72: links.0.efficiency: must be less than or equal to 1; got 1.5"],
    ),
    "count_of_zero": (
        link("between: [gpu0, gpu1], kind: pcie, bandwidth: 1 GB/s, count: 0"),
        ["t.yaml:6:67: links.0.count: must be greater than or equal to 1; got 0"],
    ),
    "unknown_kind": (
        link("between: [gpu0, gpu1], kind: pci, bandwidth: 1 GB/s"),
        ["t.yaml:6:35: links.0.kind: got 'pci'; did you mean 'pcie'?"],
    ),
    "unknown_duplex": (
        link("between: [gpu0, gpu1], kind: pcie, bandwidth: 1 GB/s, duplex: both"),
        ["t.yaml:6:68: links.0.duplex: got 'both'; allowed: full, half"],
    ),
    "one_end": (
        link("between: [gpu0], kind: pcie, bandwidth: 1 GB/s"),
        ["t.yaml:6:15: links.0.between: entry 2 is missing; got ['gpu0']"],
    ),
    "three_ends": (
        link("between: [gpu0, gpu1, gpu0], kind: pcie, bandwidth: 1 GB/s"),
        ["t.yaml:6:15: links.0.between: must have 2 entries; got ['gpu0', 'gpu1', 'gpu0']"],
    ),
    "no_ends": (
        link("kind: pcie, bandwidth: 1 GB/s"),
        ["t.yaml:6:5: the key 'between' is missing"],
    ),
    "neither_part_nor_kind": (
        link("between: [gpu0, gpu1]"),
        ["t.yaml:6:5: a link needs a part, or kind and bandwidth; for example {kind: pcie, bandwidth: 16 GB/s}"],
    ),
    "kind_without_bandwidth": (
        link("between: [gpu0, gpu1], kind: pcie"),
        ["t.yaml:6:5: a link needs a part, or kind and bandwidth; for example {kind: pcie, bandwidth: 16 GB/s}"],
    ),
    "kind_beside_a_part_of_another": (
        link("between: [gpu0, gpu1], kind: pcie, part: nvlink2"),
        ["t.yaml:6:35: the part 'nvlink2' is of kind nvlink; leave kind out"],
    ),
    "dangling_end": (
        link("between: [gpu0, gpu2], kind: pcie, bandwidth: 1 GB/s"),
        ["t.yaml:6:22: no device is called 'gpu2'; did you mean 'gpu1'?"],
    ),
    "dangling_range": (
        link("between: ['gpu[0-9]', gpu1], kind: pcie, bandwidth: 1 GB/s"),
        [
            "t.yaml:6:15: the link joins 'gpu1' with itself",
            "t.yaml:6:16: no device is called 'gpu2'; did you mean 'gpu1'?",
            "t.yaml:6:16: no device is called 'gpu3'; did you mean 'gpu1'?",
            "t.yaml:6:16: no device is called 'gpu4'; did you mean 'gpu1'?",
            "t.yaml:6:16: no device is called 'gpu5' (nor 4 more of gpu[0-9]); did you mean 'gpu1'?",
        ],
    ),
    "ranges_that_do_not_pair": (
        HEAD
        + "devices:\n  gpu[0-4]: {kind: gpu}\nlinks:\n  - {between: ['gpu[0-2]', 'gpu[3-4]'], kind: pcie, bandwidth: 1 GB/s}\n",  # noqa: E501
        ["t.yaml:6:15: the ends stand for 3 and 2 devices; equal numbers pair up, one joins all"],
    ),
    "link_to_itself": (
        link("between: [gpu0, gpu0], kind: pcie, bandwidth: 1 GB/s"),
        ["t.yaml:6:15: the link joins 'gpu0' with itself"],
    ),
    "links_to_themselves": (
        link("between: ['gpu[0-1]', 'gpu[0-1]'], kind: pcie, bandwidth: 1 GB/s"),
        ["t.yaml:6:15: the link joins 'gpu0' with itself", "t.yaml:6:15: the link joins 'gpu1' with itself"],
    ),
    "no_name": (
        link("between: ['gpu 0', gpu1], kind: pcie, bandwidth: 1 GB/s"),
        ["t.yaml:6:16: 'gpu 0' is not a name; write for example gpu0, gpu[0-7] or gpu[0,2]"],
    ),
    "backward_range": (
        link("between: ['gpu[1-0]', gpu1], kind: pcie, bandwidth: 1 GB/s"),
        ["t.yaml:6:16: 'gpu[1-0]': the range 1-0 runs backwards"],
    ),
    "unknown_part": (
        devices("gpu[0-1]: {part: v100-smx2-16gb}"),
        ["t.yaml:4:20: no part is called 'v100-smx2-16gb'; did you mean 'v100-sxm2-16gb'?"],
    ),
    "unknown_link_part": (
        link("between: [gpu0, gpu1], part: nvlnk2"),
        ["t.yaml:6:35: no part is called 'nvlnk2'; did you mean 'nvlink2'?"],
    ),
    "link_part_for_a_device": (
        devices("gpu[0-1]: {part: nvlink2}"),
        ["t.yaml:4:20: 'nvlink2' is a link; a device is needed here"],
    ),
    "part_and_kind": (
        devices("gpu[0-1]: {part: v100-sxm2-16gb, kind: gpu}"),
        ["t.yaml:4:3: gpu[0-1] needs either part (a name of the catalogue) or kind (gpu, cpu, ...), not both"],
    ),
    "neither_of_them": (
        devices("gpu[0-1]: {}"),
        ["t.yaml:4:3: gpu[0-1] needs either part (a name of the catalogue) or kind (gpu, cpu, ...), not both"],
    ),
    "nothing_for_a_device": (
        devices("gpu[0-1]:"),
        ["t.yaml:4:12: devices.gpu[0-1]: must be a mapping of keys to values; got None"],
    ),
    "override_that_does_not_apply": (
        devices("gpu[0-1]: {kind: gpu, latency: 1 us}"),
        ["t.yaml:4:25: gpu[0-1]: latency does not apply to a gpu"],
    ),
    "cores_of_a_gpu": (
        devices("gpu[0-1]: {kind: gpu, core_count: 4}"),
        ["t.yaml:4:25: gpu[0-1]: core_count does not apply to a gpu"],
    ),
    "nic_without_bandwidth": (
        HEAD + "devices:\n  gpu[0-1]: {kind: gpu}\n  nic0: {kind: nic}\n" + LINK,
        ["t.yaml:5:3: nic0: a NIC without a part needs a bandwidth"],
    ),
    "described_twice": (
        HEAD + "devices:\n  gpu[0-1]: {kind: gpu}\n  gpu1: {kind: gpu}\n" + LINK,
        ["t.yaml:5:3: the device 'gpu1' is described twice; also by 'gpu[0-1]'"],
    ),
    "key_written_twice": (
        HEAD + "devices:\n  gpu0: {kind: gpu}\n  gpu1: {kind: gpu}\n  gpu0: {kind: gpu}\n" + LINK,
        ["t.yaml:6:3: the key 'gpu0' is written twice; first in line 4"],
    ),
    "unconnected": (
        HEAD + "devices:\n  gpu[0-1]: {kind: gpu}\n  gpu[2-9]: {kind: gpu}\n" + LINK,
        ["t.yaml:5:3: no links lead from gpu0 to gpu2, gpu3, gpu4, gpu5, ...; add them under links"],
    ),
    "no_gpu": (
        HEAD + "devices:\n  cpu0: {kind: cpu}\n",
        ["t.yaml:3:1: there is no GPU; devices needs for example gpu[0-3]: {kind: gpu}"],
    ),
    "no_devices": (
        HEAD,
        ["t.yaml:1:1: there is no GPU; devices needs for example gpu[0-3]: {kind: gpu}"],
    ),
    "missing_name": (
        "schema_version: 1\n" + GPUS + LINK,
        ["t.yaml:1:1: the key 'name' is missing"],
    ),
    "version_to_come": (
        "schema_version: 2\nname: x\n" + GPUS + LINK,
        ["t.yaml:1:17: schema_version: got '2'; allowed: 1"],
    ),
    "name_is_a_number": (
        "schema_version: 1\nname: 5\n" + GPUS + LINK,
        ["t.yaml:2:7: name: must be text; got 5"],
    ),
    "list_of_devices": (
        HEAD + "devices:\n  - gpu0\n",
        ["t.yaml:4:3: devices: must be a mapping of keys to values; got ['gpu0']"],
    ),
    "mapping_of_links": (
        HEAD + GPUS + "links:\n  between: [gpu0, gpu1]\n",
        ["t.yaml:6:3: links: must be a list; got {'between': ['gpu0', 'gpu1']}"],
    ),
    "link_is_text": (
        HEAD + GPUS + "links:\n  - gpu0-gpu1\n",
        ["t.yaml:6:5: links.0: must be a mapping of keys to values; got 'gpu0-gpu1'"],
    ),
    "not_a_mapping": (
        "- gpu0\n- gpu1\n",
        ["t.yaml:1:1: must be a mapping of keys to values; got a list"],
    ),
    "a_word": (
        "gpu\n",
        ["t.yaml:1:1: must be a mapping of keys to values; got a str"],
    ),
    "null": (
        "~\n",
        ["t.yaml:1:1: must be a mapping of keys to values; got nothing"],
    ),
    "comment_only": (
        "# nothing\n",
        ["t.yaml:1:1: must be a mapping of keys to values; got nothing"],
    ),
    "empty": (
        "",
        ["t.yaml:1:1: is empty; a topology needs schema_version, name, devices and links"],
    ),
    "blanks": (
        " \n\n",
        ["t.yaml:1:1: is empty; a topology needs schema_version, name, devices and links"],
    ),
    "asymmetric": (
        mesh("gpu0 X NV2", "gpu1 NV1 X"),
        ["t.yaml:8:13: matrix: gpu0 to gpu1 has 2 links, but gpu1 to gpu0 has 1"],
    ),
    "short_row": (
        mesh("gpu0 X NV2", "gpu1 NV2"),
        ["t.yaml:8:13: matrix: row gpu1 has 1 cells for 2 GPUs"],
    ),
    "unknown_cell": (
        mesh("gpu0 X NVX", "gpu1 NV1 X"),
        ["t.yaml:8:13: matrix: row gpu0, column gpu1: 'NVX' is no count such as NV2, 2 or SYS"],
    ),
    "mesh_of_absent_gpus": (
        mesh("gpu0 X NV1 NV1", "gpu1 NV1 X NV1", "gpu7 NV1 NV1 X"),
        ["t.yaml:8:13: no device is called 'gpu7'; did you mean 'gpu1'?"],
    ),
    "links_of_a_gpu_to_itself": (
        mesh("gpu0 NV1 NV1", "gpu1 NV1 X"),
        ["t.yaml:8:13: matrix: row gpu0, column gpu0: X belongs on the diagonal and only there; got 'NV1'"],
    ),
    "empty_mesh": (
        mesh("# nothing"),
        ["t.yaml:8:13: matrix: needs at least two rows"],
    ),
    "merge_key": (
        HEAD + "devices:\n  gpu0: &a {kind: gpu}\n  gpu1: {<<: *a}\n",
        [
            "t.yaml:4:9: anchors that repeat a mapping or a list are not supported; use a range such as gpu[0-7]",
            "t.yaml:5:10: merge keys (<<) are not supported",
        ],
    ),
    "anchor_of_a_mapping": (
        HEAD + "devices:\n  gpu0: &a {kind: gpu}\n  gpu1: *a\n",
        ["t.yaml:4:9: anchors that repeat a mapping or a list are not supported; use a range such as gpu[0-7]"],
    ),
    "undefined_alias": (
        HEAD + "devices: *nowhere\n",
        ["t.yaml:3:10: is not valid YAML: found undefined alias"],
    ),
    "tab": (
        HEAD + "devices:\n\tgpu0: {kind: gpu}\n",
        [
            "t.yaml:4:1: is not valid YAML: while scanning for the next token, found character that cannot start any token"  # noqa: E501
        ],
    ),
    "unclosed": (
        HEAD + "devices: {gpu0: {kind: gpu}\n",
        ["t.yaml:4:1: is not valid YAML: while parsing a flow mapping, did not find expected ',' or '}'"],
    ),
    "two_documents": (
        HEAD + GPUS + LINK + "---\n" + HEAD,
        ["t.yaml:7:1: is not valid YAML: expected a single document in the stream, but found another document"],
    ),
    "on_as_a_key": (
        HEAD + "devices:\n  on: {kind: gpu}\n" + "  gpu0: {kind: gpu}\n",
        ["t.yaml:4:3: the key 'on' is read as true or false; write it in quotes"],
    ),
    "number_as_key": (
        HEAD + "devices:\n  1: {kind: gpu}\n",
        ["t.yaml:4:3: the key '1' is read as a number; write it in quotes"],
    ),
    "key_read_as_base_60": (
        HEAD + "devices:\n  1:30: {kind: gpu}\n",
        ["t.yaml:4:3: the key '1:30' is read as a number; write it in quotes"],
    ),
    "no_read_as_false": (
        HEAD + "description: no\n" + GPUS + LINK,
        ["t.yaml:3:14: description: must be text; got False"],
    ),
    "list_as_key": (
        HEAD + "? [a]\n: 1\n",
        ["t.yaml:3:3: a key must be plain text"],
    ),
    "tag_of_python": (
        "!!python/object/apply:os.system ['true']\n",
        [
            "t.yaml:1:1: the tag !!python/object/apply:os.system is not supported; write plain text, a list or a mapping"  # noqa: E501
        ],
    ),
    "tag_that_does_not_fit": (
        HEAD + "devices: !!bool maybe\n",
        ["t.yaml:3:10: 'maybe' cannot be read as true or false; write it in quotes if it is text"],
    ),
    "date_that_is_none": (
        HEAD + "description: 2020-99-99\n",
        ["t.yaml:3:14: '2020-99-99' cannot be read as a date; write it in quotes if it is text"],
    ),
    "control_character_nul": (
        HEAD + 'description: "a\0"\n',
        ["t.yaml:3:16: holds the control character U+0000; is this text?"],
    ),
    "control_character_escape": (
        HEAD + "description: \x1b[31m\n",
        ["t.yaml:3:14: holds the control character U+001B; is this text?"],
    ),
    "trays_that_share_no_gpus_evenly": (
        HEAD + "trays: 3\n" + GPUS,
        ["t.yaml:3:8: 2 GPUs cannot be divided evenly among 3 trays"],
    ),
    "trays_of_a_cluster": (
        HEAD + "trays: 2\ncluster: {node: p3.16xlarge, nodes: 2}\n",
        ["t.yaml:3:1: trays belong to the file of the node"],
    ),
    "cluster_and_devices": (
        HEAD + GPUS + "cluster: {node: p3.16xlarge, nodes: 2}\n",
        ["t.yaml:5:1: a file holds either a cluster or devices, not both"],
    ),
    "cluster_of_an_unknown_node": (
        HEAD + "cluster: {node: p3.16xlrage, nodes: 2}\n",
        [
            "t.yaml:3:17: p3.16xlrage: no such file and no built-in topology; did you mean 'p3.16xlarge'? (simulate machines)"  # noqa: E501
        ],
    ),
    "cluster_said_twice": (
        HEAD + "cluster: {node: p3.16xlarge, nodes: 2, groups: [{node: p3.2xlarge}]}\n",
        ["t.yaml:3:10: cluster: groups say which nodes there are; leave out node and nodes"],
    ),
    "groups_of_unknown_nodes": (
        HEAD + "cluster:\n  groups:\n    - {node: p3.16xlrage, nodes: 2}\n    - {node: p3.2xlrage, count: 2}\n",
        [
            (
                "t.yaml:5:14: p3.16xlrage: no such file and no built-in topology; "
                "did you mean 'p3.16xlarge'? (simulate machines)"
            ),
            (
                "t.yaml:6:14: p3.2xlrage: no such file and no built-in topology; "
                "did you mean 'p3.2xlarge'? (simulate machines)"
            ),
            "t.yaml:6:26: unknown key 'count'; allowed: node, fabric, nodes, uplink",
        ],
    ),
    "groups_of_nodes_that_are_not_there": (
        HEAD + "cluster:\n  groups:\n    - {node: p3.16xlrage, nodes: 2}\n    - {node: p3.2xlrage}\n",
        [
            (
                "t.yaml:5:14: p3.16xlrage: no such file and no built-in topology; "
                "did you mean 'p3.16xlarge'? (simulate machines)"
            ),
            (
                "t.yaml:6:14: p3.2xlrage: no such file and no built-in topology; "
                "did you mean 'p3.2xlarge'? (simulate machines)"
            ),
        ],
    ),
    "cluster_of_no_nodes": (
        HEAD + "cluster: {node: p3.16xlarge, nodes: 0}\n",
        ["t.yaml:3:37: cluster.nodes: must be greater than or equal to 1; got 0"],
    ),
    "cluster_of_a_node_and_a_half": (
        HEAD + "cluster: {node: p3.16xlarge, nodes: 1.5}\n",
        ["t.yaml:3:37: cluster.nodes: must be a whole number; got 1.5"],
    ),
    "cluster_of_how_many": (
        HEAD + "cluster: {node: p3.16xlarge}\n",
        ["t.yaml:3:10: cluster: needs node and nodes, or groups, for example [{node: p3.16xlarge, nodes: 8}]"],
    ),
    "cluster_with_an_unknown_fabric": (
        HEAD + "cluster: {node: p3.16xlarge, nodes: 2, fabric: ethernet-10gb}\n",
        [
            (
                "t.yaml:3:48: no network link is called 'ethernet-10gb', and it is not a rate such as 25Gbit/s; "
                "did you mean 'ethernet-10g'?"
            ),
        ],
    ),
    "cluster_fabric_that_is_no_network": (
        HEAD + "cluster: {node: p3.16xlarge, nodes: 2, fabric: nvlink2, switch: nvswitch1}\n",
        [
            "t.yaml:3:48: 'nvlink2' is not a network; allowed: efa, ethernet, infiniband, omnipath",
            "t.yaml:3:65: 'nvswitch1' is a switch of nvlink, not of a network",
        ],
    ),
    "cluster_that_carries_more_than_all": (
        HEAD + "cluster: {node: p3.16xlarge, nodes: 2, oversubscription: 0.5}\n",
        ["t.yaml:3:58: cluster.oversubscription: must be greater than or equal to 1; got 0.5"],
    ),
    "cluster_of_unknown_parts_beside_other_faults": (
        "name: x\ntrays: 2\n" + CLUSTER,
        [
            "t.yaml:1:1: the key 'schema_version' is missing",
            "t.yaml:2:1: trays belong to the file of the node",
            (
                "t.yaml:4:9: p3.16xlarg: no such file and no built-in topology; "
                "did you mean 'p3.16xlarge'? (simulate machines)"
            ),
            "t.yaml:5:10: cluster.nodes: must be greater than or equal to 1; got 0",
            (
                "t.yaml:6:11: no network link is called 'ethernet-10gb', and it is not a rate such as 25Gbit/s; "
                "did you mean 'ethernet-10g'?"
            ),
            "t.yaml:7:11: no part is called 'ethernet-swich'; did you mean 'ethernet-switch'?",
        ],
    ),
    "groups_of_unknown_nodes_beside_other_faults": (
        HEAD + "cluster: {groups: [{node: p3.16xlarg, nodes: 0}, 3, {nodes: 2, uplink: ethernet-10gb}]}\n",
        [
            (
                "t.yaml:3:27: p3.16xlarg: no such file and no built-in topology; "
                "did you mean 'p3.16xlarge'? (simulate machines)"
            ),
            "t.yaml:3:46: cluster.groups.0.nodes: must be greater than or equal to 1; got 0",
            "t.yaml:3:50: cluster.groups.1: must be a mapping of keys to values; got 3",
            "t.yaml:3:53: the key 'node' is missing",
            (
                "t.yaml:3:72: no network link is called 'ethernet-10gb', and it is not a rate such as 25Gbit/s; "
                "did you mean 'ethernet-10g'?"
            ),
        ],
    ),
    "unknown_part_of_a_machine_without_a_name": (
        "schema_version: 1\ndevices:\n  gpu[0-1]: {part: v100-sxm2-61gb}\n" + LINK,
        [
            "t.yaml:1:1: the key 'name' is missing",
            "t.yaml:3:20: no part is called 'v100-sxm2-61gb'; did you mean 'v100-sxm2-16gb'?",
        ],
    ),
    "cluster_of_cluster": (
        HEAD + "cluster: {node: p4d-x2-efa, nodes: 2}\n",
        ["t.yaml:3:17: the node of a cluster cannot be a cluster"],
    ),
    "cluster_without_a_nic": (
        HEAD + "cluster: {node: 4gpu-pcie, nodes: 2}\n",
        ["t.yaml:3:1: 4gpu-pcie has no NIC; the cluster needs a fabric, for example ethernet-10g"],
    ),
    "own_parts": (
        HEAD + "parts:\n  mine: {kind: link, of: pcie}\n  yours: {kind: wire}\n  theirs: {of: pcie}\n" + GPUS + LINK,
        [
            "t.yaml:4:9: the key 'bandwidth' is missing",
            "t.yaml:5:10: parts.yours: kind must be one of cpu, gpu, link, nic, storage, switch; got wire",
            "t.yaml:6:11: parts.theirs: kind must be one of cpu, gpu, link, nic, storage, switch; got none",
        ],
    ),
    "unknown_key_of_an_own_part": (
        HEAD + "parts:\n  mine: {kind: link, of: pcie, bandwidth: 1 GB/s, latncy: 1 us}\n" + GPUS + LINK,
        ["t.yaml:4:51: unknown key 'latncy'; did you mean 'latency'?"],
    ),
    "source_of_no_figure": (
        HEAD + "parts:\n  mine: {kind: link, of: pcie, bandwidth: 1 GB/s, sources: {speed: x}}\n" + GPUS + LINK,
        ["t.yaml:4:9: parts.mine.link: sources names 'speed', which is no key of this part"],
    ),
    "too_many_devices": (
        HEAD + "devices:\n" + "".join(f"  g{c}[0-65535]: {{kind: gpu}}\n" for c in "abc"),
        ["t.yaml:5:3: a machine has at most 65536 devices"],
    ),
    "range_too_long": (
        devices("gpu[0-65536]: {kind: gpu}"),
        ["t.yaml:4:3: 'gpu[0-65536]' stands for more than 65536 names"],
    ),
    "carriage_returns": (
        (HEAD + "devices:\n  gpu[0-1]: {kind: gpu, memroy_size: 16 GB}\n" + LINK).replace("\n", "\r\n"),
        ["t.yaml:4:25: unknown key 'memroy_size'; did you mean 'memory_size'?"],
    ),
    "byte_order_mark": (
        "\ufeffschema_version: 1\nnaem: x\n" + GPUS + LINK,
        ["t.yaml:1:1: the key 'name' is missing", "t.yaml:2:1: unknown key 'naem'; did you mean 'name'?"],
    ),
    "all_faults_of_a_file_in_the_order_of_its_lines": (MANY, MANY_LINES.splitlines()),
}
