"""The probe ``layers``: what it makes of a session that can watch its modules."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.devices import DevicePeaks
from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.trace_data import Span, TraceReport
from modeldyno.engine.environment import peaks
from modeldyno.engine.interfaces.probe import ProbeContext
from modeldyno.engine.interfaces.session import HasLayers, Layers, LocalSession
from modeldyno.engine.probes import layers
from modeldyno.engine.runtime.engine import run
from modeldyno.engine.trace.layer_times import HookOverhead
from modeldyno.models.static.graph import Graph, Op, Role, Storage, Tensor
from modeldyno.profiling.request import Request
from modeldyno.testing.fakes import a_model
from modeldyno.testing.known_latency import KnownLatency
from modeldyno.testing.probes import ProbeSuite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from modeldyno.models.interface import Feed, ModuleFilter, Tracing

UNSEEN = Doubt(code="unseen-layers", seen="one is compiled", advice="watch the eager model")


@dataclass
class Watchable(LocalSession):
    """A session whose calls take a millisecond and tell of spans in which all that time is `inner`."""

    inside: float = 0.0
    """Seconds that are told of `inner` beyond its own."""
    lost: bool = False
    events: list[str] = field(default_factory=list)

    def prepare(self, feed: Feed) -> Callable[[], Any]:
        """Spin."""
        del feed
        return KnownLatency(0.001)

    def arrays(self, output: Any) -> Feed:
        """Give nothing."""
        del output
        return {}

    @contextmanager
    def layers(self, feed: Feed, named: ModuleFilter) -> Iterator[Layers]:
        """Tell of a whole and of what is named of two modules in it."""
        spin, made = self.prepare(feed), []
        self.events.append("entered")

        def call() -> None:
            begin = perf_counter()
            spin()
            made.append(perf_counter() - begin)

        def spans(since: int) -> Sequence[Sequence[Span]]:
            return [] if self.lost else [self._spans(seconds, named) for seconds in made[since:]]

        overhead = HookOverhead(inside=self.inside)
        try:
            yield Layers(call=call, spans=spans, overhead=overhead, doubts=(UNSEEN,))
        finally:
            self.events.append("left")

    def _spans(self, seconds: float, named: ModuleFilter) -> list[Span]:
        whole = Span(path="", kind="Net", begin=0, end=seconds + self.inside)
        inner = Span(
            path="block.inner", kind="Linear", begin=0, end=seconds + self.inside, parent=0,
            output="2x4 float32", output_bytes=32,
        )  # fmt: skip
        other = Span(path="norm", kind="Norm", begin=seconds, end=seconds, parent=0)
        return [whole, *(each for each in (inner, other) if named(each.path, each.kind))]


def a_subject(session: Watchable, **changes: Any) -> ProbeContext:
    """Let a session be measured."""
    subject = ProbeContext(
        model=a_model(), session=session, calls=(session.prepare({}),), feeds=({},), samples=1
    )
    return replace(subject, **changes)


PLAN = Plan(min_time=0.02, min_runs=5, max_time=2.0, precision=0.5)


def measure_layers(
    subject: ProbeContext, plan: Plan = PLAN
) -> tuple[dict[tuple[str, str], Measurement], TraceReport | None, list[Doubt]]:
    """Give what the probe gives, sorted."""
    yielded = list(layers.measure(subject, plan))
    measured = {(m.metric, m.scope): m for m in yielded if isinstance(m, Measurement)}
    activity = next((a for a in yielded if isinstance(a, TraceReport)), None)
    return measured, activity, [d for d in yielded if isinstance(d, Doubt)]


class TestLayers(ProbeSuite):
    name = "layers"
    plan = PLAN

    @pytest.fixture
    def subject(self) -> ProbeContext:
        """A session that can be watched."""
        return a_subject(Watchable())


def a_graph(tracing: Tracing) -> Graph:
    """A product of a batch of 2 with a weight of 4 x 4."""
    assert tracing.inputs == ()
    x, weight = Tensor((2, 4), "float32", storage=1), Tensor((4, 4), "float32", storage=0)
    op = Op("aten.mm", {"self": x, "mat2": weight}, (x,), name="product")
    return Graph(ops=(op,), storages=(Storage(64, Role.WEIGHT, -1), Storage(32, Role.INPUT, -1)))


def a_refusal(_tracing: Tracing) -> Graph:
    raise RequestError("No.")


def test_a_node_that_is_no_module_has_what_its_operators_cost() -> None:
    """It is found by what it does of the network, as far as the whole was analysed."""

    class Noded(Watchable):
        def layers(self, feed: Feed, named: ModuleFilter) -> Any:
            @contextmanager
            def watching() -> Iterator[Layers]:
                with Watchable.layers(self, feed, named) as watched:
                    yield replace(watched, origins=lambda: {"norm": ("product",), "block.inner": ("other",)})

            return watching()

    whole = (Measurement(metric="flops", value=64.0),)
    for graph, known, expected in (
        (
            a_graph,
            whole,
            {"macs": 32, "flops": 64, "bytes_read": 96, "bytes_written": 32, "weight_bytes": 64},
        ),
        (a_graph, (), {}),
        (None, whole, {}),
        (a_refusal, whole, {}),
        (a_graph, (*whole, Measurement(metric="flops", value=1.0, scope="norm")), {}),
    ):
        subject = replace(a_subject(Noded(), known=known), model=replace(a_model(), inputs=(), graph=graph))
        numbers, _, _ = measure_layers(subject)
        names = ("macs", "flops", "bytes_read", "bytes_written", "weight_bytes")
        assert {m: numbers[m, "norm"].value for m in names if (m, "norm") in numbers} == expected


def test_each_module_has_its_numbers() -> None:
    """Times as distributions of the same pass, the output, and how the whole pass went."""
    session = Watchable()
    numbers, activity, doubts = measure_layers(a_subject(session))

    assert isinstance(session, HasLayers)
    assert activity is not None
    assert [(layer.path, layer.kind, layer.calls) for layer in activity.layers] == [
        ("", "Net", 1.0), ("block", "", 0.0), ("block.inner", "Linear", 1.0), ("norm", "Norm", 1.0),
    ]  # fmt: skip
    inner = numbers["latency", "block.inner"].value
    assert isinstance(inner, Distribution)
    assert inner.statistic("p50") >= 0.001
    own = numbers["self_time", "block.inner"].value
    assert isinstance(own, Distribution)
    assert own.runs == inner.runs
    assert len(inner) <= layers.MOST
    assert numbers["output_bytes", "block.inner"].value == 32
    assert ("output_bytes", "norm") not in numbers
    assert numbers["pass_overhead", "layers"].value > 0  # type: ignore[operator]  # a number
    assert numbers["unattributed", "layers"].value == 0
    assert UNSEEN in doubts
    assert session.events == ["entered", "left"]


def test_the_latency_of_the_whole_is_left_to_the_timed_pass() -> None:
    """No measurement of this pass takes the place of the one that nobody disturbed."""
    numbers, _, _ = measure_layers(a_subject(Watchable()))

    assert ("latency", "") not in numbers
    assert ("self_time", "") in numbers


def test_the_cost_of_watching_is_taken_off() -> None:
    """A span that is longer by what watching costs is told without it."""
    plain, _, _ = measure_layers(a_subject(Watchable()))
    dear, _, _ = measure_layers(a_subject(Watchable(inside=10.0)))

    values = [numbers["latency", "block.inner"].value for numbers in (plain, dear)]
    assert all(isinstance(value, Distribution) and value.statistic("p50") < 1.0 for value in values)


def test_operations_that_are_known_become_a_rate() -> None:
    """What an analysis has counted of a module is divided by the time that it takes."""
    known = (
        Measurement(metric="flops", value=1000, scope="block.inner"),
        Measurement(metric="flops", value=1, scope="elsewhere"),
    )
    numbers, _, _ = measure_layers(a_subject(Watchable(), known=known))
    inner = numbers["latency", "block.inner"].value

    assert isinstance(inner, Distribution)
    rate = numbers["achieved_flops", "block.inner"].value
    assert rate == pytest.approx(1000 / median(inner.arrays()[0].tolist()))
    assert [scope for metric, scope in numbers if metric == "achieved_flops"] == ["block.inner"]


def test_only_what_is_named_is_watched() -> None:
    """Neither the other modules nor what holds them has a time, and what is left is no doubt."""
    subject = a_subject(Watchable(), observation=ProbeOptions(layers=("norm",)))
    numbers, activity, doubts = measure_layers(subject)

    assert activity is not None
    assert [layer.path for layer in activity.layers] == ["", "norm"]
    assert ("latency", "norm") in numbers
    assert "unattributed" not in {doubt.code for doubt in doubts}


def test_a_lost_profile_is_told() -> None:
    """Where a runtime kept nothing of the watched calls there is a doubt, and no number."""
    numbers, activity, doubts = measure_layers(a_subject(Watchable(lost=True)))

    assert numbers == {}
    assert activity is None
    assert [doubt.code for doubt in doubts] == ["unseen-layers"]


def test_the_session_is_left_when_a_call_fails() -> None:
    """An error goes through, and what was put around the modules is taken off before."""
    session = Watchable()

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(layers.measure(a_subject(session, calls=(fail,)), PLAN))
    assert session.events == ["entered", "left"]


def test_plain_calls_are_those_that_do_not_disturb_the_watched_ones() -> None:
    """Where a session makes plain calls of its own for this pass, those of the timed pass are not made."""

    def forbidden() -> None:
        raise AssertionError("the timed session is not to be called")

    class Apart(Watchable):
        @contextmanager
        def layers(self, feed: Feed, named: ModuleFilter) -> Iterator[Layers]:
            with super().layers(feed, named) as watched:
                yield replace(watched, plain=self.prepare(feed))

    session = Apart()
    numbers, _, _ = measure_layers(a_subject(session, calls=(forbidden,)))

    assert ("latency", "block.inner") in numbers


@pytest.mark.parametrize(("requested", "limited"), [(0, 0), (7, 7), (5000, layers.MOST)])
def test_a_long_warm_up_is_cut_to_the_calls_that_are_kept(requested: int, limited: int) -> None:
    """What a plan asks of the timed pass need not be made here again in full, for this one comes after it."""
    assert layers._limit_plan(Plan(min_warmup=requested), 0.01).min_warmup == limited


def test_plain_and_watched_calls_alternate() -> None:
    """Each pair has one of both, and which is first changes."""
    order: list[str] = []
    draw = layers.interleave_calls(lambda: order.append("plain"), lambda: order.append("watched"))

    assert len(draw(3)) == 3
    assert len(draw(1)) == 1
    assert order == ["watched", "plain", "plain", "watched", "watched", "plain", "plain", "watched"]


def test_asking_for_layers_asks_for_what_they_are_held_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An analysis by module and this machine's peaks come with it, and each layer gets a rate."""
    pytest.importorskip("torch")
    here = DevicePeaks(name="here", flops={"float32": 1e9}, bandwidth=1e9, memory=10**9, source="a test")
    monkeypatch.setattr(peaks, "local_device", lambda _dtype: here)
    (tmp_path / "nets.py").write_text(
        "import torch\n\ndef make():\n"
        "    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()), torch.zeros(2, 4)\n"
    )
    request = Request(
        model=f"torch:{tmp_path}/nets.py:make", settings={"device": "cpu"}, probes=("layers",), plan=PLAN
    )
    job = request.job()

    assert job.probes == ("static", "layers")
    assert job.inspection.modules
    assert job.inspection.devices == ("here",)
    assert replace(request, probes=("latency",)).job().inspection == request.inspection

    result = run(job)

    assert result.failures == ()
    rate, flops = result.ask("achieved_flops@0").value, result["flops@0"]
    assert rate is not None
    assert flops is not None
    assert rate == pytest.approx(flops / (result["latency.p50.raw@0"] or 0), rel=0.5)
    assert result["roofline_latency@here"]
    assert result.activity is not None
    assert [layer.kind for layer in result.activity.layers] == ["Sequential", "Linear", "ReLU"]
    assert result["output_bytes@0"] == 2 * 8 * 4
