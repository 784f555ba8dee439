"""Collectives: what a row asks, what is predicted of it, and their scorer."""
