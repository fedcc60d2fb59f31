from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base import plugins
from modeldyno.base.errors import UnreadableDocument
from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.metrics.doubt import CODES
from modeldyno.base.metrics.metric import METRICS
from modeldyno.exchange import import_
from modeldyno.testing.importers import ImporterSuite

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result

GOLDEN = Path(__file__).parent / "golden"


class TestPerfAnalyzer(ImporterSuite):
    name = "perf_analyzer"
    examples = tuple(sorted(GOLDEN.glob("perf_analyzer_*")))


class TestVllm(ImporterSuite):
    name = "vllm"
    examples = tuple(sorted(GOLDEN.glob("vllm_*")))


class TestGuidellm(ImporterSuite):
    name = "guidellm"
    examples = tuple(sorted(GOLDEN.glob("guidellm_*")))


class TestAiperf(ImporterSuite):
    name = "aiperf"
    examples = tuple(sorted(GOLDEN.glob("aiperf_*/*")))


class TestLoadgen(ImporterSuite):
    name = "loadgen"
    examples = tuple(sorted(GOLDEN.glob("loadgen_*/*")))


def read(name: str) -> Result:
    (result,) = import_.read(GOLDEN / name)
    return result


def document(name: str) -> Any:
    return json.loads((GOLDEN / name).read_text())


def gaps(result: Result) -> set[str]:
    """The metrics that are said to be defined otherwise."""
    return {d.seen.partition(":")[0] for d in result.doubts if d.code == "other-definition"}


# --- perf_analyzer ---------------------------------------------------------------------------------


def test_each_experiment_of_perf_analyzer_is_a_result() -> None:
    """The JSON of two levels of concurrency gives two, and the CSV beside it the same figures."""
    levels = import_.read(GOLDEN / "perf_analyzer_profile.json")
    lines = list(csv.DictReader((GOLDEN / "perf_analyzer_levels.csv").read_text().splitlines()))

    assert [level.job.load.concurrency for level in levels if level.job.load] == [1, 3]
    for level, line in zip(levels, lines, strict=True):
        # It was run with a batch of two, of which only the CSV's throughput knows.
        assert level["request_rate"] == pytest.approx(float(line["Inferences/Second"]) / 2, rel=0.01)
        assert level["service_time.p50.raw"] == pytest.approx(float(line["p50 latency"]) * 1e-6, rel=0.02)
        assert level.find("throughput") is None
        assert "throughput" in gaps(level)


def test_stages_of_the_csv_are_ours() -> None:
    """What the server accounts for, and what it does not, add up to the mean."""
    first = import_.read(GOLDEN / "perf_analyzer_levels.csv")[0]
    stages = ("queue_time", "compute_input_time", "compute_time", "compute_output_time", "network_time")

    assert sum(first[stage] or 0.0 for stage in stages) == pytest.approx(first["latency.mean"], rel=1e-3)
    assert first["throughput"] == pytest.approx(33.9342)
    assert first.ask("latency.p99").value is None
    assert first["latency.p99.raw"] == pytest.approx(0.104059)


def test_a_rate_of_perf_analyzer_is_an_open_loop() -> None:
    """Its latency, from the sending, is a service time."""
    for name in ("perf_analyzer_rate.json", "perf_analyzer_rate.csv"):
        result = read(name)
        assert result.job.load is not None
        assert (result.job.load.arrivals, result.job.load.rate) == (Arrivals.CONSTANT, 20)
        assert result.find("latency") is None


def test_events_of_a_stream_are_pieces_where_they_bear_text() -> None:
    """Six words came in six responses; the usage and the end are in the last one, and no pieces."""
    result = read("perf_analyzer_openai.json")

    assert result.ask("time_to_first_token.n").value == 40
    assert result.ask("inter_chunk_latency.n").value == 5 * 40


# --- vLLM ------------------------------------------------------------------------------------------


