"""Measurements that others publish, as tables of this project."""
