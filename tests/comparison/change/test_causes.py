"""Where a change comes from, part by part."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base.metrics.measurement import Distribution, Measurement, observed_number
from modeldyno.base.metrics.metric import Query
from modeldyno.base.result.static_data import MemoryItem, Module, StaticReport
from modeldyno.base.result.trace_data import EventKind, ExecutedOp, Layer, TraceReport
from modeldyno.comparison.change import causes as comparison_causes
from modeldyno.comparison.change.causes import find_causes
from modeldyno.comparison.change.comparison import CausePart, Change, ChangeVerdict
from modeldyno.testing.sample_results import a_small_result

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result

MS = 1e-3
KINDS = {"": "Net", "fc1": "Linear", "act": "GELU", "fc2": "Linear"}


def watched(kinds: dict[str, str] | None = None, **times: float) -> Result:
    """Make a Result whose modules take so many milliseconds by themselves; ``whole`` is the outermost."""
    named = kinds or {path: kind for path, kind in KINDS.items() if path in times or not path}
    own = {"" if path == "whole" else path: seconds * MS for path, seconds in times.items()}
    return a_small_result(
        activity=TraceReport(layers=tuple(Layer(path=path, kind=kind) for path, kind in named.items())),
        measurements=(
            observed_number("unattributed", 0.1, scope="layers"),
            *(
                Measurement(metric="self_time", value=Distribution.of((seconds,) * 3), scope=path)
                for path, seconds in own.items()
            ),
        ),
    )


def moved(
    query: str, before: float | None, after: float | None, outcome: ChangeVerdict = ChangeVerdict.WORSE
) -> Change:
    """Make a change that is to be explained."""
    return Change(
        query=Query.parse(query),
        baseline=before,
        candidate=after,
        difference=None,
        interval=None,
        outcome=outcome,
    )


SLOWER = moved("latency.p50", 10 * MS, 15 * MS)


def parts(cause_parts: tuple[CausePart, ...]) -> list[tuple[str, str, float]]:
    """Give scope, kind and difference in milliseconds."""
    return [(part.scope, part.kind, round(part.difference / MS, 6)) for part in cause_parts]


def test_the_layer_that_grew_comes_first_and_all_sums_up() -> None:
    """Parts are ranked by what they contribute; what none accounts for is the rest."""
    before = watched(whole=1, fc1=4, act=1, fc2=4)
    after = watched(whole=1, fc1=4.2, act=0.5, fc2=8.5)

    (cause,) = find_causes(before, after, (SLOWER,))

    assert cause.by == "layers"
    assert parts(cause.parts) == [("fc2", "Linear", 4.5), ("fc1", "Linear", 0.2), ("act", "GELU", -0.5)]
    assert sum(part.difference for part in cause.parts) + cause.rest == pytest.approx(5 * MS)
    assert cause.rest == pytest.approx(0.8 * MS)


def test_a_time_that_the_clock_does_not_resolve_is_no_cause() -> None:
    """A layer of half a tick that took no tick before is neither new nor what made the call slower."""

    def counted(whole: float, fc1: float, fc2: float) -> Result:
        result = watched(whole=whole, fc1=fc1, fc2=fc2)
        return replace(
            result,
            measurements=tuple(
                replace(m, value=replace(m.value, clock_resolution=1e-6))
                if isinstance(m.value, Distribution)
                else m
                for m in result.measurements
            ),
        )

    before, after = counted(whole=1, fc1=0.0, fc2=4), counted(whole=1, fc1=0.0005, fc2=4.5)
    (cause,) = find_causes(before, after, (SLOWER,))
    unresolved = next(part for part in cause.parts if part.scope == "fc1") if len(cause.parts) > 1 else None

    assert cause.parts[0].scope == "fc2"
    assert unresolved is None or (unresolved.difference, unresolved.sure, unresolved.changed) == (
        0,
        False,
        False,
    )


def test_of_a_change_to_the_better_the_largest_saving_comes_first() -> None:
    """What contributes to the change is ranked, whichever way it goes."""
    before, after = watched(whole=1, fc1=4, fc2=4), watched(whole=1, fc1=4.5, fc2=1)
    quicker = moved("latency.p50", 9 * MS, 6 * MS, ChangeVerdict.BETTER)

    (cause,) = find_causes(before, after, (quicker,))

    assert [part.scope for part in cause.parts] == ["fc2", "fc1"]


def test_a_new_layer_and_one_that_is_gone_are_named() -> None:
    """One has nothing before, the other nothing now."""
    before = watched({"": "Net", "0": "Linear", "1": "ReLU"}, whole=0, **{"0": 4.0, "1": 1.0})
    after = watched({"": "Net", "0": "Linear", "1": "Norm", "2": "Linear"}, **{"0": 4.0, "1": 3.0, "2": 3.0})

    (cause,) = find_causes(before, after, (SLOWER,))

    assert parts(cause.parts) == [("2", "Linear", 3.0), ("1", "ReLU -> Norm", 2.0)]
    assert cause.parts[0].baseline == 0


def test_a_layer_without_a_successor_is_named_by_its_own_path() -> None:
    """It takes nothing any more."""
    before = watched({"": "Net", "a": "Linear", "b": ""}, a=4, b=2)
    after = watched({"": "Net", "a": "Linear"}, a=4)

    (cause,) = find_causes(before, after, (moved("latency.p50", 6 * MS, 4 * MS, ChangeVerdict.BETTER),))

    assert parts(cause.parts) == [("b", "", -2.0)]


def test_nothing_is_explained_where_nothing_moved_or_nothing_was_watched() -> None:
    """Neither what is the same, nor a module's own metric, nor what has no parts."""
    before, after = watched(fc1=4), watched(fc1=9)

    assert find_causes(before, after, (moved("latency.p50", 1.0, 1.0, ChangeVerdict.SAME),)) == ()
    assert find_causes(before, after, (moved("latency.p50@fc1", 1.0, 2.0),)) == ()
    assert find_causes(before, after, (moved("latency.p99", None, 2.0),)) == ()
    assert find_causes(before, after, (moved("throughput", 1.0, 2.0),)) == ()
    assert find_causes(before, a_small_result(), (SLOWER,)) == ()
    assert find_causes(before, before, (SLOWER,)) == ()