def test_times_of_vllm_are_those_that_it_printed() -> None:
    """Distributions from the lists have the means that stand in the same file."""
    printed, result = document("vllm_closed.json"), read("vllm_closed.json")

    assert result.ask("time_to_first_token.mean").value == pytest.approx(printed["mean_ttft_ms"] * 1e-3)
    assert result.ask("time_per_output_token.mean").value == pytest.approx(printed["mean_tpot_ms"] * 1e-3)
    assert result.ask("inter_chunk_latency.mean").value == pytest.approx(printed["mean_itl_ms"] * 1e-3)
    assert result.ask("latency.p50").value == pytest.approx(sorted(printed["latencies"])[59], rel=1e-6)
    assert result["request_rate"] == pytest.approx(printed["request_throughput"], rel=0.02)
    assert result["token_rate"] == pytest.approx(printed["output_throughput"], rel=0.02)
    assert result.job.load is not None
    assert result.job.load.concurrency == 4
    assert gaps(result) == {"service_time", "inter_chunk_latency"}


def test_the_queue_of_the_client_counts_in_an_open_loop() -> None:
    """From 0.30 on vLLM tells how long a request waited in it; latency is then from when it was due."""
    printed, result = document("vllm_open.json"), read("vllm_open.json")
    latencies = [lag + time for lag, time in zip(printed["queue_times"], printed["latencies"], strict=True)]

    assert result.ask("latency.mean").value == pytest.approx(sum(latencies) / len(latencies), rel=1e-6)
    assert result.job.load is not None
    assert result.job.load.arrivals is Arrivals.POISSON


def test_without_details_vllm_gives_its_latencies_and_figures() -> None:
    """Latencies are samples; the time to the first token is a figure without an interval."""
    printed, result = document("vllm_plain.json"), read("vllm_plain.json")

    assert result.ask("latency.n").value == 40
    assert result["time_to_first_token.p50"] == pytest.approx(printed["median_ttft_ms"] * 1e-3)
    assert result.ask("time_to_first_token.p99").value is None
    assert result["time_to_first_token.p99.raw"] == pytest.approx(printed["p99_ttft_ms"] * 1e-3)
    assert result["request_rate"] == printed["request_throughput"]


def changed(tmp_path: Path, name: str, **values: Any) -> Result:
    """Read a file with other values in it."""
    path = tmp_path / "changed.json"
    path.write_text(json.dumps({**document(name), **values}))
    (result,) = import_.read(path)
    return result


def test_several_runs_in_a_file_are_several_results(tmp_path: Path) -> None:
    """With --append-result a line is a run."""
    lines = [json.dumps(document(name)) for name in ("vllm_plain.json", "vllm_closed.json")]
    path = tmp_path / "runs.json"
    path.write_text("\n".join(lines))

    assert len({result.id for result in import_.read(path)}) == 2


def test_requests_that_failed_are_counted(tmp_path: Path) -> None:
    """As what vLLM's error says."""
    errors = ["Bad Gateway", *[""] * 119]
    result = changed(tmp_path, "vllm_closed.json", errors=errors, failed=1)

    assert result["requests@server-error"] == 1
    assert "requests" not in gaps(result)


def test_older_releases_of_vllm_tell_less(tmp_path: Path) -> None:
    """Without a limit, a date or times of whole requests, what there is is told."""
    result = changed(
        tmp_path, "vllm_plain.json", latencies=[], max_concurrency=None, date="", failed=2, backend=""
    )
    gamma = changed(tmp_path, "vllm_open.json", burstiness=0.5, queue_times=[], errors=[], output_lens=0)

    assert result.job.load is not None
    assert result.job.load.concurrency == 40
    assert "latency" in gaps(result)
    assert result["latency.p50"] is not None
    assert result["requests@server-error"] == 2
    assert result.created
    assert "offered_rate" in gaps(gamma)
    assert gamma.find("time_per_output_token", "mean") is not None


# --- GuideLLM --------------------------------------------------------------------------------------


