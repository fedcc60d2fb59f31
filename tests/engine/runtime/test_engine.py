from __future__ import annotations

import datetime as dt
import itertools
import json
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from tests.support import faulty_models
from tests.support.stand_ins import use_plugin

from modeldyno.base import codec, plugins
from modeldyno.base.errors import RequestError, ServerFailed, Unloadable
from modeldyno.base.job.input_spec import parse_input
from modeldyno.base.job.job import Job
from modeldyno.base.job.knob import configure
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.job.static_options import StaticOptions
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement, observed_number
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.plugins.contract import complete
from modeldyno.base.result.result import FailureKind, Result
from modeldyno.engine.data import outputs
from modeldyno.engine.interfaces.probe import Pass, ProbeContext
from modeldyno.engine.runtime import engine
from modeldyno.engine.runtime.engine import run
from modeldyno.engine.runtime.events import empty_result
from modeldyno.engine.runtime.failures import failure_of
from modeldyno.engine.runtime.inline import run_inline
from modeldyno.engine.runtime.sampling import start_samplers
from modeldyno.profiling.run import run_replicated
from modeldyno.testing import known_latency
from modeldyno.testing.fakes import a_model
from modeldyno.testing.sample_results import an_outline

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.base.result.static_data import StaticReport
    from modeldyno.models.interface import Model

pytestmark = pytest.mark.usefixtures("brief_measurements")
START_SAMPLERS = start_samplers
QUICK = Plan(min_time=0.05, min_runs=5, max_time=2.0, precision=0.5)


def job(locator: str, **changes: object) -> Job:
    settings = {
        "model": ModelRef(scheme="call", locator=locator),
        "backend": "python",
        "probes": ("latency",),
        "plan": QUICK,
        **changes,
    }
    return Job(**settings)  # type: ignore[arg-type]


