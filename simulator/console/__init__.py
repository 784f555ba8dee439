"""What the command lines share: error lines and exit codes, output files, terminals."""
