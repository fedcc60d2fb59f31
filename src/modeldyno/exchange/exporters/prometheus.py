"""Prometheus: a file in the OpenMetrics text format, for node_exporter's textfile collector.

Names end in the base unit; percentiles are quantiles of a summary. Numbers that the samples do not certify
have ``raw`` in the metric's name. https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base import codec
from modeldyno.base.metrics.metric import METRICS
from modeldyno.base.stats.units import (
    BYTES,
    CELSIUS,
    CORES,
    FRACTION,
    GRAMS,
    HERTZ,
    JOULES,
    RATE,
    SECONDS,
    WATTS,
)
from modeldyno.exchange.exporters.exported_numbers import figures, labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from modeldyno.base.result.result import Result
    from modeldyno.exchange.exporters.exported_numbers import Figure

requires: tuple[str, ...] = ()
_UNITS = {
    SECONDS: "seconds", BYTES: "bytes", RATE: "per_second", FRACTION: "ratio", CORES: "cores",
    JOULES: "joules", WATTS: "watts", HERTZ: "hertz", CELSIUS: "celsius", GRAMS: "grams",
}  # fmt: skip
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_]")
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_SUMMARY_STATISTICS = ("n", "mean")
"""Statistics from which the count and sum of a summary are computed."""


def export(document: Result, target: str) -> str:
    """Write the file and return its path."""
    path = Path(target)
    codec.write(path, exposition_text(document).encode("utf-8", "replace"))
    return str(path)


def exposition_text(result: Result) -> str:
    """Return the exposition: each family with its type, unit and help, then the end marker."""
    common = labels(result)
    families: dict[tuple[str, bool, str], list[Figure]] = {}
    for figure in figures(result):
        statistic = figure.query.statistic or ""
        suffix = "" if figure.fraction is not None or statistic in _SUMMARY_STATISTICS else statistic
        families.setdefault((figure.query.metric, figure.claim, suffix), []).append(figure)
    lines = [
        line
        for (metric, claim, shsuffix), members in families.items()
        for line in _family(metric, claim, shsuffix, members, common)
    ]
    doubts = dict.fromkeys(doubt.code for doubt in result.doubts)
    doubt_samples = (_sample("modeldyno_doubt", {**common, "code": code}, 1) for code in doubts)
    head = _head("modeldyno_doubt", "gauge", "", "A reason not to trust these numbers.")
    identity = {**common, "id": result.id, "created": result.created}
    info_head = _head("modeldyno_result", "info", "", "Which result it is.")
    info = _sample("modeldyno_result_info", identity, 1)
    return "\n".join([*lines, *head, *doubt_samples, *info_head, info, "# EOF", ""])


def _family(
    metric: str, claim: bool, statistic: str, members: Iterable[Figure], common: Mapping[str, str]
) -> Iterator[str]:
    """Yield a summary of percentiles, count and sum, or a gauge for any other statistic."""
    row = METRICS[metric]
    parts = ("modeldyno", metric, statistic, "" if claim else "raw", _UNITS.get(row.unit, ""))
    unit = _UNITS.get(row.unit, "")
    name = "_".join(part for part in parts if part and not (part == unit and metric.endswith(f"_{unit}")))
    members = tuple(members)
    summary = not statistic and (row.spread or any(figure.fraction is not None for figure in members))
    sentence = row.sentence if claim else f"{row.sentence} Not certified by the samples."
    yield from _head(name, "summary" if summary else "gauge", unit if name.endswith(unit) else "", sentence)
    scopes: dict[str, list[Figure]] = {}
    for figure in members:
        scopes.setdefault(figure.query.scope, []).append(figure)
    for scope, several in scopes.items():
        labelled = {**common, **({"scope": scope} if scope else {})}
        yield from (
            _summary(name, several, labelled)
            if summary
            else (_sample(name, labelled, figure.value) for figure in several)
        )


def _summary(name: str, members: Iterable[Figure], labelled: Mapping[str, str]) -> Iterator[str]:
    """Yield the quantiles, then count and sum if both are known."""
    values = {figure.query.statistic: figure.value for figure in members}
    for figure in members:
        if figure.fraction is not None:
            yield _sample(name, {**labelled, "quantile": f"{figure.fraction:g}"}, figure.value)
    if "n" in values and "mean" in values:
        yield _sample(f"{name}_count", labelled, int(values["n"]))
        yield _sample(f"{name}_sum", labelled, values["mean"] * values["n"])


def _head(name: str, kind: str, unit: str, sentence: str) -> Iterator[str]:
    yield f"# TYPE {name} {kind}"
    if unit:
        yield f"# UNIT {name} {unit}"
    yield f"# HELP {name} {sentence.translate(_ESCAPED)}"


def _sample(name: str, labelled: Mapping[str, str], value: float) -> str:
    label_text = ",".join(
        f'{_ILLEGAL.sub("_", key)}="{text.translate(_ESCAPED)}"' for key, text in labelled.items()
    )
    return f"{name}{{{label_text}}} {value!r}"
