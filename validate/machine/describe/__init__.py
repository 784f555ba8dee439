"""Draft a topology from what the machine reports, with marked estimates for the rest."""
