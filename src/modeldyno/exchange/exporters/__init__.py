"""Exporters write Results and Studies to other tools; each module is one tool.

An exporter writes the numbers of `exported_numbers` under their names; numbers that the samples do not
certify have a different name. Where a Study can be exported, its trials are nested runs.
"""

from __future__ import annotations
