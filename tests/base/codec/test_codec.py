"""Documents to JSON and back: equal, with a schema number, and readable for as long as there are files."""

from __future__ import annotations

import base64
import json
import random
import stat
import time
from dataclasses import replace
from math import inf, isnan, nan
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from modeldyno.base import codec
from modeldyno.base.errors import UnreadableDocument
from modeldyno.base.job.job import Job
from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.job.static_options import Mode, StaticOptions
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Interval, Measurement
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.metrics.metric import METRICS, Better, MetricRow
from modeldyno.base.result.result import (
    SCHEMA,
    Ended,
    Environment,
    Event,
    Failure,
    FailureKind,
    Loaded,
    MeasuringBegan,
    MeasuringEnded,
    Progressed,
    Refused,
    Result,
    SecondPassed,
)
from modeldyno.base.result.static_data import SizePoint, StaticReport
from modeldyno.base.result.trace_data import LiveSecond
from modeldyno.testing.sample_results import (
    a_failed_result,
    a_job,
    a_result,
    a_small_result,
    an_activity,
    an_artifact,
    an_inspection,
    an_outline,
)

GOLDEN = Path(__file__).parents[2] / "golden"
UNBOUNDED = Measurement(metric="throughput", value=2.5, interval=Interval(low=-inf, high=inf), runs=(2.5,))


def a_full_result() -> Result:
    """Make a Result in which no part is left out."""
    failure = Failure(where="latency", kind=FailureKind.TIMEOUT, message="It hung.", log="one\ntwo")
    artifacts = (an_artifact("log.txt"), an_artifact("trace.json", keep_until="2027-01-01T00:00:00+00:00"))
    inspection = StaticOptions(
        mode=Mode.TRAIN,
        optimizer="sgd",
        vary={"batch": (1, 8)},
        devices=("a100",),
        memory=24 * 2**30,
        modules=True,
    )
    observation = ProbeOptions(layers=("mlp",), prompts=(32, 128), generated=(8,), trace="trace.json")
    return a_result(
        job=replace(a_job(), inspection=inspection, observation=observation),
        measurements=(*a_result().measurements, UNBOUNDED),
        outline=an_outline(),
        activity=an_activity(),
        failures=(failure,),
        artifacts=artifacts,
    )


def plain(result: Result) -> Any:
    """Encode a Result and decode it as plain JSON."""
    return json.loads(codec.encode(result))


@pytest.mark.parametrize("make", [a_result, a_small_result, a_failed_result, a_full_result, an_inspection])
def test_round_trip(make: Any) -> None:
    """A Result comes back equal."""
    result = make()

    assert codec.decode(codec.encode(result)) == result


def test_text() -> None:
    """A document may be read from text as well as from bytes."""
    assert codec.decode(codec.encode(a_result()).decode()) == a_result()


def test_file(tmp_path: Path) -> None:
    """A Result that was written to a file is read from it."""
    path = tmp_path / "result.json"
    codec.write(path, codec.encode(a_full_result()))

    assert codec.read(path) == a_full_result()


def test_schema_number() -> None:
    """A document has its schema number."""
    assert plain(a_result())["schema"] == SCHEMA == 1


@pytest.mark.parametrize("number", [SCHEMA + 1, 99])
def test_later_schema(number: int) -> None:
    """A document of a later schema is refused, with the advice to upgrade."""
    document = plain(a_result()) | {"schema": number, "unheard": "of"}
    with pytest.raises(UnreadableDocument, match=f"has schema {number}.*upgrade ModelDyno"):
        codec.decode(json.dumps(document))


