"""The recipe: what to train. Schema, loading, rules, overrides and cluster profiles; no torch."""
