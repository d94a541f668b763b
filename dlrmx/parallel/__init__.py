"""Applies a plan to a model: the exchange, the embedding shards, the replicated part."""
