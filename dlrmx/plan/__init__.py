"""The plan: which rank holds which rectangle of which table. Pure arithmetic; no torch, no I/O."""
