"""Tables of measured training and inference: what each row asks, and its prediction."""
