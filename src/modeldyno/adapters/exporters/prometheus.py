"""Prometheus: a file of OpenMetrics text, such as node_exporter's textfile collector takes.

Names end in the base unit; percentiles are the quantiles of a summary. What is no claim has ``raw`` in the
name of its metric. https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno import codec
from modeldyno.core.metrics.metric import METRICS
from modeldyno.core.result.numbers import figures, labels
from modeldyno.core.stats.units import BYTES, CELSIUS, CORES, FRACTION, HERTZ, JOULES, RATE, SECONDS, WATTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from modeldyno.core.result.numbers import Figure
    from modeldyno.core.result.result import Result

requires: tuple[str, ...] = ()
_UNITS = {
    SECONDS: "seconds", BYTES: "bytes", RATE: "per_second", FRACTION: "ratio", CORES: "cores",
    JOULES: "joules", WATTS: "watts", HERTZ: "hertz", CELSIUS: "celsius",
}  # fmt: skip
_NAME = re.compile(r"[^a-zA-Z0-9_]")
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_WHOLE = ("n", "mean")
"""Statistics from which count and sum of a summary follow."""


def export(document: Result, target: str) -> str:
    """Write the file."""
    path = Path(target)
    codec.write(path, text(document).encode("utf-8", "replace"))
    return str(path)


def text(result: Result) -> str:
    """Give the exposition: each family with its type, unit and help, and the end."""
    common = labels(result)
    families: dict[tuple[str, bool, str], list[Figure]] = {}
    for each in figures(result):
        statistic = each.query.statistic or ""
        plain = "" if each.fraction is not None or statistic in _WHOLE else statistic
        families.setdefault((each.query.metric, each.claim, plain), []).append(each)
    lines = [
        line for (m, claim, s), found in families.items() for line in _family(m, claim, s, found, common)
    ]
    doubts = dict.fromkeys(each.code for each in result.doubts)
    told = (_sample("modeldyno_doubt", {**common, "code": code}, 1) for code in doubts)
    head = _head("modeldyno_doubt", "gauge", "", "A reason not to trust these numbers.")
    identity = {**common, "id": result.id, "created": result.created}
    about = _head("modeldyno_result", "info", "", "Which result it is.")
    known = _sample("modeldyno_result_info", identity, 1)
    return "\n".join([*lines, *head, *told, *about, known, "# EOF", ""])


def _family(
    metric: str, claim: bool, statistic: str, found: Iterable[Figure], common: Mapping[str, str]
) -> Iterator[str]:
    """Give a summary of percentiles, count and sum, or a gauge for any other statistic."""
    row = METRICS[metric]
    parts = ("modeldyno", metric, statistic, "" if claim else "raw", _UNITS.get(row.unit, ""))
    unit = _UNITS.get(row.unit, "")
    name = "_".join(part for part in parts if part and not (part == unit and metric.endswith(f"_{unit}")))
    summary = row.spread and not statistic
    sentence = row.sentence if claim else f"{row.sentence} Not certified by the samples: no claim."
    yield from _head(name, "summary" if summary else "gauge", unit if name.endswith(unit) else "", sentence)
    scopes: dict[str, list[Figure]] = {}
    for each in found:
        scopes.setdefault(each.query.scope, []).append(each)
    for scope, several in scopes.items():
        marked = {**common, **({"scope": scope} if scope else {})}
        yield from (
            _summary(name, several, marked)
            if summary
            else (_sample(name, marked, each.value) for each in several)
        )


def _summary(name: str, found: Iterable[Figure], marked: Mapping[str, str]) -> Iterator[str]:
    """Give quantiles, then count and sum where both are known."""
    known = {each.query.statistic: each.value for each in found}
    for each in found:
        if each.fraction is not None:
            yield _sample(name, {**marked, "quantile": f"{each.fraction:g}"}, each.value)
    if "n" in known and "mean" in known:
        yield _sample(f"{name}_count", marked, int(known["n"]))
        yield _sample(f"{name}_sum", marked, known["mean"] * known["n"])


def _head(name: str, kind: str, unit: str, sentence: str) -> Iterator[str]:
    yield f"# TYPE {name} {kind}"
    if unit:
        yield f"# UNIT {name} {unit}"
    yield f"# HELP {name} {sentence.translate(_ESCAPED)}"


def _sample(name: str, marked: Mapping[str, str], value: float) -> str:
    written = ",".join(f'{_NAME.sub("_", key)}="{word.translate(_ESCAPED)}"' for key, word in marked.items())
    return f"{name}{{{written}}} {value!r}"
