"""DLRM and DCNv2 as plain single-process torch, and the initial values of embedding tables."""
