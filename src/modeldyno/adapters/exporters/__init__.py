"""Results and Studies put where other tools look for them; each module is one tool.

An exporter writes the numbers that `core.result.numbers` gives, under their names: what samples do not
certify has another one. Where a Study can be put, its trials are runs within a run.
"""

from __future__ import annotations
