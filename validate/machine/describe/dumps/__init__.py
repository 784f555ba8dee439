"""What people have of a machine they are not on: dumps of its PCIe tree, its links and its names."""
