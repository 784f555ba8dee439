"""How gradients are synchronised: strategies, their schedules, and searches in the link graph."""
