"""Machines and parts as YAML files: loading and checking."""
