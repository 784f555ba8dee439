"""Shared by the command lines: error lines and exit codes, output files, terminals."""
