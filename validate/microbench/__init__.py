"""Tables of copies, memory, launches and disks: what each row asks, and its prediction."""
