"""Python programs: their statements, what these issue, and the resulting plan."""
