"""What is left of spans when the cost of watching is taken off, and where a part stands on the roofline."""

from __future__ import annotations

import pytest

from modeldyno.base.result.trace_data import Layer, Span
from modeldyno.engine.trace.layer_times import (
    Attribution,
    HookOverhead,
    TimedModule,
    attribute_module_times,
    attribution_doubts,
    locate_on_roofline,
    lower_quartile,
    scale_overhead_to_model,
)


def spans(*rows: tuple[str, float, float, int | None]) -> list[Span]:
    """Make spans of (path, begin, end, parent)."""
    return [
        Span(path=path, kind=path.rpartition(".")[2], begin=begin, end=end, parent=parent)
        for path, begin, end, parent in rows
    ]


def by_path(attribution: Attribution) -> dict[str, TimedModule]:
    """Give the parts by their path."""
    return {part.layer.path: part for part in attribution.parts}


PLAIN = spans(("", 0, 10, None), ("a", 1, 7, 0), ("a.b", 2, 4, 1), ("a.c", 5, 6, 1), ("d", 8, 9, 0))


def test_own_time_and_children_add_up_to_their_parent() -> None:
    """Without a cost of watching, a part has what its span has, and its own time is what is left."""
    attribution = attribute_module_times([PLAIN, PLAIN], [10.0, 10.0], HookOverhead())
    parts = by_path(attribution)

    assert list(parts) == ["", "a", "a.b", "a.c", "d"]
    assert [part.times[0] for part in attribution.parts] == [10, 6, 2, 1, 1]
    assert [part.own[1] for part in attribution.parts] == [3, 3, 2, 1, 1]
    assert [attribution.overhead, attribution.missed, attribution.clamped] == [1.0, 0.0, 0.0]
    assert attribution.unattributed == pytest.approx(0.3)


def test_the_cost_of_watching_is_taken_off_every_span_that_it_falls_into() -> None:
    """A call whose true times are known is watched at a known cost; the true times come back."""
    inside, outside = 0.25, 0.5
    # True: c takes 1; b takes 2 and calls c twice; the whole takes 3 and calls b.
    c = 1 + inside
    b = 2 + 2 * (c + outside) - 2 + inside
    watched = spans(
        ("", 0, 3 - 2 + b + outside, None), ("b", 0, b, 0), ("b.c", 0, c, 1), ("b.c", c, 2 * c, 1)
    )
    attribution = attribute_module_times([watched], [3.0], HookOverhead(inside=inside, outside=outside))
    parts = by_path(attribution)

    assert parts[""].times[0] == pytest.approx(3)
    assert parts["b"].times[0] == pytest.approx(2)
    assert parts["b"].own[0] == pytest.approx(0)
    assert parts["b.c"].times[0] == pytest.approx(2)
    assert parts["b.c"].layer.calls == 2
    assert attribution.missed == pytest.approx(0)
    assert attribution.overhead == pytest.approx((1 + b + outside) / 3)


@pytest.mark.parametrize(
    ("more", "spans", "scale"),
    [
        ([9.0], 2, 1.5),
        ([90.0], 2, 2.0),
        ([-5.0], 2, 1.0),
        ([], 2, 1.0),
        ([9.0], 0, 1.0),
        ([4.0, 12.0, 9.0], 2, 1.5),
    ],
)
def test_the_cost_is_scaled_to_what_it_is_in_the_model(more: list[float], spans: int, scale: float) -> None:
    """By the median of pairs of calls, to no less than what it is on its own and no more than twice that."""
    overhead = HookOverhead(inside=1.0, outside=2.0)
    assert scale_overhead_to_model(overhead, more, spans) == HookOverhead(inside=scale, outside=2 * scale)


def test_what_costs_nothing_is_not_scaled() -> None:
    """A backend that cannot measure the cost says that it is nothing."""
    assert scale_overhead_to_model(HookOverhead(), [1.0], 3) == HookOverhead()


def test_a_call_within_a_call_of_the_same_module_counts_once() -> None:
    """A re-entrant module takes what its outer call takes, and its own times add up over all its calls."""
    parts = by_path(
        attribute_module_times(
            [spans(("", 0, 9, None), ("a", 1, 8, 0), ("a", 2, 5, 1))], [9.0], HookOverhead()
        )
    )

    assert list(parts["a"].times) == [7]
    assert list(parts["a"].own) == [7]
    assert parts["a"].layer.calls == 2


def test_what_holds_modules_and_is_never_called_gets_their_sum() -> None:
    """A list of modules is no module that is called, yet has a time, unless only some modules are watched."""
    call = spans(("", 0, 9, None), ("list.0", 1, 3, 0), ("list.0.x", 1, 2, 1), ("list.1", 4, 8, 0))
    attribution = attribute_module_times([call], [9.0], HookOverhead())
    parts = by_path(attribution)

    assert list(parts) == ["", "list", "list.0", "list.0.x", "list.1"]
    assert list(parts["list"].times) == [6]
    assert list(parts["list"].own) == [0]
    assert parts["list"].layer == Layer(path="list", kind="", calls=0.0)
    assert "list" not in by_path(attribute_module_times([call], [9.0], HookOverhead(), containers=False))


