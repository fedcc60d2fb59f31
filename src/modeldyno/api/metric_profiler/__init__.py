"""Metrics that users define, computed by functions that they register: the surface of deeplite-profiler."""
