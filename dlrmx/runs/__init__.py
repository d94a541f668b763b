"""The run directory: where launcher and worker meet. Layout, records, state; no torch."""