def busy(result: Result, path: str, spread: float) -> Result:
    """Have the calls of a module scattered: its two processes are so far apart."""

    def scattered(measurement: Measurement) -> Measurement:
        if measurement.scope != path or not isinstance(measurement.value, Distribution):
            return measurement
        middle = measurement.value.statistic("p25")
        runs = ([middle * factor] * 40 for factor in (1 - spread, 1 + spread))
        return replace(measurement, value=Distribution.of(*runs))

    return replace(result, measurements=tuple(map(scattered, result.measurements)))


def steady(result: Result) -> Result:
    """Have calls enough for a lower quartile with an interval."""
    return busy(busy(busy(result, "fc1", 0.0), "fc2", 0.0), "act", 0.0)


def test_what_may_be_noise_is_named_behind_what_surely_moved() -> None:
    """A difference within the spread of its own processes contributes nothing for certain."""
    before = busy(steady(watched(fc1=4, fc2=4)), "fc1", 0.5)
    after = busy(steady(watched(fc1=7, fc2=6)), "fc1", 0.5)

    (cause,) = find_causes(before, after, (SLOWER,))

    assert [(part.scope, part.sure) for part in cause.parts] == [("fc2", True), ("fc1", False)]
    span = cause.parts[1].interval
    assert span is not None
    assert (span.low, span.high) == pytest.approx((-2.5 * MS, 8.5 * MS))


def test_what_surely_moved_and_is_next_to_nothing_is_not_named_first() -> None:
    """Though what is named may be noise: it is most of what was seen."""
    before = busy(steady(watched(fc1=4, fc2=4)), "fc1", 0.5)
    after = busy(steady(watched(fc1=7, fc2=4.1)), "fc1", 0.5)

    (cause,) = find_causes(before, after, (SLOWER,))

    assert [part.scope for part in cause.parts] == ["fc1", "fc2"]


def test_a_layer_that_is_not_what_it_was_is_named_before_noise() -> None:
    """It has another output, or is called more often, and noise alone hides by how much it is slower."""
    noisy = [busy(busy(steady(watched(fc1=a, fc2=b)), "fc1", 0.5), "fc2", 0.5) for a, b in ((4, 4), (6, 5))]
    layers = noisy[1].activity.layers if noisy[1].activity else ()
    for change in ({"output": "wider"}, {"calls": 4.0}):
        others = tuple(replace(layer, **change) if layer.path == "fc2" else layer for layer in layers)
        after = replace(noisy[1], activity=TraceReport(layers=others))

        (cause,) = find_causes(noisy[0], after, (SLOWER,))

        assert [(part.scope, part.changed) for part in cause.parts] == [("fc2", True), ("fc1", False)]


def test_an_operator_that_was_split_is_one_part_of_the_module_that_it_was_in() -> None:
    """None of its many pieces is the cause, and all together are."""
    kinds = {"": "graph", "fc.MatMul": "MatMul", "act": "", "act.Gelu": "fused Gelu"}
    pieces = {f"act.Mul_{n}": "Mul" for n in range(1, 9)}
    before = watched(kinds, **{"fc.MatMul": 4, "act.Gelu": 1})
    now = {path: kind for path, kind in kinds.items() if path != "act.Gelu"} | pieces
    after = watched(now, **{"fc.MatMul": 4.6}, **dict.fromkeys(pieces, 0.5))

    (cause,) = find_causes(before, after, (moved("latency.p50", 5 * MS, 8.6 * MS),))

    assert parts(cause.parts) == [("act", "8 new, 1 gone", 3.0), ("fc.MatMul", "MatMul", 0.6)]
    assert cause.rest == pytest.approx(0)


