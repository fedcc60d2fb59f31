"""The Python API, one module for each kind of question; `modeldyno` itself lists the public names."""

from __future__ import annotations
