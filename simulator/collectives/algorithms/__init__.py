"""Collective algorithms as machine-independent schedules: who sends what to whom in which round."""