def test_what_was_told_along_with_a_module_is_said_beside_its_class() -> None:
    """A block that is new has its layers in it."""
    before = watched({"": "Net", "fc": "Linear"}, whole=0, fc=1)
    after = watched({"": "Net", "fc": "Linear", "b": "Block", "b.fc": "Linear"}, fc=1, b=1, **{"b.fc": 2.0})

    (cause,) = find_causes(before, after, (SLOWER,))

    assert parts(cause.parts) == [("b", "Block: 1 new", 3.0)]


def test_a_metric_is_explained_once() -> None:
    """Several statistics of it have the same causes."""
    causes = find_causes(watched(fc1=4), watched(fc1=9), (SLOWER, moved("latency.p99", 0.0, 1.0)))

    assert [str(each.query) for each in causes] == ["latency.p50"]


def run_of(*executed: tuple[str, EventKind, float]) -> Result:
    """Make a Result of operators or kernels that take so many milliseconds."""
    return a_small_result(
        activity=TraceReport(
            executed=tuple(
                ExecutedOp(
                    name=name,
                    kind=kind,
                    calls=1,
                    self_time=time * MS,
                    total_time=time * MS,
                    device_time=2 * time * MS,
                )
                for name, kind, time in executed
            )
        )
    )


def test_operators_and_kernels_are_summed_by_name() -> None:
    """Operators by their own time, kernels by that of the device."""
    operator, kernel = EventKind.OPERATOR, EventKind.KERNEL
    before = run_of(("addmm", operator, 1.0), ("gemm", kernel, 1.0))
    after = run_of(
        ("addmm", operator, 1.0), ("addmm", operator, 2.0), ("copy", operator, 1.0), ("gemm", kernel, 2.0)
    )  # fmt: skip

    by_operators, by_kernels = find_causes(before, after, (SLOWER,))

    assert parts(by_operators.parts) == [("addmm", "operator", 2.0), ("copy", "operator", 1.0)]
    assert parts(by_kernels.parts) == [("gemm", "kernel", 2.0)]
    assert (by_operators.by, by_kernels.by) == ("operators", "kernels")


def test_an_operator_below_the_ticks_of_its_clock_is_no_cause() -> None:
    """One of 40 ticks is resolved; one that is short on either side is not."""
    operator = EventKind.OPERATOR

    def ticking(*rows: tuple[str, EventKind, float]) -> Result:
        result = run_of(*rows)
        assert result.activity is not None
        return replace(result, activity=replace(result.activity, tick=MS))

    before = ticking(("Conv", operator, 11.0), ("Gemm", operator, 40.0), ("Add", operator, 3.0))
    after = ticking(("Conv", operator, 7.0), ("Gemm", operator, 50.0), ("Add", operator, 12.0))
    (cause,) = find_causes(before, after, (moved("latency.p50", 60 * MS, 66 * MS),))

    assert parts(cause.parts) == [("Gemm", "operator", 10.0)]


def analysed(kinds: dict[str, str], **costs: float) -> Result:
    """Make a Result whose modules have so many FLOPs, those within them included."""
    return a_small_result(
        outline=StaticReport(modules=tuple(Module(path=path, kind=kind) for path, kind in kinds.items())),
        measurements=tuple(
            Measurement(metric="flops", value=value, scope="" if path == "whole" else path.replace("_", "."))
            for path, value in costs.items()
        ),
    )


def test_counts_are_those_of_a_module_without_its_children() -> None:
    """What a parent holds of its children is not counted twice, though a level between is not known."""
    kinds = {"": "Net", "a": "Block", "a.b": "Mid", "a.b.c": "Linear"}
    before = analysed(kinds, whole=100, a=60, a_b_c=50)
    after = analysed(kinds, whole=140, a=100, a_b_c=90)

    (cause,) = find_causes(before, after, (moved("flops", 100, 140),))

    assert [(part.scope, part.difference) for part in cause.parts] == [("a.b.c", 40)]
    assert cause.rest == 0


def test_a_module_whose_parents_are_not_known_stands_alone() -> None:
    """Nothing is taken from a whole that nobody counted; a whole alone explains nothing."""
    kinds = {"": "Net", "a": "Block"}

    (cause,) = find_causes(analysed(kinds, a=5), analysed(kinds, a=9), (moved("flops", 5, 9),))

    assert [(part.scope, part.difference) for part in cause.parts] == [("a", 4)]
    assert find_causes(analysed(kinds, whole=5), analysed(kinds, whole=9), (moved("flops", 5, 9),)) == ()