def test_our_record_agrees_with_that_of_the_ground_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """The samples of a Result are the calls that the callable itself recorded, in order."""
    monkeypatch.setattr(engine, "wait_times", lambda *_: ())  # as it sleeps, it would be called again
    before = len(known_latency.steady.record)
    result = run(job("modeldyno.testing.known_latency:steady"))
    own = known_latency.steady.record[before:]
    measured = result.find("latency")
    assert measured is not None
    assert isinstance(measured.value, Distribution)
    ours = measured.value.samples()
    checks = int(result["checked_calls"] or 0) - 1
    theirs = [ns * 1e-9 for ns in own[-checks - len(ours) : -checks]]
    errors = sorted(mine - true for mine, true in zip(ours, theirs, strict=True))

    # One call was the first, some were looked at in the end, the others warmed up or are samples.
    assert len(own) == 1 + checks + measured.value.warmup_dropped + len(ours)
    assert 0 <= errors[0] <= errors[len(errors) // 2] < 1e-4


def test_a_clock_step_of_an_hour_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wall time that jumps back and forth gives neither negative nor absurd latencies."""
    steps = itertools.cycle((3600.0, -3600.0))
    real_time, real_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: real_time() + next(steps))
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + int(next(steps) * 1e9))
    result = run(job("modeldyno.testing.known_latency:steady"))

    assert (result["latency.min"] or 0) >= 0.002
    assert (result["latency.max"] or 9) < 1
    assert dt.datetime.fromisoformat(result.created).tzinfo is dt.UTC


def test_run_measures_load_time_first_call_and_the_memory_baseline_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """These measurements need no probe."""
    monkeypatch.setattr("modeldyno.engine.runtime.engine.start_samplers", START_SAMPLERS)
    result = run(job("modeldyno.testing.known_latency:steady"))
    measured = {(m.metric, m.scope) for m in result.measurements}

    assert {
        ("load_time", ""),
        ("load_time", "import"),
        ("load_time", "load"),
        ("load_time", "open"),
        ("first_call", ""),
        ("process_memory", "baseline"),
        ("process_memory", ""),
    } <= measured
    assert (result["first_call"] or 0) >= 0.002


def looking(model: Model) -> SimpleNamespace:
    """Return a loader that only inspects."""
    return SimpleNamespace(requires=(), backend="python", load=None, look=lambda *_, **__: model)


def test_a_static_run_opens_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a probe that calls, the backend is not opened and nothing is called."""
    called: list[object] = []
    loader = looking(a_model(value=called.append))
    use_plugin(monkeypatch, "loader", loader)
    result = run(job("modeldyno.testing.known_latency:steady", probes=("static",)))

    assert called == []
    assert result["parameters"] == 6
    assert result.find("first_call") is None


@pytest.mark.slow
def test_an_analysis_of_what_ran_otherwise_is_doubted(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the backend converted the model, a static analysis beside it is doubted; an unasked one always."""
    backend = plugins.backend("python")
    real = backend.open

    @contextmanager
    def converting(model: Model, config: Mapping[str, KnobValue]) -> Iterator[object]:
        with real(model, config) as session:
            session.converted = "bf16"  # type: ignore[misc]  # as torch's sessions have
            yield session

    monkeypatch.setattr(backend, "open", converting)
    codes = [
        {doubt.code for doubt in run(job("modeldyno.testing.known_latency:steady", probes=probes)).doubts}
        for probes in (("static", "latency"), ("latency",))
    ]

    assert ["as-stored" in doubt_codes for doubt_codes in codes] == [True, False]
    assert all("unasked-precision" in doubt_codes for doubt_codes in codes)


def test_what_tells_nothing_is_not_looked_at() -> None:
    """A callable without weights or a graph is refused in a static run."""
    before = len(known_latency.steady.record)
    with pytest.raises(RequestError, match=r"Nothing is known of the code 'known_latency\.steady'"):
        run(job("modeldyno.testing.known_latency:steady", probes=("static",)))

    assert len(known_latency.steady.record) == before


def test_inline_says_that_it_is_not_isolated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in the caller's process gets a doubt, but a static run does not."""
    assert "not-isolated" in {
        d.code for d in run_inline(job("modeldyno.testing.known_latency:steady")).doubts
    }
    loader = looking(a_model())
    use_plugin(monkeypatch, "loader", loader)
    result = run_inline(job("modeldyno.testing.known_latency:steady", probes=("static",)))

    assert (result["parameters"], result.doubts) == (6, ())


FREEZES = """
import gc
from modeldyno.engine.runtime.sampling import steady_collector
for is_frozen in (True, False):
    gc.freeze() if is_frozen else gc.unfreeze()
    with steady_collector():
        assert gc.get_freeze_count() > 0
    assert (gc.get_freeze_count() > 0) is is_frozen
"""


def test_what_the_caller_has_frozen_stays_frozen() -> None:
    """A service that exempts its objects from garbage collection finds them so after a run within it.

    In a process of its own, as all that the tests import would be searched here.
    """
    subprocess.run([sys.executable, "-c", FREEZES], check=True)


def test_a_form_that_the_backend_cannot_run_is_refused() -> None:
    """The message says what the backend runs, and which backends run the model."""
    with pytest.raises(
        RequestError, match=r"of onnx, and call:.* leave `backend` out, or .* it: inspector, .*python\."
    ):
        run(job("modeldyno.testing.known_latency:steady", backend="onnxruntime"))


def test_a_model_that_cannot_be_loaded_is_told_from_a_request_that_cannot_be() -> None:
    """A model that cannot be loaded differs from a request that could be changed."""
    lost = Job(model=ModelRef(scheme="onnx", locator="nowhere.onnx"), backend="onnxruntime")
    loaded = Job(
        model=ModelRef(scheme="call", locator="modeldyno.testing.known_latency:steady"), backend="torch"
    )

    with pytest.raises(Unloadable, match=r"no file nowhere\.onnx"):
        run(lost)
    with pytest.raises(RequestError) as caught:
        run(loaded)
    assert type(caught.value) is RequestError


def test_a_callable_may_return_nothing() -> None:
    """An output without arrays cannot be checked, which is a doubt, not a failure."""
    result = run(job(f"{faulty_models.__file__}:return_nothing"))

    assert result.failures == ()
    assert "unchecked-output" in {d.code for d in result.doubts}


def test_every_payload_is_looked_at() -> None:
    """A model that fails only on its second payload is detected."""
    result = run(
        job(
            f"{faulty_models.__file__}:nan_for_negative",
            inputs=(parse_input("x=scalar:float32:-1..1"),),
        )
    )

    assert FailureKind.INVALID_OUTPUT in {failure.kind for failure in result.failures}


def test_a_first_call_that_fails_is_told_with_what_it_was_given(tmp_path: Path) -> None:
    """The report shows the input shapes of the failed call."""
    (tmp_path / "m.py").write_text("def fail(x): raise ValueError(x.shape)")
    result = run(job(f"{tmp_path}/m.py:fail", inputs=(parse_input("x=2x3:float32"),)))

    assert [failure.where for failure in result.failures] == ["first call"]
    assert [(spec.name, spec.shape, spec.dtype) for spec in result.inputs] == [("x", (2, 3), "float32")]


def test_a_failure_shows_the_line_of_the_model() -> None:
    """The message ends with the file and line of the model's code that raised."""
    failure = failure_of(_raised(), "first call")

    assert failure.message.startswith("ZeroDivisionError: division by zero (test_engine.py:")
    assert "1 / 0" in failure.log


def test_a_failure_within_a_library_shows_the_line_of_the_user() -> None:
    """The message ends with the user's line that called the library, whose line is in the log."""
    try:
        json.loads("no")
    except ValueError as error:
        failure = failure_of(error, "first call")

    assert failure.message.endswith(f"(test_engine.py:{_line_of('json.loads(')})")
    assert failure.log.splitlines()[0].endswith('json.loads("no")')
    assert "decoder.py" in failure.log


def _line_of(text: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, start=1) if line.strip().startswith(text))


def test_a_server_that_fails_is_a_failure_of_the_server() -> None:
    """The message has no line of code, and the server's log is shown."""
    failure = failure_of(ServerFailed("triton ended: no model", "a\nb"), "open")

    assert (failure.kind, failure.message, failure.log) == (
        FailureKind.SERVER,
        "triton ended: no model",
        "a\nb",
    )


DIGITS = ModelRef(scheme="onnx", locator=str(Path(__file__).parents[3] / "examples/digits/digits.onnx"))


def digits_in_batches(size: int, plan: Plan = QUICK) -> Result:
    config = configure(plugins.backend("onnxruntime").knobs, {"batch_size": size})
    return run(
        Job(model=DIGITS, backend="onnxruntime", probes=("static", "latency"), config=config, plan=plan)
    )


def test_what_is_predicted_to_take_far_too_much_memory_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No inputs are made for it, and the analysis stays; up to twice the free memory is tried."""
    needed = digits_in_batches(1).find("memory_peak")
    assert needed is not None
    assert isinstance(needed.value, int | float)
    enough = int(needed.value / 2) + 1
    monkeypatch.setattr("modeldyno.engine.environment.machine.spare_memory", lambda _held: enough)
    assert digits_in_batches(1).find("latency") is not None

    monkeypatch.setattr(engine, "payload_of", None)
    refused = digits_in_batches(10**9)

    assert refused.failure is not None
    assert (refused.failure.kind, refused.failure.where) == (FailureKind.OOM, "inputs")
    assert refused.failure.message.startswith("skipped: it needs an estimated ")
    assert refused.failure.message.endswith(" are free")
    assert refused.find("memory_peak") is not None


def test_the_memory_that_was_allowed_is_what_a_prediction_must_fit() -> None:
    """A limit that was given stands in place of the free memory."""
    refused = digits_in_batches(1000, replace(QUICK, memory_limit=1_000_000))

    assert refused.failure is not None
    assert refused.failure.message.endswith(" and 977 KiB are allowed")


def test_contexts_are_no_lines_of_the_model() -> None:
    """An error of the standard library in a context is shown at the line that enters it."""
    with pytest.raises(RuntimeError, match="didn't yield") as raised:
        contextmanager(lambda: iter(()))().__enter__()

    assert "(test_engine.py:" in failure_of(raised.value, "open").message


def _raised() -> Exception:
    try:
        1 / 0  # noqa: B018
    except ZeroDivisionError as error:
        return error
    raise AssertionError


def test_latency_and_throughput_that_contradict_each_other_are_doubted() -> None:
    """A second pass that was ten times slower than the first is detected."""
    measured = (
        Measurement(metric="latency", value=Distribution.of([0.01, 0.01])),
        observed_number("batch_rate", 10.0),
    )

    def execute(job: Job, *, watch: object) -> Result:
        del watch
        return replace(empty_result(job), measurements=measured)

    result = run_replicated(execute, job("x:y"), watch=lambda _e: None)

    assert [d.code for d in result.doubts] == ["inconsistent"]


@pytest.mark.parametrize(
    ("own", "code", "expected"),
    [
        (0.1, "", ["other-pace"]),
        (0.006, "", []),
        (0.1, "parts-differ", ["parts-differ"]),
        (0.1, "host-times", ["host-times"]),
    ],
)
def test_layers_timed_while_calls_took_another_time_are_doubted(
    own: float, code: str, expected: list[str]
) -> None:
    """Ten times the median call, unless another doubt says that layers do not add up to a call."""
    layers = [
        Measurement(metric="self_time", value=Distribution.of([own] * 40), scope=path) for path in ("", "a")
    ]
    measured = (Measurement(metric="latency", value=Distribution.of([0.01] * 40)), *layers)
    doubts = (Doubt(code=code, seen="it", advice="read it so"),) if code else ()

    def execute(job: Job, *, watch: object) -> Result:
        del watch
        return replace(empty_result(job), measurements=measured, doubts=doubts)

    result = run_replicated(execute, job("x:y"), watch=lambda _e: None)

    assert [d.code for d in result.doubts] == expected
    assert all("200 ms" in d.seen for d in result.doubts if d.code == "other-pace")


@pytest.mark.slow
def test_replication_ends_with_the_first_failure() -> None:
    """A failure is not repeated; the other runs' numbers are kept, with a doubt."""
    good, bad = (
        job("modeldyno.testing.known_latency:steady"),
        job(f"{faulty_models.__file__}:raise_error"),
    )
    jobs = iter((good, bad, good))

    def execute(_job: Job, *, watch: object) -> object:
        del watch
        return run_inline(next(jobs))

    plan = Plan(min_time=0.05, min_runs=5, max_time=2.0, precision=0.5, processes=3)
    result = run_replicated(execute, job("x:y", plan=plan), watch=lambda _e: None)  # type: ignore[arg-type]

    assert len(result.failures) == 1
    assert "process-failed" in {d.code for d in result.doubts}
    assert result.find("latency") is not None


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ValueError("a\nb"), FailureKind.ERROR, "ValueError: a"),
        (MemoryError(), FailureKind.OOM, "MemoryError"),
        (RuntimeError("CUDA out of memory."), FailureKind.OOM, "RuntimeError: CUDA out of memory."),
        (RuntimeError("std::bad_alloc"), FailureKind.OOM, "RuntimeError: std::bad_alloc"),
    ],
)
def test_what_was_raised_is_classified(error: Exception, kind: FailureKind, message: str) -> None:
    """Exceptions are reported by type and first line; messages about memory mean out of memory."""
    failure = failure_of(error, "load")

    assert (failure.kind, failure.message, failure.where) == (kind, message, "load")


