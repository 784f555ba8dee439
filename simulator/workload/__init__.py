"""What must be computed and exchanged."""
