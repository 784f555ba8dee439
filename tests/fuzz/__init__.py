"""Random inputs for the commands: nothing may hang, end in an internal error, or print what a terminal obeys."""
