"""The worker: one process per rank, started by torchrun. Builds, steps, evaluates, saves, stops."""