def test_a_module_that_is_called_has_no_time_of_another_place() -> None:
    """A part that the whole calls past the module that it lies in does not count for that module."""
    call = spans(("", 0, 9, None), ("a", 1, 3, 0), ("a.head", 4, 8, 0))

    assert list(by_path(attribute_module_times([call], [9.0], HookOverhead()))["a"].times) == [2]


def test_a_module_that_some_calls_leave_out_takes_no_time_in_them() -> None:
    """Every part has a sample of every call."""
    without = spans(("", 0, 4, None))
    parts = by_path(attribute_module_times([without, PLAIN], [4.0, 10.0], HookOverhead()))

    assert list(parts["a"].times) == [0, 6]
    assert parts["a"].layer.calls == 0.5


def test_own_times_below_zero_are_zero_and_told() -> None:
    """Parts that overlap make more than the whole: it becomes their sum, and what was cut off is told."""
    attribution = attribute_module_times(
        [spans(("", 0, 10, None), ("a", 0, 8, 0), ("b", 0, 8, 0))], [10.0], HookOverhead()
    )

    assert list(by_path(attribution)[""].times) == [16]
    assert list(by_path(attribution)[""].own) == [0]
    assert attribution.clamped == pytest.approx(6 / 16)
    assert attribution.missed == pytest.approx(0.6)
    assert [doubt.code for doubt in attribution_doubts(attribution, [10.0], everything=True)] == [
        "parts-differ",
        "overlapping",
    ]


def test_the_output_is_that_of_the_last_call() -> None:
    """Shape and bytes are told as they were last."""
    call = [
        Span(path="", kind="Net", begin=0, end=3),
        Span(path="a", kind="Linear", begin=0, end=1, parent=0, output="1x2 float32", output_bytes=8),
        Span(path="a", kind="Linear", begin=1, end=2, parent=0, output="3x2 float32", output_bytes=24),
    ]
    part = by_path(attribute_module_times([call], [3.0], HookOverhead()))["a"]

    assert part.layer == Layer(path="a", kind="Linear", calls=2.0, output="3x2 float32")
    assert part.output_bytes == 24


def test_time_in_no_module_is_doubted_only_where_all_are_watched() -> None:
    """Who asks for a few modules knows that the rest is elsewhere, as does who was told that none is seen."""
    attribution = attribute_module_times([PLAIN], [10.0], HookOverhead())

    assert [doubt.code for doubt in attribution_doubts(attribution, [10.0], everything=True)] == [
        "unattributed"
    ]
    assert list(attribution_doubts(attribution, [10.0], everything=False)) == []
    alone = attribute_module_times([PLAIN[:1]], [10.0], HookOverhead())
    assert list(attribution_doubts(alone, [10.0], everything=True)) == []


def test_a_part_stands_under_the_lower_roof() -> None:
    """The longer of both bounds holds; where it explains little of the time, neither or the overhead does."""
    compute = locate_on_roofline(2.0, compute=1.0, memory=0.5)
    memory = locate_on_roofline(2.0, compute=0.5, memory=1.5)
    neither = locate_on_roofline(2.0, compute=0.1, memory=0.2)
    overhead = locate_on_roofline(2e-5, compute=1e-6, memory=2e-6)
    many = locate_on_roofline(2e-3, compute=1e-6, memory=2e-6, calls=100)
    beyond = locate_on_roofline(1.0, compute=1.5, memory=0.0)

    assert compute is not None
    assert (compute.bound, compute.share, compute.to_win) == ("compute", 0.5, 1.0)
    assert memory is not None
    assert (memory.bound, memory.share, memory.to_win) == ("memory", 0.75, 0.5)
    assert overhead is not None
    assert overhead.bound == "overhead"
    assert many is not None
    assert many.bound == "overhead"
    assert neither is not None
    assert neither.bound == "neither"
    assert beyond is not None
    assert beyond.to_win == 0
    assert locate_on_roofline(1.0, compute=0.0, memory=0.0) is None
    assert locate_on_roofline(0.0, compute=1.0, memory=0.0) is None


def test_a_difference_is_doubted_where_the_pairs_of_calls_agree() -> None:
    """Noise makes some pairs differ, and the middle one with them; what three in four show is told."""
    call = spans(("", 0, 10, None))
    noisy = attribute_module_times([call] * 8, [8.0, 9.0, 9.0, 9.0, 9.0, 9.9, 10.1, 14.0], HookOverhead())
    steady = attribute_module_times([call] * 8, [8.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 14.0], HookOverhead())
    short = attribute_module_times([call] * 8, [20.0] * 7 + [8.0], HookOverhead())

    assert noisy.missed == pytest.approx(10 / 9 - 1)
    assert [doubt.code for doubt in attribution_doubts(noisy, [9.0], everything=True)] == []
    assert [doubt.code for doubt in attribution_doubts(steady, [9.0], everything=True)] == ["parts-differ"]
    assert [doubt.code for doubt in attribution_doubts(short, [9.0], everything=True)] == ["parts-differ"]
    assert short.surely == pytest.approx(-0.5)
    even = attribute_module_times([call] * 4, [9.0, 9.0, 11.0, 11.0], HookOverhead())
    assert even.surely == 0


def test_small_work_takes_what_it_takes_undisturbed() -> None:
    """Half of the rounds may be disturbed, and do not count."""
    assert lower_quartile([1.0, 50.0, 1.1, 1.05, 70.0, 60.0, 1.02, 90.0]) == 1.05
    assert lower_quartile([2.0]) == 2.0