def test_an_output_is_examined() -> None:
    """NaN and infinity are faults; minus infinity in a mask is not, nor is an empty output."""
    import numpy as np

    good = {"a": np.ones(3), "ids": np.arange(3), "mask": np.array([0.0, -np.inf])}

    assert list(outputs.describe_faults(good)) == []
    assert list(outputs.describe_faults({})) == []
    assert list(outputs.describe_faults({"a": np.array([1, np.nan])})) == ["output 'a' has 1 NaN of 2 values"]
    assert list(outputs.describe_faults({"a": np.array([1, np.inf])})) == [
        "output 'a' has 1 infinite of 2 values"
    ]


class Bench:
    """A loader, a backend and a probe of a model that is only inspected."""

    requires = ("numpy",)
    tools = ()
    executes = None
    backend = "python"
    needs = None
    pass_ = Pass.SECOND

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.subjects: list[ProbeContext] = []

    def load(self, ref: ModelRef, *, seed: int, trust: bool) -> Model:
        """Record that it was loaded."""
        del ref, seed, trust
        self.loaded.append("load")
        return a_model()

    def measure(self, subject: ProbeContext, plan: Plan) -> Iterator[Measurement | Doubt | StaticReport]:
        """Yield one item of each kind that a probe may yield."""
        del plan
        self.subjects.append(subject)
        yield Measurement(metric="macs", value=7)
        yield an_outline()
        yield Doubt(code="random-weights", seen="s", advice="a")