def test_upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document of an older schema goes through every upgrade up to this one."""
    older = plain(a_result()) | {"schema": SCHEMA - 1}
    older["label"] = older.pop("id")
    monkeypatch.setitem(
        codec.UPGRADES, SCHEMA - 1, lambda document: document | {"id": document["label"], "schema": SCHEMA}
    )

    assert codec.decode(json.dumps(older)) == a_result()


@pytest.mark.parametrize("number", range(1, SCHEMA + 1))
def test_golden(number: int) -> None:
    """Documents of every schema so far stay readable, with unchanged content."""
    assert codec.read(GOLDEN / f"result-schema-{number}.json") == a_full_result()


def test_measurements_say_their_unit() -> None:
    """For readers without the table of metrics; it is not read back, and an unknown metric has none."""
    unknown = Measurement(metric="of-a-plugin-that-is-gone", value=1.0)
    measured = a_full_result()
    result = replace(measured, measurements=(*measured.measurements, unknown))
    document = json.loads(codec.encode(result))
    units = [written.get("unit") for written in document["measurements"]]

    assert units == [*(METRICS[m.metric].unit for m in measured.measurements), None]
    assert {"s", None} <= set(units)
    assert codec.decode(codec.encode(measured)) == measured


def test_golden_is_current() -> None:
    """The document of this schema is what is written today; should that change, the number must."""
    written = json.loads((GOLDEN / f"result-schema-{SCHEMA}.json").read_bytes())

    assert _shape(written) == _shape(plain(a_full_result()))


def _shape(part: Any) -> Any:
    """Return the names and types of a document, without its values."""
    match part:
        case dict():
            return {key: _shape(value) for key, value in part.items()}
        case list():
            return [_shape(item) for item in part]
        case _:
            return type(part).__name__


@pytest.mark.parametrize("make", [a_result, a_small_result, a_failed_result, a_full_result, an_inspection])
def test_json_schema(make: Any) -> None:
    """What is written follows the JSON Schema that is published."""
    validator = jsonschema.Draft202012Validator(codec.schema())

    assert list(validator.iter_errors(plain(make()))) == []


@pytest.mark.parametrize(
    ("part", "value"),
    [("id", 7), ("job", {}), ("measurements", [{"metric": 7, "value": 1}]), ("failures", [{"kind": "bad"}])],
)
def test_json_schema_refuses(part: str, value: object) -> None:
    """What the JSON Schema refuses, reading refuses too."""
    document = plain(a_result()) | {part: value}

    assert not jsonschema.Draft202012Validator(codec.schema()).is_valid(document)
    with pytest.raises(UnreadableDocument):
        codec.decode(json.dumps(document))


def test_json_schema_is_valid() -> None:
    """The JSON Schema is one, and has the number in its title."""
    jsonschema.Draft202012Validator.check_schema(codec.schema())

    assert f"schema {SCHEMA}" in codec.schema()["title"]


def test_certificate() -> None:
    """Samples come with their certificate, for readers in other languages."""
    certificate = plain(a_result())["measurements"][0]["value"]["certificate"]

    assert certificate["n"] == 8
    assert certificate["processes"] == 1
    assert certificate["median"] == 0.00128
    assert certificate["percentiles"]["p99"] is None
    assert certificate["intervals"]["p99"]["high"] is None
    assert certificate["stop"] == "time limit"


def test_certificate_is_not_read() -> None:
    """The certificate is derived from the samples; a false one changes nothing."""
    document = plain(a_result())
    document["measurements"][0]["value"]["certificate"] = {"n": 10**9, "median": "fast"}

    assert codec.decode(json.dumps(document)) == a_result()


def test_samples_are_float64() -> None:
    """Samples are Base64 of little-endian float64, process by process."""
    runs = plain(a_result(samples=[1.0, -2.5]))["measurements"][0]["value"]["runs"]

    assert runs == ["AAAAAAAA8D8AAAAAAAAEwA=="]


def test_unbounded_interval() -> None:
    """An infinite end is null in JSON, and infinite again when read."""
    result = a_result(measurements=(UNBOUNDED,))

    assert plain(result)["measurements"][0]["interval"] == {"low": None, "high": None}
    assert codec.decode(codec.encode(result)) == result


def test_values_that_are_no_numbers() -> None:
    """NaN is null in JSON, and the document stays readable."""
    strange = Measurement(metric="throughput", value=nan, runs=(1.0, nan, inf))
    document = codec.encode(a_result(measurements=(strange,)))

    (read,) = codec.decode(document).measurements

    assert json.loads(document)["measurements"][0]["value"] is None
    assert isinstance(read.value, float)
    assert isnan(read.value)
    assert read.runs[0] == 1.0
    assert list(map(isnan, read.runs)) == [False, True, True]


def test_facts_that_are_no_numbers() -> None:
    """NaN in a fact or a knob is stored as text."""
    result = a_result(environment=Environment(conditions={"load": inf, "steal": nan}))

    assert codec.decode(codec.encode(result)).environment.conditions == {"load": "inf", "steal": "nan"}


def test_name_that_is_no_text() -> None:
    """A file name that is not UTF-8 does not keep a Result from being written."""
    read = codec.decode(codec.encode(a_result(name="m\udcff")))

    assert (read.name, read.job.model.locator) == ("m?", "models/m?.onnx")


def test_a_point_whose_value_is_no_number() -> None:
    """With a NaN total at some size, documents and events stay readable."""
    strange = replace(an_outline(), points=(SizePoint(sizes={"batch": 1}, values={"macs": nan}),))
    document = codec.encode(a_result(outline=strange))
    event = codec.decode_event(codec.encode_event(strange))
    read = codec.decode(document).outline

    assert read is not None
    assert isinstance(event, StaticReport)
    assert isnan(read.points[0].values["macs"])
    assert isnan(event.points[0].values["macs"])
    assert jsonschema.Draft202012Validator(codec.schema()).is_valid(json.loads(document))


def test_a_document_from_before_inspections() -> None:
    """A document that has no outline, and whose Job has no inspection, is read."""
    document = plain(a_result())
    del document["outline"], document["job"]["inspection"]

    assert codec.decode(json.dumps(document)) == a_result()


def test_several_documents_are_an_array() -> None:
    """Each element of the array is a document of its own."""
    results = [a_result(), an_inspection()]
    elements = json.loads(codec.encode_several(results))

    assert [codec.decode(json.dumps(element)) for element in elements] == results


def test_samples_that_are_no_numbers() -> None:
    """Samples that are not finite are refused as damaged."""
    document = codec.encode(a_small_result(measurements=(_latency(b"\xff" * 8),)))
    for samples in ("", "AAAA", "/" * 11 + "="):
        damaged = document.replace(base64.b64encode(b"\xff" * 8), samples.encode())
        with pytest.raises(UnreadableDocument, match="the samples of latency"):
            codec.decode(damaged)


def _latency(run: bytes) -> Measurement:
    return Measurement(metric="latency", value=Distribution(runs=(run,)))


def test_a_metric_that_is_not_installed() -> None:
    """It is read, in the unit that the document names, and written again as it was."""
    document = plain(a_result(measurements=(Measurement(metric="vibes", value=0.25),)))
    assert document["metrics"] == [{"name": "vibes", "unit": "", "better": "neither",
                                    "sentence": "Not installed here.", "spread": False}]  # fmt: skip
    document["metrics"][0] |= {"unit": "1", "better": "higher", "sentence": "Good ones."}

    result = codec.decode(json.dumps(document))

    assert result.measurements[0].row.better is Better.HIGHER
    assert (result["vibes"], result.keys(), "vibes" in result) == (0.25, ("vibes",), True)
    assert "vibes 25.0%" in repr(result)
    written = plain(result)
    assert written | {codec.DIGEST: document[codec.DIGEST]} == document
    assert written[codec.DIGEST] == codec.digest_of(document)
    assert jsonschema.Draft202012Validator(codec.schema()).is_valid(document)


def test_a_description_that_is_none() -> None:
    """What is no row of a table is refused, as all that is damaged."""
    with pytest.raises(UnreadableDocument, match="unit"):
        codec.decode(json.dumps(plain(a_result()) | {"metrics": [{"name": "vibes"}]}))


def test_a_child_is_told_the_metrics_of_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its job; those of plugins it finds by itself."""
    row = MetricRow(
        name="hum", unit="1/s", better=Better.LOWER, sentence="A hum.", family="speed", gate_rank=3
    )
    monkeypatch.setattr(METRICS, "registered", (row,))
    line = codec.encode_job(a_result().job)
    monkeypatch.setattr(METRICS, "registered", ())

    assert codec.decode_job(line) == a_result().job
    assert METRICS.registered == (row,)
    assert METRICS.pop("hum") == row


