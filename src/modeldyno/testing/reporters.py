"""Test suite that every reporter must pass, and the Results that it renders.

Inherit and name the reporter; pytest does the rest::

    from modeldyno.testing.reporters import ReporterSuite

    class TestMyFormat(ReporterSuite):
        name = "myformat"

The plugin is found by its entry point, as a user's would be.
"""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import pytest

from modeldyno.base import plugins
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Interval, Measurement, observed_number
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.result import Environment, Fact, Failure, FailureKind, Result
from modeldyno.testing.sample_results import a_job, a_result, an_inspection

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.base.metrics.constraints import Judgement
    from modeldyno.reports.interface import Reporter

HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    '=HYPERLINK("http://example.invalid","click")',
    "+1+cmd|' /C calc'!A0",
    "@everyone [click](javascript:alert(1)) `code` | cell | **bold** $x$ ~~no~~",
    "[red]markup[/red] [link=http://example.invalid]x[/link] :smile: [/]",
    "\x1b[31mred\x1b[0m \x1b]8;;http://example.invalid\x07link\x1b]8;;\x07 \x1b[2J \x9b31m",
    "two\nlines\r\nand\ttabs\x00\x07\x08 and \u202ebackwards\u2066",
    "half a character \udcff",
    "]]> --> </style></svg></title> &lt; &#0; {{ 7 * 7 }} %s {0}",
    "a long name " + "x" * 10_000,
    "模型 كشف 🧪 e\u0301",
    "",
)
"""Names that attack a terminal, a spreadsheet, a page, or a layout."""

