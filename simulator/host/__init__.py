"""Host-side and single operations, apart from a network's operators: copies, memory accesses, launches, disks."""
