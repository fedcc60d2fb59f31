"""Probes: ProbeContext -> Measurements."""