def test_times_of_guidellm_are_those_that_it_printed() -> None:
    """Distributions from the requests have the means that stand in the same file."""
    for name in ("guidellm_concurrent.json", "guidellm_poisson.json"):
        printed, result = document(name)["benchmarks"][0]["metrics"], read(name)
        latency = printed["request_latency"]["successful"]
        assert result.ask("service_time.mean").value == pytest.approx(latency["mean"], rel=1e-5)
        each = printed["inter_token_latency_ms"]["successful"]
        assert result.ask("time_per_output_token.mean").value == pytest.approx(each["mean"] * 1e-3, rel=1e-3)
        assert result.find("inter_token_latency") is None


def test_guidellm_tells_when_a_request_was_due() -> None:
    """In an open loop latency counts from its targeted start; there was no limit on what was on its way."""
    printed = document("guidellm_poisson.json")["benchmarks"][0]["metrics"]["request_scheduled_latency"]
    result = read("guidellm_poisson.json")

    assert result["latency.mean.raw"] == pytest.approx(printed["successful"]["mean"])
    assert result.job.load is not None
    assert (result.job.load.rate, result.job.load.concurrency) == (10, None)
    assert read("guidellm_concurrent.json").job.load != result.job.load


def test_a_warm_up_of_guidellm_is_left_out(tmp_path: Path) -> None:
    """Its steady part is the window."""
    report = document("guidellm_concurrent.json")
    benchmark = report["benchmarks"][0]
    benchmark |= {"warmup_duration": 0.5, "start_time": benchmark["start_time"] + 0.5}
    path = tmp_path / "benchmarks.json"
    path.write_text(json.dumps(report))
    (result,) = import_.read(path)

    assert 0 < (result["requests@ok"] or 0) < 60
    assert "whole-load" not in [doubt.code for doubt in result.doubts]


def test_a_sample_of_requests_is_not_taken_for_all(tmp_path: Path) -> None:
    """Where GuideLLM kept only some, its figures stand."""
    report = document("guidellm_concurrent.json")
    report["benchmarks"][0]["config"]["sample_size"] = 20
    report["benchmarks"][0]["start_time"] = None
    path = tmp_path / "benchmarks.json"
    path.write_text(json.dumps(report))
    (result,) = import_.read(path)
    rate = report["benchmarks"][0]["metrics"]["requests_per_second"]["successful"]["mean"]

    assert result["request_rate"] == pytest.approx(rate)
    assert "no-samples" in [doubt.code for doubt in result.doubts]


def test_errors_of_guidellm_are_counted(tmp_path: Path) -> None:
    """Those that were never sent are not."""
    report = document("guidellm_concurrent.json")
    requests = report["benchmarks"][0]["requests"]
    requests["errored"] = [requests["successful"].pop()]
    requests["incomplete"] = [{"info": {"timings": {}}}]
    path = tmp_path / "benchmarks.json"
    path.write_text(json.dumps(report))
    (result,) = import_.read(path)

    assert result["requests@server-error"] == 1
    assert result["requests@ok"] == 59
    assert "requests" in gaps(result)


@pytest.mark.parametrize(
    ("error", "scope"),
    [
        (
            "HTTPStatusError(\"Client error '429 Too Many Requests' for url 'http://host:500/v1'\")",
            "rejected",
        ),
        ("HTTPStatusError(\"Server error '503 Service Unavailable' for url 'http://host/v1'\")", "rejected"),
        ("HTTPStatusError(\"Client error '404 Not Found' for url 'http://host/v1'\")", "client-error"),
        ("HTTPStatusError(\"Server error '500 Internal Server Error' for url 'http://h'\")", "server-error"),
        ("ReadTimeout('')", "timeout"),
        ("ConnectError('All connection attempts failed')", "refused"),
        ("RemoteProtocolError('Server disconnected without sending a response.')", "truncated"),
        ("ReadError('')", "reset"),
        ("ValueError('odd')", "server-error"),
    ],
)
def test_errors_of_guidellm_have_kinds(error: str, scope: str, tmp_path: Path) -> None:
    """A rejection is no error of the server."""
    report = document("guidellm_concurrent.json")
    requests = report["benchmarks"][0]["requests"]
    failed = requests["successful"].pop()
    failed["info"]["error"] = error
    requests["errored"] = [failed]
    path = tmp_path / "benchmarks.json"
    path.write_text(json.dumps(report))
    (result,) = import_.read(path)
    assert result[f"requests@{scope}"] == 1
    assert "requests" not in gaps(result)


