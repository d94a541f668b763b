"""Runnable experiments, one per file."""
