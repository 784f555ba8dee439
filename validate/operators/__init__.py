"""Tables of measured operators: what each row asks."""
