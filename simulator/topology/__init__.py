"""What there is: machines and parts as YAML, loaded and checked."""
