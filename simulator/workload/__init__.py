"""Networks, operators and collectives: what a step computes and exchanges."""
