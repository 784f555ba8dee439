"""Describe and measure real machines, singly and as a cluster."""