class Glass(Bench):
    """The same, with a loader that can inspect without loading."""

    def look(self, ref: ModelRef, *, seed: int, trust: bool) -> Model:
        """Record that it was inspected."""
        del ref, seed, trust
        self.loaded.append("look")
        return a_model()


def look_at(bench: Bench, monkeypatch: pytest.MonkeyPatch, **changes: object) -> Result:
    """Run a Job whose only probe is static; its backend needs a package that is not installed."""
    absent = SimpleNamespace(requires=("no_such_package",), knobs=(), accepts=frozenset())
    use_plugin(monkeypatch, "loader", bench)
    use_plugin(monkeypatch, "probe", bench)
    use_plugin(monkeypatch, "backend", absent)
    return run(job("fake", probes=("static",), **changes))


def test_a_model_that_is_not_called_is_only_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are not loaded, the backend's packages not required, and memory not watched."""
    bench = Glass()
    result = look_at(bench, monkeypatch)

    assert bench.loaded == ["look"]
    assert result.failures == ()
    assert [m.metric for m in result.measurements] == ["macs"]
    assert result.outline == an_outline()
    assert [d.code for d in result.doubts] == ["random-weights"]


def test_a_loader_that_cannot_look_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader without `look` loads the model."""
    bench = Bench()

    assert look_at(bench, monkeypatch).outline == an_outline()
    assert bench.loaded == ["load"]


def test_a_probe_is_told_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The subject has the inputs, batch size and inspection of the Job."""
    bench = Bench()
    requested = {
        "inputs": (parse_input("x=8x4"),),
        "config": {"batch_size": 8},
        "inspection": StaticOptions(vary={"batch": (1, 2)}),
    }
    look_at(bench, monkeypatch, **requested)
    (subject,) = bench.subjects

    assert (subject.inputs, subject.batch_size) == (requested["inputs"], 8)
    assert subject.inspection == requested["inspection"]
    assert subject.session is None


