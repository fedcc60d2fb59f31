"""Probes: Subject -> Measurements."""