def test_many_samples() -> None:
    """Very many samples are read in less than 40 times what decoding their Base64 alone takes."""
    source = random.Random(3)
    result = a_result(samples=[source.gauss(1e-3, 1e-5) for _ in range(250_000)])
    document = codec.encode(result)

    assert codec.decode(document) == result
    ratios = [_timed(_decode, document) / _timed(_decode_base64, document) for _ in range(5)]
    assert min(ratios) < 40


def _timed(function: Any, document: bytes) -> float:
    begun = time.perf_counter()
    function(document)
    return time.perf_counter() - begun


def _decode(document: bytes) -> None:
    codec.decode(document)


def _decode_base64(document: bytes) -> None:
    base64.b64decode(json.loads(document)["measurements"][0]["value"]["runs"][0])


JOBS = (
    a_job(),
    Job(model=a_job().model, backend="torch"),
    Job(
        model=a_job().model,
        backend="torch",
        plan=Plan(percentiles=("p99",), pin=(0, 1), timeout=5.0),
        trust=True,
    ),
)


@pytest.mark.parametrize("job", JOBS)
def test_jobs(job: Job) -> None:
    """A Job comes back equal."""
    assert codec.decode_job(codec.encode_job(job)) == job


FULL = a_full_result()
assert FULL.model is not None
EVENTS: tuple[Event, ...] = (
    Loaded(model=FULL.model, inputs=FULL.inputs),
    FULL.environment,
    an_outline(),
    *FULL.measurements,
    an_activity(),
    an_artifact("trace.json"),
    Doubt(code="noise", seen="steal 12 %\nand more", advice="Try again."),
    FULL.failures[0],
    Progressed(stage="latency: steady", runs=3, left=1.5, value=0.001, precision=0.1),
    SecondPassed(load="concurrency 8", second=LiveSecond(at=1.0, answered=9, failed=1, p50=0.01)),
    MeasuringBegan(),
    MeasuringEnded(),
    Refused(error="RequestError", message="No such file."),
    Ended(),
)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events(event: Event) -> None:
    """An event comes back equal, from one line."""
    line = codec.encode_event(event)

    assert b"\n" not in line
    assert codec.decode_event(line) == event


