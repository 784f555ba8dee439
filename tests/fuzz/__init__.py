"""Random inputs for the commands: none may hang, end in an internal error, or print terminal control codes."""
