"""Checking whether a measured collective is as fast as the machine should be, and explaining it if not."""
