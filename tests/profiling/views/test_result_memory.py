"""How measured memory and training steps are shown."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base.job.static_options import Mode, StaticOptions
from modeldyno.base.metrics.measurement import Distribution, Measurement, observed_number, pack
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.report.blocks import Notice, Severity, Table
from modeldyno.base.result.static_data import MemoryItem
from modeldyno.base.result.trace_data import Allocation, MemoryTimeline, TraceReport
from modeldyno.profiling import views
from modeldyno.reports import csv, html, markdown, terminal
from modeldyno.testing.reporters import HOSTILE
from modeldyno.testing.sample_results import a_job, a_small_result

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.base.result.result import Result

KIB, MIB = 2**10, 2**20
HELD = (
    MemoryItem(scope="encoder.layer.0.intermediate", role="activations", bytes=30 * MIB),
    MemoryItem(scope="encoder.layer.1.intermediate", role="activations", bytes=30 * MIB),
    MemoryItem(scope="embeddings", role="weights", bytes=20 * MIB),
    MemoryItem(scope="head", role="weights", bytes=5 * MIB),
    MemoryItem(scope="head", role="workspace", bytes=40 * MIB),
    MemoryItem(scope="ids", role="inputs", bytes=KIB),
)
COURSE = MemoryTimeline(
    times=pack([0.0, 0.25, 0.5, 1.0]),
    levels={
        "weights": pack([9e9] * 4),
        "activations": pack([0, 60 * MIB, 60 * MIB, 0]),
        "workspace": pack([0, 0, 40 * MIB, 0]),
    },
)


def steady(seconds: float, n: int = 40) -> Distribution:
    """Make samples near a time."""
    return Distribution.of([seconds * (1 + i % 5 / 1000) for i in range(n)])


def result(*measurements: Measurement, activity: TraceReport | None = None, **job: Any) -> Result:
    """Make a Result of what a probe gave."""
    return a_small_result(measurements=measurements, activity=activity, job=replace(a_job(), **job))


WATCHED = result(
    observed_number("allocated_peak", 100 * MIB),
    Measurement(metric="activation_peak", value=80 * MIB),
    Measurement(metric="weight_bytes", value=25 * MIB),
    observed_number("memory_growth", 0.0),
    activity=TraceReport(course=COURSE, held=HELD, held_in="head"),
)
TRAINED = result(
    Measurement(metric="step_time", value=steady(0.010)),
    Measurement(metric="step_time", value=steady(0.002), scope="forward"),
    Measurement(metric="step_time", value=steady(0.005), scope="backward"),
    observed_number("allocated_peak", 9 * MIB),
    observed_number("allocated_peak", 3 * MIB, scope="forward"),
    observed_number("gradient_bytes", 2 * MIB, scope="measured"),
    observed_number("optimizer_bytes", 4 * MIB, scope="measured"),
    Measurement(metric="gradient_bytes", value=2 * MIB),
    inspection=StaticOptions(mode=Mode.TRAIN, optimizer="sgd"),
)


def rows(document: Result, title: str) -> dict[str, tuple[str, ...]]:
    """Return the rows of the one table of this title by their first cell."""
    (table,) = (b for b in views.blocks(document) if isinstance(b, Table) and b.title.startswith(title))
    return {row[0]: row[1:] for row in table.rows}


def titles(document: Result) -> set[str]:
    """Return the titles of all tables."""
    return {block.title for block in views.blocks(document) if isinstance(block, Table)}


def notes(document: Result) -> list[str]:
    """Return the texts of all side notes."""
    return [b.text for b in views.blocks(document) if isinstance(b, Notice) and b.severity is Severity.NOTE]


def verdict(document: Result) -> str:
    """Return the verdict."""
    return next(b.text for b in views.blocks(document) if isinstance(b, Notice))


def test_what_was_measured_stands_beside_what_was_predicted() -> None:
    """With the share of the prediction that it is."""
    assert rows(WATCHED, "Memory of a call") == {
        "weights": ("25.0 MiB", "25.0 MiB", "100%"),
        "inputs": ("1.00 KiB", "—", "—"),
        "at the peak, in addition": ("100 MiB", "80.0 MiB", "125.0%"),
        "growth per call": ("0 B", "", ""),
    }


def test_the_sentence_names_what_most_of_the_peak_is() -> None:
    """Of what the call itself allocated: modules alike are one, and weights are none of it."""
    assert "at the peak, in head, 60.0% of 100 MiB is output of encoder.layer.0-1.intermediate" in notes(
        WATCHED
    )


def test_the_contents_of_the_peak_are_listed() -> None:
    """With what was there before, the largest first, all else together; shares are those of the sentence."""
    assert rows(WATCHED, "Memory at the measured peak, in head") == {
        "output of encoder.layer.0-1.intermediate": ("60.0 MiB", "60.0%"),
        "workspace of head": ("40.0 MiB", "40.0%"),
        "weights": ("25.0 MiB", "—"),
        "inputs": ("1.00 KiB", "—"),
    }
    many = tuple(MemoryItem(scope=f"part{chr(97 + n)}", role="activations", bytes=MIB) for n in range(9))
    cells = rows(result(activity=TraceReport(held=many)), "Memory at the measured peak")
    assert cells["3 more"] == ("3.00 MiB", "33.3%")


def test_the_course_is_drawn_without_what_is_always_there() -> None:
    """A quarter of the time nothing, then more, then all; the top is the peak."""
    (drawn,) = (note for note in notes(WATCHED) if note.startswith("in use over time"))
    line = drawn.split()[4]
    assert (line[0], line[9], line[20], len(line)) == ("▁", "▅", "█", 32)
    assert drawn.endswith("up to 100 MiB in 1.0 s")


@pytest.mark.parametrize(
    "course",
    [
        None,
        MemoryTimeline(times=b"", levels={}),
        MemoryTimeline(times=pack([0.0]), levels={"activations": pack([5.0])}),
        MemoryTimeline(times=pack([0.0, 1.0]), levels={"weights": pack([5.0, 5.0])}),
        MemoryTimeline(times=pack([0.0, 1.0]), levels={"activations": pack([0.0, 0.0])}),
    ],
)
def test_a_course_without_a_course_is_not_drawn(course: MemoryTimeline | None) -> None:
    """There is nothing to see."""
    document = result(
        observed_number("allocated_peak", 0.0), activity=TraceReport(course=course, held=HELD[2:3])
    )
    assert notes(document) == []


def test_a_step_is_shown_by_its_stages() -> None:
    """Each with its time, its share and what it holds; the verdict says how long a step takes."""
    cells = rows(TRAINED, "A training step")
    assert list(cells) == ["a whole step", "forward", "backward"]
    assert cells["forward"][2:] == ("20.0%", "3.00 MiB")
    assert cells["backward"][2:] == ("50.0%", "—")
    assert "takes 10.0" in verdict(TRAINED)
    assert "for a training step with sgd on onnxruntime" in verdict(TRAINED)
    beside = rows(TRAINED, "Memory of a training step")
    assert beside["gradients of parameters"] == ("2.00 MiB", "2.00 MiB", "100%")
    assert beside["optimiser state"] == ("4.00 MiB", "—", "—")


def test_a_run_that_watched_memory_alone_says_so() -> None:
    """Where the size of the model is known, the verdict is about that."""
    assert "takes 100 MiB at the peak of a call, in addition to weights and inputs." in verdict(WATCHED)
    sized = result(observed_number("allocated_peak", 1.0), Measurement(metric="parameters", value=5))
    assert "has 5 parameters" in verdict(sized)


def test_few_steps_are_told_as_such() -> None:
    """The verdict says about how long, without an interval; peaks that were not asked for have no column."""
    document = result(
        Measurement(metric="step_time", value=steady(0.010, 5)), inspection=StaticOptions(optimizer="none")
    )
    assert "takes about 10.0 ms (median) for a training step without an optimiser" in verdict(document)
    (step,) = rows(document, "A training step").values()
    assert len(step) == 3
    assert step[0].startswith("~10 ms")
    assert views.headline(result(observed_number("step_time", 1.0))) == views.headline(result())


def test_a_device_has_its_reserve_and_the_process_its_own() -> None:
    """Each number by its own name."""
    document = result(
        observed_number("allocated_peak", MIB),
        observed_number("fragmentation", 0.25),
        observed_number("allocator_reserved", 2 * MIB),
        Measurement(metric="process_memory", value=Distribution.of([MIB, 3 * MIB])),
        observed_number("memory_growth", 512.0),
        inspection=StaticOptions(mode=Mode.TRAIN),
    )
    cells = rows(document, "Memory of a training step")
    assert cells["reserved but unused by the allocator"][0] == "25.0%"
    assert cells["reserved by the allocator"][0] == "2.00 MiB"
    assert cells["whole process, above its baseline"][0] == "3.00 MiB"
    assert cells["growth per step"][0] == "512 B"


def test_the_steps_that_were_timed_are_counted() -> None:
    """How many there were, and why no more, stands where it does for calls."""
    document = result(Measurement(metric="step_time", value=steady(0.01)))

    assert rows(document, "How it was measured")["measured"][0].startswith("40 training steps in 1 process")


def test_a_share_is_one_of_the_medians_that_stand_beside_it() -> None:
    """One step that was held up for long does not give its stage all of the time."""
    whole, held_up = [0.010] * 20, [0.004] * 20
    document = result(
        Measurement(metric="step_time", value=Distribution.of([*whole, 9.010])),
        Measurement(metric="step_time", value=Distribution.of([*held_up, 9.004]), scope="optimizer"),
    )

    assert rows(document, "A training step")["optimizer"][-1] == "40.0%"


def test_the_largest_batch_is_told_with_its_limit() -> None:
    """A count, beside the prediction."""
    document = result(
        observed_number("largest_batch", 4096, scope="measured"),
        Measurement(metric="largest_batch", value=4000),
        plan=Plan(memory_limit=2**30),
    )
    assert rows(document, "Memory of a call")["largest batch within 1 GiB"] == ("4,096", "4,000", "102.4%")
    unbound = result(observed_number("largest_batch", 7, scope="measured"))
    assert rows(unbound, "Memory of a call")["largest batch"] == ("7", "—", "—")


def test_the_largest_batch_that_was_predicted_has_its_base() -> None:
    """It stands beside the measured one, and how much memory it was predicted for is said."""
    room = Measurement(metric="largest_batch", value=4000, scope=f"room={3 * 2**30}")
    document = result(
        observed_number("largest_batch", 4096, scope="measured"), room, plan=Plan(memory_limit=4 * 2**30)
    )

    assert rows(document, "Memory of a call")["largest batch within 4 GiB"] == ("4,096", "4,000", "102.4%")
    assert any("predicted for 3.00 GiB, the limit less" in note for note in notes(document))


def test_the_largest_batch_is_the_verdict_where_nothing_was_timed() -> None:
    """It was measured, so nobody says that nothing was; a timed step comes first."""
    most = observed_number("largest_batch", 4096, scope="measured")
    limited = result(most, plan=Plan(memory_limit=2**30))
    trained = result(most, inspection=StaticOptions(mode=Mode.TRAIN))
    timed = result(most, Measurement(metric="step_time", value=steady(0.01)))

    assert "runs with batches of up to 4,096 samples within 1 GiB on onnxruntime." in views.headline(limited)
    assert "makes training steps with batches of up to 4,096 samples" in views.headline(trained)
    assert "for a training step" in views.headline(timed)


def test_training_has_names_for_what_it_holds() -> None:
    """State that was there before is no part of the peak; what no module made is told so."""
    held = (
        MemoryItem(scope="a", role="optimizer", bytes=90),
        MemoryItem(scope="a", role="gradients", bytes=5),
        MemoryItem(scope="b", role="gradients", bytes=5),
        MemoryItem(scope="", role="workspace", bytes=4),
        MemoryItem(scope="", role="new kind", bytes=1),
    )
    document = result(observed_number("allocated_peak", 15.0), activity=TraceReport(held=held))
    assert "at the peak, 66.7% of 15 B is gradients of parameters" in notes(document)
    assert set(rows(document, "Memory at the measured peak")) == {
        "optimiser state", "gradients of parameters", "workspace outside of any module", "new kind",
    }  # fmt: skip


def test_nothing_is_shown_of_what_was_not_measured() -> None:
    """A plain run has none of these tables."""
    assert not any("emory of" in title or "Held" in title or "step" in title for title in titles(result()))


def hostile() -> Iterable[Result]:
    """Names that want to break the page."""
    for text in HOSTILE:
        held = (MemoryItem(scope=text, role="activations", bytes=5), MemoryItem(scope="", role=text, bytes=4))
        yield result(
            observed_number("allocated_peak", 9.0),
            activity=TraceReport(held=held, held_in=text, course=COURSE),
        )


@pytest.mark.parametrize("reporter", [csv, html, markdown, terminal])
def test_hostile_names_are_shown_harmlessly(reporter: Any) -> None:
    """Every format takes them."""
    for document in hostile():
        assert reporter.render(document)


def test_the_largest_allocations_are_a_table_with_their_lives() -> None:
    """In full and on the page, not in brief; what is never freed has no time of its life."""
    made = (
        Allocation(bytes=2**20, scope="", operator="", category="gradients", made=0.001, freed=None),
        Allocation(bytes=2**10, scope="head", operator="aten.mm", category="activations", made=0.001,
                   freed=0.003),
    )  # fmt: skip
    document = result(activity=TraceReport(held=HELD, course=COURSE, allocations=made))
    assert rows(document, "The largest allocations of a ") == {
        "(none)": ("(none)", "gradients", "1.00 MiB", "1.00 ms", "never", ""),
        "head": ("aten.mm", "activations", "1.00 KiB", "1.00 ms", "3.00 ms", "2.00 ms"),
    }
    on_page = [block.title for block in views.page(document) if isinstance(block, Table)]
    assert any(title.startswith("The largest allocations") for title in on_page)
    in_brief = [block.title for block in views.overview(document) if isinstance(block, Table)]
    assert not any(title.startswith("The largest allocations") for title in in_brief)
