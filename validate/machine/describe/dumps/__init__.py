"""Read dumps of a machine that is not at hand: its PCIe tree, its links, its device names."""