@pytest.mark.parametrize(
    ("error", "scope"),
    [
        ("Too Many Requests", "rejected"),
        ("Bad Request", "client-error"),
        ("Traceback (most recent call last):\n  x\nTimeoutError", "timeout"),
        ("aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host", "refused"),
        ("aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected", "truncated"),
    ],
)
def test_errors_of_vllm_have_kinds(error: str, scope: str, tmp_path: Path) -> None:
    """What is kept is the phrase of a status, or how Python told the error."""
    run = document("vllm_closed.json")
    run["errors"] = [error, *[""] * (len(run["start_times"]) - 1)]
    run["failed"] = 1
    path = tmp_path / "vllm.json"
    path.write_text(json.dumps(run))
    (result,) = import_.read(path)
    assert result[f"requests@{scope}"] == 1
    assert "requests" not in gaps(result)


# --- AIPerf ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["aiperf_closed", "aiperf_open"])
def test_times_of_aiperf_are_those_that_it_printed(name: str) -> None:
    """Both files of JSON give the requests, with the means of the statistics; the CSV gives figures."""
    printed = document(f"{name}/profile_export_aiperf.json")
    for file in ("profile_export_aiperf.json", "profile_export.jsonl"):
        result = read(f"{name}/{file}")
        assert result.ask("service_time.mean").value == pytest.approx(
            printed["request_latency"]["avg"] * 1e-3
        )
        assert result.ask("service_time.n").value == 60
        assert str(result.job.model) == "url:http://127.0.0.1:18451#echo"
        # AIPerf's own tokenizer saw thirty bytes; the server generated six tokens.
        assert result["token_rate"] == pytest.approx(6 * (result["request_rate"] or 0))
    table = read(f"{name}/profile_export_aiperf.csv")
    assert table["service_time.mean"] == pytest.approx(printed["request_latency"]["avg"] * 1e-3, rel=1e-2)
    assert table["requests@ok"] == 60


def test_the_credit_of_aiperf_is_when_a_request_was_due() -> None:
    """Its latency that allows for the wait in the client is ours."""
    printed, result = (
        document("aiperf_open/profile_export_aiperf.json"),
        read("aiperf_open/profile_export.jsonl"),
    )

    assert result.job.load is not None
    assert result.job.load.rate == 10
    assert result["latency.mean.raw"] == pytest.approx(printed["effective_latency"]["avg"] * 1e-3, rel=1e-3)


@pytest.mark.parametrize("name", ["aiperf_closed", "aiperf_open"])
def test_a_first_token_of_aiperf_has_one_time_whichever_files_there_are(name: str, tmp_path: Path) -> None:
    """AIPerf counts it from the sending; from when the request was due it is known of the requests alone."""
    printed = document(f"{name}/profile_export_aiperf.json")["time_to_first_token"]["avg"] * 1e-3
    summary, table = "profile_export_aiperf.json", "profile_export_aiperf.csv"
    both = read(f"{name}/{summary}")
    for file in (summary, table):
        (tmp_path / file).write_text((GOLDEN / name / file).read_text())
    alone = [import_.read(tmp_path / file)[0] for file in (summary, table)]
    assert both.ask("first_token_service_time.mean").value == pytest.approx(printed)
    for result in alone:
        assert result["first_token_service_time.mean"] == pytest.approx(printed, rel=1e-2)
        assert result.find("time_to_first_token", "mean") is None
        assert result.find("latency", "mean") is None
    from_due, lag = (both.distribution(metric) for metric in ("time_to_first_token", "send_lag"))
    assert from_due is not None
    assert lag is not None
    assert from_due.statistic("mean") == pytest.approx(printed + lag.statistic("mean"))


