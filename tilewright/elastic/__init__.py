"""Co-running models on one GPU."""
