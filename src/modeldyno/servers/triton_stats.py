"""Triton's statistics of a model to an Account; over HTTP and gRPC they have the same fields."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from modeldyno.core.load.server_stats import Account

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_NANO = 1e-9


def account(stats: Mapping[str, Any]) -> Account:
    """Sum the statistics of all versions of a model that are loaded.

    Triton sums the times of a batch over the requests in it: each waited for the whole of it.

    Raises:
        ValueError: these are no such statistics.
    """
    try:
        models = list(stats["model_stats"])
        return Account(
            requests=_count(models, "success"),
            failures=_count(models, "fail"),
            samples=sum(int(model.get("inference_count", 0)) for model in models),
            executions=sum(int(model.get("execution_count", 0)) for model in models),
            queue=_seconds(models, "queue"),
            compute_input=_seconds(models, "compute_input"),
            compute=_seconds(models, "compute_infer"),
            compute_output=_seconds(models, "compute_output"),
            batches=_batches(models),
        )
    except (KeyError, TypeError, AttributeError):
        raise ValueError("the answer is no statistics of a model of Triton") from None


def _stages(models: Sequence[Mapping[str, Any]], stage: str) -> Iterable[Mapping[str, Any]]:
    return (model["inference_stats"].get(stage) or {} for model in models)


def _count(models: Sequence[Mapping[str, Any]], stage: str) -> int:
    return sum(int(found.get("count", 0)) for found in _stages(models, stage))


def _seconds(models: Sequence[Mapping[str, Any]], stage: str) -> float:
    return sum(int(found.get("ns", 0)) for found in _stages(models, stage)) * _NANO


def _batches(models: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    found: Counter[int] = Counter()
    for model in models:
        for batch in model.get("batch_stats") or ():
            found[int(batch["batch_size"])] += int(batch["compute_infer"]["count"])
    return dict(sorted(found.items()))
