"""Sweep a space of configurations: read its file or options, map points to Jobs, run trials, rank them.

``modeldyno.sweep`` returns a Study; `ranking` has its table, `rerank` judges it by another goal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from modeldyno.sweeps.api.sweep import export_configs as export_configs
    from modeldyno.sweeps.api.sweep import rerank as rerank
    from modeldyno.sweeps.api.sweep_models import from_model_analyzer as from_model_analyzer
    from modeldyno.sweeps.api.sweep_models import rank_models as rank_models
    from modeldyno.sweeps.api.sweep_models import sweep_models as sweep_models
    from modeldyno.sweeps.study.ranking import ranking as ranking
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "sweeps.api.sweep": "export_configs rerank",
            "sweeps.api.sweep_models": "from_model_analyzer rank_models sweep_models",
            "sweeps.study.ranking": "ranking",
        },
    )