_ACTIVE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that act on a terminal or on the order of text; tabs and line ends belong to formats."""
_DOTS = (b"\x89PNG", b"%PDF")
"""Beginnings of files that are no text."""


def call_times(count: int = 2400, median: float = 412e-6, spread: float = 0.08) -> list[float]:
    """Return call times of a steady model: most similar, some late, a few very late."""
    rng = random.Random(20)
    times = [median * rng.lognormvariate(0, spread) for _ in range(count)]
    for index in range(7, count, 61):
        times[index] *= 1 + rng.expovariate(3)
    return [round(time, 9) for time in times]


def full_result() -> Result:
    """Return a run with everything in it, doubts included."""
    job = replace(
        a_job(),
        config={"batch_size": 32, "device": "cpu", "threads": 2, "io_binding": False},
        plan=Plan(percentiles=("p99.9",)),
    )
    return a_result(
        name="digits.onnx",
        job=job,
        model=ModelIdentity(name="digits.onnx", digest="sha256:1a2b3c4d5e6f" + "0" * 52, framework="onnx"),
        inputs=(
            InputSpec(name="image", shape=(32, 64), dtype="float32", low=0.0, high=16.0, distinct=16),
            InputSpec(name="scale", shape=(), dtype="int64", source="scale.npz", distinct=1),
        ),
        environment=Environment(
            hardware={
                "processor": "Some(R) Processor 8171M CPU @ 2.60GHz",
                "architecture": "x86_64",
                "cores": 8,
                "cores_allowed": 2,
                "cpu_quota": 2.0,
                "memory": 8 * 2**30,
            },
            software={"python": "3.11.7", "system": "Linux 6.1", "onnxruntime": "1.18.0", "numpy": "1.26.4"},
            conditions={"load_average": 0.25, "governor": "performance", "turbo": False},
        ),
        measurements=_measurements(),
        doubts=(
            Doubt(
                code="few-samples",
                seen="latency.p99.9 lacks 4,236 effective samples (it has 2,400 of 2,400 taken)",
                advice="let it run longer with `max_time`, or read latency.p99.9.raw as a hint only",
            ),
            Doubt(
                code="interference",
                seen="other processes kept 12% of a core busy on the cores that were measured",
                advice="stop them, or give the run cores of its own with `pin`",
            ),
        ),
    )


def _measurements() -> tuple[Measurement, ...]:
    memory = Distribution.of([n * 2.0**18 for n in range(120, 166)], clock="monotonic")
    return (
        Measurement(
            metric="latency",
            value=Distribution.of(call_times(), warmup_dropped=43, warmup_time=0.4, timer_cost=4e-8),
        ),
        Measurement(metric="throughput", value=77612.4, interval=Interval(low=77103.0, high=78190.0)),
        Measurement(metric="batch_rate", value=2425.4, interval=Interval(low=2409.0, high=2443.0)),
        observed_number("load_time", 0.18312),
        observed_number("first_call", 0.0023117),
        observed_number("process_memory", 88.13 * 2**20, scope="baseline"),
        Measurement(metric="process_memory", value=memory),
        observed_number("cpu_utilization", 1.8843),
        observed_number("foreign_cpu", 0.1213),
        observed_number("steal", 0.0),
        observed_number("preemptions", 31.0),
        Measurement(metric="parameters", value=22_713_216),
        Measurement(metric="trainable_parameters", value=0),
        Measurement(metric="buffers", value=512),
        Measurement(metric="weight_bytes", value=90_856_960),
        Measurement(metric="weight_bytes", scope="float32", value=90_852_864),
        Measurement(metric="weight_bytes", scope="int64", value=4096),
        Measurement(metric="file_bytes", value=90_874_112),
    )


def failed_result() -> Result:
    """Return a run in which the model never loaded."""
    log = "Loading weights...\n" + "".join(f"  layer {n}: ok\n" for n in range(30)) + "Killed\n"
    failure = Failure(
        where="load", kind=FailureKind.OOM, message="tried to allocate 2.00 GiB, 1.21 GiB were free", log=log
    )
    return replace(full_result(), model=None, inputs=(), measurements=(), doubts=(), failures=(failure,))


def static_result() -> Result:
    """Return a model that was inspected and not run."""
    metrics = ("parameters", "trainable_parameters", "buffers", "weight_bytes", "file_bytes")
    result = full_result()
    return replace(
        result, doubts=(), measurements=tuple(m for m in result.measurements if m.metric in metrics)
    )


def result_without_measurements() -> Result:
    """Return a run without any measurement."""
    nothing = Environment()
    return replace(full_result(), inputs=(), environment=nothing, measurements=(), doubts=(), model=None)


def uncertified_result() -> Result:
    """Return a run that ended after five calls."""
    latency = Distribution.of(call_times(5), stop="time limit", unmet=("20 samples", "precision 2 %"))
    return replace(full_result(), measurements=(Measurement(metric="latency", value=latency),))


def partly_failed_result() -> Result:
    """Return a run that measured, and then crashed."""
    failure = Failure(where="throughput", kind=FailureKind.CRASH, message="signal 11 (SIGSEGV)")
    return replace(full_result(), failures=(failure,))


def hostile_result(text: str) -> Result:
    """Return a run whose every name and sentence is `text`."""
    result = full_result()
    fact: dict[str, Fact] = {text: text}
    return replace(
        result,
        job=replace(result.job, name=text, backend=text, config={text: text}),
        model=ModelIdentity(name=text, digest=text, framework=text),
        inputs=(InputSpec(name=text, shape=(text, 8), dtype=text, source=text),),
        environment=Environment(hardware=fact, software=fact, conditions=fact),
        measurements=(
            *result.measurements,
            Measurement(metric="buffers", value=1, scope=text),
            Measurement(metric="weight_bytes", value=1, scope=text),
        ),
        doubts=(Doubt(code=text, seen=text, advice=text),),
        failures=(Failure(where=text, kind=FailureKind.ERROR, message=text, log=text),),
    )


DOCUMENTS: dict[str, Callable[[], Result]] = {
    "full": full_result,
    "failed": failed_result,
    "static only": static_result,
    "empty": result_without_measurements,
    "uncertified": uncertified_result,
    "partly failed": partly_failed_result,
    "inspected": an_inspection,
}
"""One Result of each kind, the same on every machine."""


def sample_judgements(document: Result) -> tuple[Judgement, ...]:
    """Judge a measured run: one bound holds, one is broken, one cannot be decided, and one is exact."""
    bounds = ("latency.p99 <= 50ms", "latency.p50 < 400us", "latency.p99.9 <= 1ms", "parameters <= 25M")
    return tuple(Constraint.parse(bound).judge(document.measurements) for bound in bounds)


class ReporterSuite:
    """Inherit and set `name`."""

    name: ClassVar[str]
    """The name of the reporter's entry point."""

    @pytest.fixture
    def reporter(self) -> Reporter:
        """Return the reporter."""
        return plugins.reporter(self.name)

    def test_its_suffix_names_a_kind_of_file(self, reporter: Reporter) -> None:
        """A suffix begins with a dot and goes on in letters and digits."""
        assert re.fullmatch(r"\.[a-z0-9]+", reporter.suffix)

    @pytest.mark.parametrize("kind", DOCUMENTS)
    def test_it_renders_every_kind_of_result(self, reporter: Reporter, kind: str) -> None:
        """Whatever a run gave, something is written."""
        assert _text(reporter, DOCUMENTS[kind]()).strip()

    @pytest.mark.parametrize("kind", DOCUMENTS)
    def test_it_is_deterministic(self, reporter: Reporter, kind: str) -> None:
        """The same Result gives the same bytes."""
        assert reporter.render(DOCUMENTS[kind]()) == reporter.render(DOCUMENTS[kind]())

    def test_it_takes_judgements(self, reporter: Reporter) -> None:
        """Bounds that were judged do not stop it from writing."""
        document = full_result()
        assert reporter.render(document, judgements=sample_judgements(document))

    @pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
    def test_names_do_not_act(self, reporter: Reporter, text: str) -> None:
        """Names come out as text that can be written and that moves no cursor."""
        assert not _ACTIVE.search(_text(reporter, hostile_result(text)))

    def test_numbers_may_be_extreme(self, reporter: Reporter) -> None:
        """Numbers that are zero, tiny, huge or not finite are written as well."""
        extremes = (0.0, 5e-324, 1e-12, 1e300, math.inf, math.nan)
        measurements = tuple(
            Measurement(metric=metric, value=value, scope=str(value))
            for metric in ("throughput", "weight_bytes", "parameters", "load_time", "cpu_utilization")
            for value in extremes
        )
        constant = Measurement(metric="latency", value=Distribution.of([1e-3] * 50))
        assert _text(reporter, replace(full_result(), measurements=(*measurements, constant)))


def _text(reporter: Reporter, document: Result) -> str:
    """Render as text; in a picture made of dots there are no characters that act."""
    written = reporter.render(document)
    if isinstance(written, bytes) and written.startswith(_DOTS):
        return f"{len(written)} bytes"
    text = written.decode("utf-8") if isinstance(written, bytes) else written
    text.encode("utf-8")
    return text
