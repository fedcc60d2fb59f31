"""How fast a model is here, and why: processes, backends, probes, samplers, the machine."""

from __future__ import annotations