@pytest.mark.parametrize("name", ["aiperf_closed", "aiperf_open"])
def test_the_load_of_a_table_is_that_of_the_json_beside_it(name: str, tmp_path: Path) -> None:
    """Alone it is taken for a closed loop of as many as were on their way at once, and that is said."""
    beside = read(f"{name}/profile_export_aiperf.csv")
    path = tmp_path / "profile_export_aiperf.csv"
    path.write_text((GOLDEN / name / path.name).read_text())
    (alone,) = import_.read(path)

    assert beside.job.load == read(f"{name}/profile_export_aiperf.json").job.load
    assert str(beside.job.model) == "url:http://127.0.0.1:18451#echo"
    assert not any("has no load" in doubt.seen for doubt in beside.doubts)
    assert alone.job.load is not None
    assert alone.job.load.concurrency == 3
    assert any("has no load" in doubt.seen for doubt in alone.doubts)


def test_requests_alone_do_not_tell_the_load(tmp_path: Path) -> None:
    """Without the statistics beside them they are taken for a closed loop, and that is said."""
    path = tmp_path / "profile_export.jsonl"
    path.write_text((GOLDEN / "aiperf_closed/profile_export.jsonl").read_text())
    (result,) = import_.read(path)

    assert result.job.load is not None
    assert result.job.load.concurrency == 3
    assert any("has no load" in doubt.seen for doubt in result.doubts)


@pytest.mark.parametrize(
    ("mode", "arrivals"), [("poisson", Arrivals.POISSON), ("constant", Arrivals.CONSTANT)]
)
def test_the_older_shape_of_a_load_is_read(mode: str, arrivals: Arrivals, tmp_path: Path) -> None:
    """One mapping told it where phases do now."""
    summary = document("aiperf_closed/profile_export_aiperf.json")
    summary["input_config"] = {
        "endpoint": {"model_names": ["m"], "url": "http://host", "type": "chat"},
        "loadgen": {"request_rate": 5.0, "request_rate_mode": mode, "concurrency": 8},
    }
    path = tmp_path / "summary.json"
    path.write_text(json.dumps(summary))
    (result,) = import_.read(path)

    assert result.job.load == Load(arrivals=arrivals, rate=5.0, concurrency=8)
    assert str(result.job.model) == "url:http://host#m"
    assert result.find("latency", "mean") is None
    assert result["service_time.mean"] == pytest.approx(summary["request_latency"]["avg"] * 1e-3)


@pytest.mark.parametrize(
    ("error", "scope"),
    [
        ({"code": 429}, "rejected"),
        ({"code": 404}, "client-error"),
        ({"code": 499}, "cancelled"),
        ({"code": None, "type": "TimeoutError"}, "timeout"),
        ({"code": 500}, "server-error"),
    ],
)
def test_errors_of_aiperf_have_kinds(error: dict[str, Any], scope: str, tmp_path: Path) -> None:
    """They are told by its codes, and a warm-up is left out."""
    lines = (GOLDEN / "aiperf_closed/profile_export.jsonl").read_text().splitlines()
    first, second = json.loads(lines[0]), json.loads(lines[1])
    first |= {"error": error, "metrics": {}}
    second["metadata"]["benchmark_phase"] = "warmup"
    path = tmp_path / "records.jsonl"
    path.write_text("\n".join([json.dumps(first), json.dumps(second), *lines[2:]]))
    (result,) = import_.read(path)

    assert result[f"requests@{scope}"] == 1
    assert result["requests@ok"] == 58


# --- the page --------------------------------------------------------------------------------------


