"""Data: sources, preparation into memory-mapped columns, and batches by row number. No torch."""