def test_every_event_is_tried() -> None:
    """The list above has every kind of event."""
    assert {type(event).__name__ for event in EVENTS} == set(codec._EVENTS)


def test_events_cut_short() -> None:
    """An event that was cut short anywhere is refused."""
    for event in EVENTS:
        line = codec.encode_event(event)
        for end in range(len(line)):
            with pytest.raises(UnreadableDocument):
                codec.decode_event(line[:end])


@pytest.mark.parametrize(
    "line", [b'["Unknown", {}]', b'["Measurement", {}]', b'["Measurement", []]', b"[]", b"7", b"\xff"]
)
def test_events_of_no_kind(line: bytes) -> None:
    """What is no event is refused."""
    with pytest.raises(UnreadableDocument):
        codec.decode_event(line)


class TestWrite:
    """Files are written whole."""

    def test_replaces(self, tmp_path: Path) -> None:
        """An existing file is replaced, and no temporary file is left."""
        path = tmp_path / "result.json"
        for data in (b"first", b"second"):
            codec.write(path, data)

        assert path.read_bytes() == b"second"
        assert list(tmp_path.iterdir()) == [path]

    def test_through_a_link(self, tmp_path: Path) -> None:
        """A symbolic link stays; its target is replaced."""
        (tmp_path / "link.json").symlink_to("result.json")
        codec.write(tmp_path / "link.json", b"data")

        assert (tmp_path / "link.json").is_symlink()
        assert (tmp_path / "result.json").read_bytes() == b"data"

    def test_device(self) -> None:
        """A device is written to, not replaced."""
        codec.write(Path("/dev/null"), b"data")

        assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)

    def test_permissions(self, tmp_path: Path) -> None:
        """A new file has the default permissions."""
        other = tmp_path / "other"
        other.touch()
        codec.write(tmp_path / "result.json", b"data")

        assert other.stat().st_mode == (tmp_path / "result.json").stat().st_mode

    def test_long_name(self, tmp_path: Path) -> None:
        """A file name of the maximum length works."""
        path = tmp_path / ("é" * 125 + ".json")
        codec.write(path, b"data")

        assert path.read_bytes() == b"data"


def test_the_threads_of_earlier_results_have_the_name_of_today() -> None:
    """So that an earlier baseline with a setting is that of a result of today; other backends keep theirs."""
    document = json.loads(
        codec.encode(replace(a_result(), job=Job(model=a_result().job.model, backend="onnxruntime")))
    )
    document["job"]["config"] = {"intra_threads": 2, "arena": False}

    assert codec.decode(json.dumps(document).encode()).job.config == {"threads": 2, "arena": False}
    document["job"]["backend"] = "mine"
    assert codec.decode(json.dumps(document).encode()).job.config["intra_threads"] == 2