def test_the_page_names_metrics_doubts_and_tools_that_are() -> None:
    """What the table maps to is in the table of metrics; every tool has a row."""
    page = (Path(__file__).parents[3] / "docs/howto/import.md").read_text("utf-8")
    terms = page.partition("## What their terms mean")[2].partition("## ")[0]
    mapped = [line.split("|")[3] for line in terms.splitlines() if "|" in line]
    names = [name for cell in mapped[2:] for name in re.findall(r"`([a-z_]+)`", cell)]

    assert len(names) > 15
    assert set(names) <= METRICS.keys()
    assert {"from-send", "no-samples", "whole-load", "other-definition", "imported"} <= CODES.keys()
    assert all(name.lower() in page.lower() for name in plugins.names("importer"))


# --- loadgen ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("log", ["summary.txt", "detail.txt", "trace.json"])
def test_each_log_of_loadgen_is_read_with_the_others(log: str) -> None:
    """Whichever is named: the samples come from the trace, the rest from the detail log and the summary."""
    result = read(f"loadgen_server/mlperf_log_{log}")
    trace = (GOLDEN / "loadgen_server" / "mlperf_log_trace.json").read_text()
    assert result.number("requests", "ok") == trace.count('"name":"Sample"')
    assert result.job.load == Load(arrivals=Arrivals.POISSON, rate=50.0)
    assert result.environment.software["loadgen"] == "6.0.17"
    assert result.job.config == {"scenario": "Server"}
    assert result.created.startswith("2026-11-26T")
    assert result.name == "PySUT"


def test_the_latency_of_loadgen_counts_from_the_schedule() -> None:
    """In the scenario Server a sample is due at a time; what it waits in LoadGen is a send lag."""
    result = read("loadgen_server/mlperf_log_trace.json")
    summary = (GOLDEN / "loadgen_server" / "mlperf_log_summary.txt").read_text()
    printed = int(re.search(r"Max latency \(ns\)\s*: (\d+)", summary)[1])  # type: ignore[index]
    assert result.number("latency", statistic="max") == pytest.approx(printed * 1e-9)
    assert result.number("send_lag", statistic="max") > 0.001  # type: ignore[operator]
    assert "latency" in gaps(result)
    single = read("loadgen_single/mlperf_log_summary.txt")
    assert single.job.load == Load(concurrency=1)
    assert single.find("send_lag") is None


@pytest.mark.parametrize("log", ["summary.txt", "detail.txt"])
def test_a_log_of_loadgen_without_a_trace_has_figures(tmp_path: Path, log: str) -> None:
    """The statistics are those that it tells, in seconds, without intervals."""
    text = (GOLDEN / "loadgen_single" / f"mlperf_log_{log}").read_text()
    (tmp_path / f"mlperf_log_{log}").write_text(text.replace("SingleStream", "MultiStream"))
    (result,) = import_.read(tmp_path / f"mlperf_log_{log}")
    summary = (GOLDEN / "loadgen_single" / "mlperf_log_summary.txt").read_text()
    printed = int(re.search(r"^99.00 percentile latency \(ns\)\s*: (\d+)", summary, re.MULTILINE)[1])  # type: ignore[index]
    assert result.number("latency", "p99") == pytest.approx(printed * 1e-9)
    assert any("MultiStream" in doubt.seen for doubt in result.doubts)
    assert "no-samples" in {doubt.code for doubt in result.doubts}


def test_offline_logs_of_loadgen_have_a_rate_only(tmp_path: Path) -> None:
    """In the scenario Offline all samples are one query, whose latency says nothing of a sample."""
    path = tmp_path / "mlperf_log_summary.txt"
    heading = "=====\nMLPerf Results Summary\n=====\nSUT name : mine\nScenario : Offline\n"
    path.write_text(f"{heading}Samples per second: 1234.5\nResult is : VALID\nMean latency (ns) : 100\n")
    (result,) = import_.read(path)
    assert result.number("throughput") == 1234.5
    assert result.find("latency", "mean") is None
    path.write_text(heading)
    with pytest.raises(UnreadableDocument, match="there are no times in it"):
        import_.read(path)
