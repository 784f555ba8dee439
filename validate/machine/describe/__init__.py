"""A draft of a topology: what the machine reports of itself, and estimates where it says nothing."""
