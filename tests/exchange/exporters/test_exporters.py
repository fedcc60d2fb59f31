"""What exporters write, read back by the tools that it is for."""

from __future__ import annotations

import json
import struct
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base import codec, plugins
from modeldyno.base.errors import MissingExtra, RequestError, UnknownName
from modeldyno.base.job.load_spec import Load
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement, observed_number, pack
from modeldyno.base.result.result import Artifact, Failure, FailureKind, Result
from modeldyno.base.result.trace_data import EventKind, ExecutedOp, Layer, MemoryTimeline, TraceReport
from modeldyno.exchange import export as documents_export
from modeldyno.exchange.exporters import mlflow as to_mlflow
from modeldyno.exchange.exporters import perfetto, prometheus
from modeldyno.exchange.exporters.exported_numbers import figures
from modeldyno.regions.recorder import Profiled
from modeldyno.testing.reporters import HOSTILE, call_times, full_result
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.sweeps.study.study import Study


PACKAGE = {"mlflow": "mlflow-skinny"}


def none(_name: str) -> None:
    """No trial has a Result."""


def few() -> Result:
    """Forty calls: enough for a median, and not for a p99."""
    return a_result(
        measurements=(
            Measurement(metric="latency", value=Distribution.of(call_times(40))),
            Measurement(metric="throughput", value=123.0),
            observed_number("error_rate", float("nan")),
        ),
        doubts=(Doubt(code="drift", seen="one", advice="a"), Doubt(code="drift", seen="two", advice="b")),
    )


def test_what_is_no_claim_has_another_name() -> None:
    """A percentile of too few samples is exported as .raw alone; what is no number is not."""
    names = {str(each.query): each for each in figures(few())}

    assert names["latency.p50"].claim
    assert names["latency.p50"].interval is not None
    assert "latency.p99" not in names
    assert not names["latency.p99.raw"].claim
    assert "error_rate" not in names
    void = replace(
        few(),
        measurements=(
            Measurement(metric="latency", value=Distribution.of(call_times(40), void="saturated")),
        ),
    )
    assert all(not each.claim for each in figures(void) if each.fraction or each.query.statistic == "mean")


# --- Prometheus ------------------------------------------------------------------------------------


def families(result: Result) -> dict[str, Any]:
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    return {f.name: f for f in parser.text_string_to_metric_families(prometheus.exposition_text(result))}


def test_prometheus_reads_what_was_written(tmp_path: Path) -> None:
    """Quantiles, count and sum are those of the samples; the unit is in the name; doubts are gauges."""
    result = few()
    metrics = families(result)
    latency = metrics["modeldyno_latency_seconds"]
    samples = {tuple(sorted(s.labels.items())): s for s in latency.samples}
    quantiles = {s.labels["quantile"]: s.value for s in latency.samples if "quantile" in s.labels}

    assert (latency.type, latency.unit) == ("summary", "seconds")
    assert quantiles == {"0.5": result["latency.p50"]}
    assert {s.name.rpartition("_")[2]: s.value for s in latency.samples if "quantile" not in s.labels} == {
        "count": 40,
        "sum": pytest.approx(sum(call_times(40))),
    }
    assert samples
    raw = {s.labels["quantile"]: s.value for s in metrics["modeldyno_latency_raw_seconds"].samples}
    assert raw["0.99"] == result["latency.p99.raw"]
    assert metrics["modeldyno_throughput_per_second"].samples[0].value == 123.0
    assert [s.labels["code"] for s in metrics["modeldyno_doubt"].samples] == ["drift"]
    assert metrics["modeldyno_result"].samples[0].labels["id"] == result.id
    assert documents_export.export(result, f"prometheus:{tmp_path}/out.prom", none) == f"{tmp_path}/out.prom"
    assert (tmp_path / "out.prom").read_text().endswith("# EOF\n")


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_breaks_the_text_of_prometheus(name: str) -> None:
    """A label holds any text; the parser gives it back."""
    result = replace(few(), model=None, job=replace(few().job, name=name or "x", config={"precision": name}))
    metrics = families(result)
    labels = metrics["modeldyno_throughput_per_second"].samples[0].labels

    assert labels["precision"] == name


def test_everything_that_a_run_may_hold_is_text_of_prometheus() -> None:
    """The parser takes every family of a full Result."""
    assert len(families(full_result())) > 5


# --- MLflow ----------------------------------------------------------------------------------------


def client(folder: Path) -> Any:
    mlflow = pytest.importorskip("mlflow")
    return mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")


