"""MLPerf LoadGen's logs: ``mlperf_log_summary.txt``, ``mlperf_log_detail.txt`` and ``mlperf_log_trace.json``.

Each is read with the others of its folder. The summary and the detail log have figures. The trace, which is
written if ``enable_trace`` is set, has each sample: when it was due, issued and completed.
``mlperf_log_accuracy.json`` has outputs, and no times. As of release 6.0.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.serving.load.foreign_load import ForeignLoad, ForeignRequest, definition_doubt, reported_value
from modeldyno.serving.load.steady_window import NANO

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from modeldyno.base.metrics.measurement import Measurement
    from modeldyno.serving.load.foreign_load import ForeignFile

TOOL = "loadgen"
_SUMMARY, _DETAIL, _TRACE = "mlperf_log_summary.txt", "mlperf_log_detail.txt", "mlperf_log_trace.json"
_HEADING = "MLPerf Results Summary"
_MARK = ":::MLLOG "
_TRACED = '"version":"MLPerf LoadGen'
_FIELD = re.compile(r"^ *([\w./() ]+?) *: *(\S.*)$", re.MULTILINE)
_SAMPLE = re.compile(
    r'\{"name":"Sample","cat":"default","ph":"b".*?"ts":(?P<ts>[\d.]+),"args":\{.*?'
    r'"issue_start_ns":(?P<issued>\d+),"complete_ns":(?P<done>\d+)\}\}'
)
_PERCENTILE = re.compile(r"(?:result_)?(\d+\.\d+)[ _]percentile[ _]latency[ _]\(?ns\)?")
_STATISTICS = {"Min latency (ns)": "min", "Max latency (ns)": "max", "Mean latency (ns)": "mean"}
_RATES = ("Completed samples per second", "Samples per second", "QPS w/ loadgen overhead")
_OPEN = "Server"
_SINGLE, _OFFLINE, _MULTI = "SingleStream", "Offline", "MultiStream"


def claims(file: ForeignFile) -> bool:
    """Return whether the file is one of LoadGen's logs with times."""
    return _HEADING in file.text[:200] or file.text.startswith(_MARK) or _TRACED in file.text[-200:]


def read(file: ForeignFile) -> Iterator[ForeignLoad]:
    """Yield the load that the file and its neighbours describe."""
    summary, detail, trace = (_text(file, name) for name in (_SUMMARY, _DETAIL, _TRACE))
    facts: dict[str, Any] = dict(_detail_facts(detail))
    facts |= {name.strip(): value.strip() for name, value in _FIELD.findall(summary)}
    scenario = str(facts.get("Scenario", facts.get("effective_scenario", "")))
    requests = tuple(_requests(trace))
    figures = tuple(_figures(facts, scenario))
    if not requests and not figures:
        raise ValueError("there are no times in it")
    yield ForeignLoad(
        tool=TOOL,
        version=str(facts.get("loadgen_version", "")).partition(" ")[0],
        model=str(facts.get("SUT name", facts.get("sut_name", ""))),
        created=str(facts.get("test_datetime", "")).replace("Z", "+00:00"),
        load=_load(facts, scenario),
        config={"scenario": scenario} if scenario else {},
        requests=requests,
        untold=frozenset() if scenario == _OPEN else frozenset({"send_lag"}),
        figures=figures,
        gaps=tuple(_doubts(facts, scenario)),
    )


def _text(file: ForeignFile, name: str) -> str:
    """Return the text of a log: that of the file itself, or of its neighbour; empty if there is none."""
    own = {_SUMMARY: _HEADING in file.text[:200], _DETAIL: file.text.startswith(_MARK)}
    if own.get(name, _TRACED in file.text[-200:]):
        return file.text
    neighbour: Path = file.path.with_name(name)
    return neighbour.read_text(encoding="utf-8", errors="replace") if neighbour.is_file() else ""


def _detail_facts(detail: str) -> Iterator[tuple[str, Any]]:
    for line in detail.splitlines():
        if line.startswith(_MARK):
            entry = msgspec.json.decode(line.removeprefix(_MARK))
            yield entry["key"], entry["value"]


def _requests(trace: str) -> Iterator[ForeignRequest]:
    """Yield the samples; the trace is no JSON, as names in it have quotes within quotes."""
    for sample in _SAMPLE.finditer(trace):
        due = round(float(sample["ts"]) / NANO * 1e-6)
        yield ForeignRequest(due=due, sent=due + int(sample["issued"]), end=due + int(sample["done"]))


def _figures(facts: Mapping[str, Any], scenario: str) -> Iterator[Measurement]:
    for name in _RATES:
        if name in facts:
            yield from reported_value("throughput", float(facts[name]))
    for name, value in facts.items():
        match = _PERCENTILE.fullmatch(name)
        statistic = f"p{float(match[1]):g}" if match else _STATISTICS.get(name) or _DETAILED.get(name, "")
        if statistic and scenario != _OFFLINE:
            yield from reported_value("latency", float(value), statistic, NANO)


_DETAILED = {f"result_{name}_latency_ns": name for name in ("min", "max", "mean")}


def _load(facts: Mapping[str, Any], scenario: str) -> Load:
    if scenario == _OPEN:
        target = float(facts.get("target_qps", facts.get("effective_target_qps", 0)))
        return Load(arrivals=Arrivals.POISSON, rate=target) if target else Load()
    return Load(concurrency=1)


def _doubts(facts: Mapping[str, Any], scenario: str) -> Iterator[Doubt]:
    yield definition_doubt(
        "latency",
        "LoadGen ends a query when the system under test says so, within its process; a network is in it "
        "only if that waits for an answer from one",
        "look at what the system under test does before QuerySamplesComplete",
    )
    if scenario in {_OFFLINE, _MULTI}:
        yield definition_doubt(
            "latency",
            f"in the scenario {scenario} a query has many samples, and LoadGen times the query",
            "compare the throughput",
        )
    if facts.get("Result is", facts.get("result_validity")) == "INVALID":
        yield Doubt(
            code="other-definition",
            seen="LoadGen calls the run INVALID: it has too few queries, or broke the bound of its scenario",
            advice="read the summary; ModelDyno judges the percentiles by its own rule",
        )
