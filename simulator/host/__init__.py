"""What happens beside a network's operators: copies, accesses to memory, launches, disks."""
