"""Recompute every figure of a document from what the document keeps: raw samples, sums of windows, counts."""
