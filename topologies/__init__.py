"""The built-in machines and parts, as YAML files."""
