"""Models behind servers: start them, load them, explain their latency, find the largest load.

``modeldyno.load`` and its kin return documents; `rerank_load` judges a load series by other bounds, and
`replicas` says how many servers a demand takes and what they cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from modeldyno.serving.api.load import rerank_load as rerank_load
    from modeldyno.serving.api.replicas import replicas as replicas
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "serving.api.load": "rerank_load",
            "serving.api.replicas": "replicas",
        },
    )
