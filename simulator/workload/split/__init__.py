"""Division of a network among ranks: each function returns one rank's part as a network."""