def test_an_interrupted_look_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A static run that was interrupted gets the doubt."""
    bench = Bench()
    use_plugin(monkeypatch, "loader", bench)
    use_plugin(monkeypatch, "probe", bench)
    result = run(job("fake", probes=("static",)), interrupted=lambda: True)

    assert "interrupted" in {d.code for d in result.doubts}


class Refusing:
    """A probe that refuses the request."""

    needs = object
    pass_ = Pass.SECOND

    def measure(self, _subject: ProbeContext, _plan: Plan) -> Iterator[Measurement]:
        """Refuse the request."""
        yield from ()
        raise RequestError("There is nothing to see.")


class Talkative(Bench):
    """A probe with many measurements."""

    def measure(self, subject: ProbeContext, plan: Plan) -> Iterator[Measurement | Doubt | StaticReport]:
        """Yield 500 of them."""
        del plan
        self.subjects.append(subject)
        yield from (Measurement(metric="macs", value=n, scope=str(n)) for n in range(500))


def test_many_measurements_of_a_probe_are_passed_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one sees them all; a copy for each would take minutes for some thousand layers."""
    bench, copies = Talkative(), []

    def counting(value: object, **changes: object) -> object:
        copies.append(value)
        return replace(value, **changes)  # type: ignore[type-var]

    monkeypatch.setattr(engine, "replace", counting)
    use_plugin(monkeypatch, "loader", bench)
    use_plugin(monkeypatch, "probe", bench)
    run(job("fake", probes=("static", "again")))

    assert [len(subject.known) for subject in bench.subjects] == [0, 500]
    assert len(copies) < 20


def test_a_late_refusal_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier measurements are kept when a probe refuses; without any, the request is wrong."""
    real_probe = plugins.probe
    refusing = complete("probe", Refusing())
    monkeypatch.setattr(plugins, "probe", lambda name: refusing if name == "refusing" else real_probe(name))

    result = run(job("modeldyno.testing.known_latency:steady", probes=("latency", "refusing")))

    assert result.find("latency") is not None
    (failure,) = result.failures
    assert (failure.where, failure.kind) == ("refusing", FailureKind.ERROR)
    assert failure.message == "There is nothing to see"
    with pytest.raises(RequestError, match="nothing to see"):
        run(job("modeldyno.testing.known_latency:steady", probes=("refusing",)))


def test_what_a_session_was_told_is_kept_with_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configuration files of a server are stored in the document, to be reused."""
    real = plugins.backend("python")

    @contextmanager
    def open_session(model: Model, config: Mapping[str, KnobValue]) -> Iterator[object]:
        with real.open(model, config) as session:
            session.files = (("config.pbtxt", 'name: "m"\n'),)  # type: ignore[misc]
            yield session

    parts = ("requires", "accepts", "knobs", "check")
    fake = SimpleNamespace(open=open_session, **{part: getattr(real, part) for part in parts})
    use_plugin(monkeypatch, "backend", fake)
    result = run(job("modeldyno.testing.known_latency:steady"))

    assert result.failures == ()
    assert [(a.name, a.path, a.text) for a in result.artifacts] == [("config.pbtxt", "", 'name: "m"\n')]
    assert result.artifacts[0].digest.startswith("sha256:")
    assert codec.decode(codec.encode(result)).artifacts == result.artifacts


def test_a_call_that_waits_says_in_which_line() -> None:
    """A sleep in a function that the call makes; one that computes has none."""
    result = run_inline(job(f"{SLEEPY}:work"))
    waits = {m.scope: m.value for m in result.measurements if m.metric == "wait_time"}

    assert [*waits] == ["sleepy_call.py:11"]
    assert isinstance(waits["sleepy_call.py:11"], float)
    assert waits["sleepy_call.py:11"] > 0.015
    computing = run_inline(job(f"{SLEEPY}:compute"))
    assert "wait_time" not in {m.metric for m in computing.measurements}


SLEEPY = str(Path(__file__).parents[2] / "support" / "sleepy_call.py")