def staged(**stages: float) -> Result:
    """Make a Result whose load time has stages."""
    return a_small_result(
        measurements=tuple(
            observed_number("load_time", seconds, scope=name) for name, seconds in stages.items()
        )
    )


def test_the_time_to_load_is_explained_by_its_stages() -> None:
    """Import, load and open."""
    (cause,) = find_causes(
        staged(load=1.0, open=1.0), staged(load=3.0, open=1.0), (moved("load_time", 2.0, 4.0),)
    )

    assert [(part.scope, part.kind, part.difference) for part in cause.parts] == [("load", "stage", 2.0)]
    assert find_causes(staged(), staged(load=3.0), (moved("load_time", 2.0, 4.0),)) == ()


def holding(*held: tuple[str, str, int], predicted: bool = False, **more: Any) -> Result:
    """Make a Result that holds bytes at its peak."""
    items = tuple(MemoryItem(scope=scope, role=role, bytes=size) for scope, role, size in held)
    if predicted:
        return a_small_result(outline=StaticReport(peak=items), **more)
    return a_small_result(activity=TraceReport(held=items), **more)


def test_memory_is_explained_by_what_lies_where() -> None:
    """Of the peak of a call, weights and inputs are no part; of a process, they are."""
    before = holding(("fc", "weights", 100), ("fc", "activations", 10), ("x", "inputs", 5))
    after = holding(("fc", "weights", 300), ("fc", "activations", 40), ("x", "inputs", 5))

    call, process = find_causes(
        before, after, (moved("allocated_peak", 10, 40), moved("process_memory.max", 1000, 1300))
    )

    assert [(part.scope, part.kind, part.difference) for part in call.parts] == [("fc", "activations", 30)]
    assert [part.difference for part in process.parts] == [200, 30]
    assert process.rest == 70


def test_predicted_memory_is_explained_by_what_is_predicted() -> None:
    """By the outline of an analysis, where there is one in both."""
    before = holding(("fc", "weight", 100), ("fc", "activation", 10), predicted=True)
    after = holding(("fc", "weight", 300), ("fc", "activation", 40), predicted=True)
    change = moved("activation_peak", 10, 40)

    (cause,) = find_causes(before, after, (change,))

    assert [(part.kind, part.difference) for part in cause.parts] == [("activation", 30)]
    assert find_causes(before, a_small_result(), (change,)) == ()
    assert find_causes(a_small_result(), after, (moved("allocated_peak", 10, 40),)) == ()


def test_of_very_many_parts_the_largest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order; what the others contribute is in the rest."""
    monkeypatch.setattr(comparison_causes, "MOST", 2)
    before = staged(a=0.0, b=0.0, c=0.0)

    (cause,) = find_causes(before, staged(a=1.0, b=-5.0, c=3.0), (moved("load_time", 0.0, 2.0),))

    assert [part.scope for part in cause.parts] == ["c", "b"]
    assert cause.rest == pytest.approx(4.0)


def of_regions(*executed: ExecutedOp) -> Result:
    """Make a Result of a script whose regions ran these operators."""
    return a_small_result(activity=TraceReport(executed=executed))


def ran(name: str, calls: float, milliseconds: float, *, scope: str = "step") -> ExecutedOp:
    """Make an operator that ran in one call of a region."""
    seconds = milliseconds * MS
    return ExecutedOp(name=name, scope=scope, calls=calls, self_time=seconds, total_time=seconds)


def test_a_change_of_a_region_is_of_the_operators_in_it() -> None:
    """In time or in number, those in the modules of the region among them; other regions do not count."""
    before = of_regions(
        ran("mm", 1, 2.0), ran("add", 1, 1.0, scope="step > Net.a"), ran("mm", 9, 9.0, scope="x")
    )
    after = of_regions(ran("mm", 1, 2.0), ran("add", 3, 3.0, scope="step > Net.a"), ran("cast", 2, 1.0))
    changes = [moved("latency.p50@step", 3 * MS, 6 * MS), moved("operator_calls@step", 2, 6)]
    slower, more = find_causes(before, after, changes)

    assert (slower.by, [(part.scope, round(part.difference / MS, 6)) for part in slower.parts]) == (
        "operators", [("add", 2.0), ("cast", 1.0)],
    )  # fmt: skip
    assert [(part.scope, part.difference) for part in more.parts] == [("add", 2.0), ("cast", 2.0)]


def test_a_region_without_operators_has_no_cause() -> None:
    """Nor has what operators do not add up to, such as memory."""
    before, after = of_regions(ran("mm", 1, 2.0)), of_regions(ran("mm", 2, 4.0))
    slower = moved("latency.p50@step", 2 * MS, 4 * MS)

    assert find_causes(a_small_result(), after, [slower]) == ()
    assert find_causes(before, after, [moved("allocated@step", 10, 20)]) == ()