@pytest.fixture(scope="module")
def runs_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of runs; that MLflow makes its tables takes seconds."""
    return tmp_path_factory.mktemp("mlflow")


@pytest.mark.filterwarnings("ignore")
def test_mlflow_reads_what_was_logged(runs_folder: Path) -> None:
    """Parameters, metrics with units, doubts and the document are in the store; twice is once."""
    pytest.importorskip("mlflow")
    failure = Failure(where="probe", kind=FailureKind.OOM, message="too much")
    result = replace(full_result(), id="a" * 12, failures=(failure,))  # others log to the same store
    for _ in range(2):
        assert "run " in documents_export.export(result, f"mlflow:{runs_folder}", none)
    reader = client(runs_folder)
    experiment = reader.get_experiment_by_name(to_mlflow.EXPERIMENT)
    runs = reader.search_runs([experiment.experiment_id])
    (run,) = [run for run in runs if run.data.tags["modeldyno.id"] == result.id]

    assert run.data.metrics["latency.p50"] == result["latency.p50"]
    assert run.data.metrics["latency.p50.low"] < run.data.metrics["latency.p50"]
    assert run.data.params["config.batch_size"] == "32"
    assert run.data.tags["unit.latency"] == "s"
    assert run.data.tags["modeldyno.id"] == result.id
    assert all(f"modeldyno.doubt.{each.code}" in run.data.tags for each in result.doubts)
    assert run.info.status == "FAILED"
    local = next((runs_folder / "artifacts" / run.info.run_id).rglob("result.json"))
    assert codec.decode(local.read_bytes()) == result


@pytest.mark.filterwarnings("ignore")
def test_trials_of_a_study_are_runs_within_a_run(
    runs_folder: Path, study: tuple[Study, dict[str, Result]]
) -> None:
    """The parent has the study, each child its trial."""
    pytest.importorskip("mlflow")
    made, results = study
    documents_export.export(made, f"mlflow:{runs_folder}", results.get)
    reader = client(runs_folder)
    experiment = reader.get_experiment_by_name(to_mlflow.EXPERIMENT)
    runs = reader.search_runs([experiment.experiment_id])
    (parent,) = [run for run in runs if run.data.tags["modeldyno.id"] == made.id]
    children = [run for run in runs if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id]

    assert len(children) == len(results)
    assert {run.data.tags["modeldyno.id"] for run in children} == set(results)


@pytest.mark.filterwarnings("ignore")
def test_what_mlflow_refuses_is_told_in_a_sentence(tmp_path: Path) -> None:
    """An address of no store is a wrong request."""
    pytest.importorskip("mlflow")
    with pytest.raises(RequestError, match="MLflow cannot use"):
        documents_export.export(few(), f"mlflow:nosuch://{tmp_path}", none)


# --- TensorBoard -----------------------------------------------------------------------------------


def scalars(folder: str) -> dict[str, float]:
    """Read the events of a directory as TensorBoard does."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(folder)
    events.Reload()
    return {tag: events.Scalars(tag)[0].value for tag in events.Tags()["scalars"]}


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    """Its own reader gives the numbers, in single precision, and knows the hyper-parameters."""
    pytest.importorskip("tensorboard")
    result = few()
    folder = documents_export.export(result, f"tensorboard:{tmp_path}", none)
    documents_export.export(result, f"tensorboard:{tmp_path}", none)
    logged = scalars(folder)

    assert logged["latency.p50"] == pytest.approx(result["latency.p50"])
    assert logged["latency.p99.raw"] == pytest.approx(result["latency.p99.raw"])
    assert "latency.p99" not in logged
    assert len(list(Path(folder).iterdir())) == 1
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = loader.EventAccumulator(folder)
    events.Reload()
    assert "hparams" in events.summary_metadata["_hparams_/session_start_info"].plugin_data.plugin_name


@pytest.mark.filterwarnings("ignore")
def test_trials_have_directories_of_their_own(tmp_path: Path, study: tuple[Study, dict[str, Result]]) -> None:
    """TensorBoard shows each as a run."""
    pytest.importorskip("tensorboard")
    made, results = study
    folder = documents_export.export(made, f"tensorboard:{tmp_path}", results.get)

    assert len(list(Path(folder).iterdir())) == len(results)


# --- Weights & Biases ------------------------------------------------------------------------------


def transaction_log(data: bytes) -> Iterator[bytes]:
    """Read the records of a run file: LevelDB's log, with blocks of 32 KiB behind a header of seven bytes."""
    assert data.startswith(b":W&B")
    at, record = 7, b""
    while at + 7 <= len(data):
        if (left := 2**15 - at % 2**15) < 7:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in {1, 4}:  # whole, or its last part
            yield record
            record = b""


def wandb_records(folder: Path) -> list[Any]:
    """Read what a run's directory has, by W&B's own messages."""
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    wandb.teardown()  # its service writes the end of the file when it ends
    (file,) = folder.glob("run-*.wandb")
    return [Record.FromString(data) for data in transaction_log(file.read_bytes())]


