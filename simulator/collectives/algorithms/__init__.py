"""Collective algorithms as schedules: who sends what to whom in which round, on any machine."""
