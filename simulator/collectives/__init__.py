"""Collectives: strategies, their schedules, and searches in the link graph."""
