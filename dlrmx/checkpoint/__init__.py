"""Checkpoints: written aside and renamed, verified, read in slices. Torch in write.py and read.py only."""