@pytest.mark.filterwarnings("ignore")
def test_wandb_keeps_an_offline_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run file, read by W&B's own messages, gives the summary back."""
    pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    result = few()
    folder = documents_export.export(result, f"wandb:{tmp_path}/runs", none)
    logged: dict[str, Any] = {}
    for record in wandb_records(Path(folder)):
        for item in (*record.summary.update, *record.run.summary.update):
            logged[".".join(item.nested_key) or item.key] = json.loads(item.value_json)

    assert logged["latency.p50"] == pytest.approx(result["latency.p50"])
    assert logged["latency.p99.raw"] == pytest.approx(result["latency.p99.raw"])
    assert "latency.p99" not in logged
    assert codec.read(next(Path(folder).rglob("result.json"))).id == result.id
    assert documents_export.export(result, f"wandb:{tmp_path}/runs", none) == folder


@pytest.mark.filterwarnings("ignore")
def test_trials_are_offline_runs_of_a_group(
    tmp_path: Path, study: tuple[Study, dict[str, Result]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those whose results are still known; Weights & Biases shows them together."""
    pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    made, results = study

    assert documents_export.export(made, f"wandb:{tmp_path}/runs", results.get).startswith(
        "2 offline runs in "
    )
    runs = [
        record.run
        for folder in sorted(tmp_path.glob("runs/wandb/offline-run-*"))
        for record in wandb_records(folder)
        if record.run.run_id
    ]
    assert {run.run_id for run in runs} == set(results)
    assert {run.run_group for run in runs} == {made.name or made.id}


# --- Perfetto --------------------------------------------------------------------------------------

KINDS = {"M": {"name", "args"}, "X": {"ts", "dur", "name", "tid"}, "C": {"ts", "name", "args"}}
"""Keys that each phase of the format must have."""


def check(events: list[dict[str, Any]]) -> None:
    """Hold events to the format: known phases with their keys, times at or above zero, slices that nest."""
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        assert KINDS[event["ph"]] <= event.keys()
        assert event.get("ts", 0) >= 0
        if event["ph"] == "X":
            lanes.setdefault((event["pid"], event["tid"]), []).append(
                (event["ts"], event["ts"] + event["dur"])
            )
    for slices in lanes.values():
        open_: list[float] = []
        for begin, end in sorted(slices, key=lambda each: (each[0], -each[1])):
            while open_ and open_[-1] <= begin + 1e-3:
                open_.pop()
            assert not open_ or end <= open_[-1] + 1e-3
            open_.append(end)


def test_calls_layers_and_memory_are_tracks(tmp_path: Path) -> None:
    """Each call has its length, layers lie within their parents, memory is a counter."""
    layers = tuple(Layer(path=path, kind="Linear") for path in ("", "block", "block.a", "block.b", "head"))
    seconds = dict(
        zip(("", "block", "block.a", "block.b", "head"), (0.01, 0.006, 0.004, 0.003, 0.003), strict=True)
    )
    course = MemoryTimeline(
        times=pack([0.0, 0.001]), levels={"weights": pack([8.0, 8.0]), "activations": pack([0.0, 4.0])}
    )
    result = a_result(
        measurements=(
            *few().measurements,
            *(
                Measurement(metric="latency", value=Distribution.of([s]), scope=p)
                for p, s in seconds.items()
                if p
            ),
        ),
        activity=TraceReport(layers=layers, course=course),
    )
    events = perfetto.trace_events(result)
    check(events)
    named = {event["name"]: event for event in events if event["ph"] == "X"}
    counted = [event["args"] for event in events if event["ph"] == "C"]

    assert sum(event["dur"] for event in events if event["name"] == "call") == pytest.approx(
        sum(call_times(40)) * 1e6
    )
    # Its children took longer than the block, as watching may make them: both are shortened alike.
    assert named["block.a"]["dur"] + named["block.b"]["dur"] == pytest.approx(named["block"]["dur"])
    assert named["block.a"]["dur"] / named["block.b"]["dur"] == pytest.approx(4 / 3)
    assert named["block"]["dur"] / named["head"]["dur"] == pytest.approx(6 / 3)
    assert named["block.b"]["args"]["measured"] == pytest.approx(0.003)
    assert named["head"]["ts"] >= named["block"]["ts"] + named["block"]["dur"]
    assert counted[1] == {"weights": 8.0, "activations": 4.0}
    assert documents_export.export(result, f"perfetto:{tmp_path}/trace.json", none)
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"] == events


def test_regions_and_lines_of_code_are_drawn() -> None:
    """Each call of a region, and the lines of one call; not what is no line."""
    mark = Profiled(iter(range(0, 10**12, 10**6)).__next__)
    mark.enable()
    for _ in range(2):
        with mark("step"):
            pass
    row = ExecutedOp(
        name="a.py:3", kind=EventKind.LINE, scope="step > Net", calls=1, self_time=0, total_time=0.5
    )
    rows = (row, replace(row, name="a.py:4"), replace(row, name="outside operators"))
    result = replace(mark.result(), activity=TraceReport(executed=rows))
    events = perfetto.trace_events(result)
    check(events)
    drawn = [(event["name"], event["ts"], event["dur"]) for event in events if event["ph"] == "X"]

    assert drawn[:2] == [("step", 0.0, 1000.0), ("step", 1000.0, 1000.0)]
    assert drawn[2:] == [("a.py:3", 0.0, 5e5), ("a.py:4", 5e5, 5e5)]


def test_a_document_without_times_has_no_trace(tmp_path: Path) -> None:
    """It is refused, and no file is left that shows nothing."""
    with pytest.raises(RequestError, match="has no times that a trace could show"):
        documents_export.export(replace(a_result(), measurements=()), f"perfetto:{tmp_path}/t.json", none)
    assert not (tmp_path / "t.json").exists()


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".npz"])
def test_requests_lie_where_they_were(suffix: str, tmp_path: Path) -> None:
    """Three requests, two of them at once, take two lanes; stages of the server stand beside."""
    from modeldyno.serving.load.foreign_load import ForeignRequest, foreign_records
    from modeldyno.serving.loadgen.record_spool import write_records

    times = [(1000, 2000, 9000), (2000, 2000, 8000), (9500, 9500, 12000)]
    made = foreign_records([ForeignRequest(due=due, sent=sent, end=end) for due, sent, end in times])
    written = write_records(made, tmp_path / f"records{suffix}")
    result = replace(
        a_result(measurements=(observed_number("queue_time", 0.001), observed_number("compute_time", 0.002))),
        artifacts=(Artifact(name="other", path="", digest=""), written),
    )
    result = replace(result, job=replace(result.job, load=Load(concurrency=2)))
    events = perfetto.trace_events(result)
    check(events)
    requests = [event for event in events if event["name"] == "request"]

    assert [event["tid"] for event in requests] == [1, 2, 2] or [event["tid"] for event in requests] == [
        1,
        2,
        1,
    ]
    assert [event["dur"] for event in requests] == pytest.approx([8.0, 6.0, 2.5])
    assert [event["name"] for event in events].count("waits in the client") == 1
    stages = [event for event in events if event["name"].endswith("_time")]
    assert [event["ts"] for event in stages] == pytest.approx([0.0, 1000.0])


# --- what is asked for -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "error", "sentence"),
    [
        ("mlfow:x", UnknownName, "did you mean 'mlflow'"),
        ("prometheus", RequestError, "names no target; write prometheus:TARGET"),
        ("perfetto:", RequestError, "names no target"),
    ],
)
def test_a_wrong_place_is_refused(to: str, error: type[Exception], sentence: str) -> None:
    """Before anything is written."""
    with pytest.raises(error, match=sentence):
        documents_export.export(few(), to, none)


@pytest.mark.parametrize("name", ["mlflow", "tensorboard", "wandb"])
def test_a_missing_package_is_told_by_its_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence says what to install."""
    monkeypatch.setattr("modeldyno.base.plugins.find_spec", lambda _module: None)
    with pytest.raises(MissingExtra, match=f"pip install {PACKAGE.get(name, name)}") as refused:
        documents_export.export(few(), f"{name}:x", none)
    assert refused.value.exit_code == 3


def test_a_study_goes_only_where_studies_can(study: tuple[Study, dict[str, Result]], tmp_path: Path) -> None:
    """A file of one result holds no study, and a study without results is nothing to export."""
    made, _ = study
    with pytest.raises(RequestError, match="takes single results"):
        documents_export.export(made, f"prometheus:{tmp_path}/x", none)
    pytest.importorskip("tensorboard")
    with warnings.catch_warnings(), pytest.raises(RequestError, match="nothing to export"):
        documents_export.export(made, f"tensorboard:{tmp_path}", none)


def test_the_page_names_every_exporter_and_its_package() -> None:
    """A tool that is added needs a row."""
    page = (Path(__file__).parents[3] / "docs/howto/export.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and "`pip install " in line]

    assert len(plugins.names("exporter")) == 5
    assert all(f"{name}:" in page for name in plugins.names("exporter") if name != "wandb")
    needing = [name for name in plugins.names("exporter") if plugins.exporter(name).requires]
    assert all(any(f"`pip install {PACKAGE.get(name, name)}`" in row for row in rows) for name in needing)
