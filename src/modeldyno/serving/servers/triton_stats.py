"""Converts Triton's model statistics to an Account; HTTP and gRPC have the same fields."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from modeldyno.engine.interfaces.server_stats import ServerCounters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_NANO = 1e-9


def parse_statistics(stats: Mapping[str, Any], name: str = "", parts: Iterable[str] = ()) -> ServerCounters:
    """Return the sum of the statistics of all loaded versions of a model.

    Triton adds a batch's times once for each request in it, since each waited for the whole batch.

    Args:
        stats: as the server answers.
        name: the model, if they are of several.
        parts: the models among them that it is made of, or calls.

    Raises:
        ValueError: the mapping is not such statistics.
    """
    try:
        models = [model for model in stats["model_stats"] if not name or model["name"] == name]
        return ServerCounters(
            requests=_count(models, "success"),
            failures=_count(models, "fail"),
            samples=sum(int(model.get("inference_count", 0)) for model in models),
            executions=sum(int(model.get("execution_count", 0)) for model in models),
            queue=_seconds(models, "queue"),
            compute_input=_seconds(models, "compute_input"),
            compute=_seconds(models, "compute_infer"),
            compute_output=_seconds(models, "compute_output"),
            batches=_batches(models),
            models={part: parse_statistics(stats, part) for part in parts},
        )
    except (KeyError, TypeError, AttributeError):
        raise ValueError("the answer has no statistics of a Triton model") from None


def _stages(models: Sequence[Mapping[str, Any]], stage: str) -> Iterable[Mapping[str, Any]]:
    return (model["inference_stats"].get(stage) or {} for model in models)


def _count(models: Sequence[Mapping[str, Any]], stage: str) -> int:
    return sum(int(entry.get("count", 0)) for entry in _stages(models, stage))


def _seconds(models: Sequence[Mapping[str, Any]], stage: str) -> float:
    return sum(int(entry.get("ns", 0)) for entry in _stages(models, stage)) * _NANO


def _batches(models: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    counts: Counter[int] = Counter()
    for model in models:
        for batch in model.get("batch_stats") or ():
            counts[int(batch["batch_size"])] += int(batch["compute_infer"]["count"])
    return dict(sorted(counts.items()))
