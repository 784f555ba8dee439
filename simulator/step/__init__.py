"""A training or inference step on one device: what is issued, when it runs, what memory it needs."""
