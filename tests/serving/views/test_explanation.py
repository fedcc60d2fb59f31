"""An explanation as a sentence, a waterfall and tables."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from tests.support.sample_explanations import (
    ALONE,
    LOADED,
    STAMPED_LOADED,
    a_called_result,
    a_served_result,
    a_stamped_result,
    an_explanation,
)

from modeldyno.base import plugins
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Interval
from modeldyno.base.report.blocks import Notice, Table
from modeldyno.base.report.charts import Waterfall
from modeldyno.base.result.result import Failure, FailureKind
from modeldyno.base.views.view_options import ViewOptions
from modeldyno.serving.load.explanation import ECHO, Explanation, RunLevel, TimeEstimate
from modeldyno.serving.views import explanation as explanation_views
from modeldyno.serving.views.explanation import blocks, brief, headline, numbers, page
from modeldyno.testing.sample_results import a_small_result


def text_of(explanation: Explanation, *, verbose: bool = False) -> str:
    """Return what a terminal of 80 columns shows."""
    return str(plugins.terminal().text(blocks(explanation, ViewOptions(verbose=verbose))))


def changed(**stages: float) -> Explanation:
    """Return an explanation of two loads that differ in some stages."""
    before = {RunLevel.LOADED.value: a_served_result(LOADED, 4)}
    now = {RunLevel.LOADED.value: a_served_result({**LOADED, **stages}, 4)}
    return an_explanation(results=now, baseline=before)


def test_the_sentence_names_every_hop_that_matters() -> None:
    """The largest comes first; hops below a hundredth of the whole are left out, rests are summed."""
    assert headline(an_explanation()) == (
        "onnx:models/mini.onnx takes 15.42 ms under load (mean), most of it queue under load (9.0 ms, 58%); "
        "also bound 3.00 ms (the least that the hardware needs), kernels 1.18 ms, framework 780 us, server "
        "compute 200 us, protocol 450 us, "
        "server compute under load 400 us, rest 190 us."
    )


def test_parts_that_do_not_add_up_have_no_largest() -> None:
    """Where the rests are much of the whole, the sentence says what was measured and no more."""
    called = a_called_result(5.0, bound=None, parts=(3.0, 4.5, 7.5))
    text = headline(an_explanation(results={RunLevel.IN_PROCESS.value: called}))

    assert text == (
        "onnx:models/mini.onnx takes 5.00 ms in process (mean); where it goes is not clear: framework "
        "4.50 ms, kernels 3.00 ms, the parts exceed the whole by 2.5 ms."
    )


def test_the_terminal_draws_the_waterfall_within_80_columns() -> None:
    """Each bar begins where the one before ends; sums begin at the left."""
    lines = text_of(an_explanation()).splitlines()
    assert max(map(len, lines)) <= 80
    bound = next(line for line in lines if line.startswith("bound  "))
    kernels = next(line for line in lines if line.startswith("kernels  "))
    whole = next(line for line in lines if line.startswith("= call in process"))
    assert bound.split()[:4] == ["bound", "3.00", "ms", "computed"]
    assert kernels.index("█") >= bound.rindex("█")
    assert whole.index("█") == bound.index("█")


def test_what_is_not_known_is_said_and_not_drawn() -> None:
    """A server without statistics leaves its hops unknown."""
    explanation = an_explanation(
        results={RunLevel.ALONE.value: a_served_result(ALONE, known=False)},
        missing={ECHO: "a running server has the model"},
    )
    text = text_of(explanation, verbose=True)
    assert next(line.split() for line in text.splitlines() if line.startswith("queue  ")) == [
        "queue",
        "unknown",
    ]
    assert "no echo: a running server has the model." in text
    assert "the server reports no statistics" in " ".join(text.split())


def test_details_say_how_each_hop_was_measured() -> None:
    """They are in the page, and in the terminal if asked for."""
    assert "a model that returns the same outputs" not in " ".join(text_of(an_explanation()).split())
    text = " ".join(text_of(an_explanation(), verbose=True).split())
    assert "operations and bytes of the model" in text
    tables = [block for block in page(an_explanation()) if isinstance(block, Table)]
    assert [row[0] for row in tables[0].rows][:3] == ["bound", "kernels", "framework"]


def test_the_rests_are_told_and_whether_they_may_be_zero() -> None:
    """Their share of the whole is in a note."""
    assert "sum: the rests are 1.2% of the whole" in text_of(an_explanation())
    noisy = an_explanation(results={RunLevel.IN_PROCESS.value: a_called_result(4.961)}, statistic="p50")
    assert "within its interval 0: rest in process" in " ".join(text_of(noisy).split())


def test_how_the_stamped_requests_differ_from_all_is_told() -> None:
    """Of each level whose server traced some of them."""
    loaded = a_stamped_result(a_served_result(LOADED, 4), STAMPED_LOADED, untraced=-0.02)
    text = " ".join(text_of(an_explanation(results={RunLevel.LOADED: loaded})).split())
    assert "requests that the server stamped took 20 us more (under load) than all, taken off" in text
    assert "time stamps:" not in text_of(an_explanation())


def test_doubts_and_failures_are_told() -> None:
    """A single one with its sentence; several in a line, and each with its advice by -v."""
    called = replace(a_called_result(), doubts=(Doubt(code="interference", seen="busy", advice="wait"),))
    failed = a_small_result(failures=(Failure(where="load", kind=FailureKind.SERVER, message="it ended"),))
    explanation = an_explanation(
        results={RunLevel.IN_PROCESS.value: called, RunLevel.LOADED.value: failed}, statistic="p50"
    )
    text = text_of(explanation)
    assert "under load: load: it ended." in text
    assert "interference: in process: busy." in text
    twice = replace(called, doubts=called.doubts * 2)
    several = replace(explanation, results={**explanation.results, RunLevel.IN_PROCESS.value: twice})
    assert "trust limited: busy; 1 more: interference; -v explains them" in text_of(several)
    assert text_of(several, verbose=True).count("interference: in process: busy.") == 2
    nothing = an_explanation(results={RunLevel.LOADED.value: failed})
    assert headline(nothing) == "digits: no latency was measured; load: it ended."


def test_a_change_names_the_hops_that_it_is_of() -> None:
    """The largest first, with the share that each has."""
    assert headline(changed(queue=12.6, compute=6.0)) == (
        "onnx:models/mini.onnx, under load: the mean latency rose by 4.0 ms: 3.6 ms of it queue under "
        "load, 400 us of it server compute under load."
    )
    assert "fell by 4.0 ms: -4.0 ms of it queue" in headline(changed(queue=5.0))


def test_no_sure_change_is_said_so() -> None:
    """A change whose interval holds zero is none."""
    assert "has not surely changed" in headline(changed(queue=9.01))
    lost = an_explanation(baseline={RunLevel.LOADED.value: a_small_result()})
    assert headline(lost).endswith("the baseline has no latency.")


def test_a_change_is_a_waterfall_from_the_baseline() -> None:
    """It begins and ends with a whole, and the page has both sides."""
    explanation = changed(queue=13.0)
    (picture,) = [block for block in blocks(explanation) if isinstance(block, Waterfall)]
    assert [picture.steps[0].name, picture.steps[-1].name] == ["= baseline", "= now"]
    assert picture.spans[-2][1] == pytest.approx(picture.spans[-1][1])
    (table,) = [block for block in page(explanation) if isinstance(block, Table)]
    queue = next(row for row in table.rows if row[0] == "queue under load")
    assert queue[1:4] == ("9.0 ms", "13.0 ms", "4.0 ms")
    assert any(row[1] == "change of queue" for row in numbers(explanation).rows)


def test_of_the_slowest_requests_only_what_is_known_is_told() -> None:
    """The client's part is of each request; the stages of a server are of all."""
    text = " ".join(text_of(an_explanation()).split())
    assert "slowest requests" not in text  # 40 requests certify no p99
    slow = an_explanation(results={RunLevel.LOADED.value: a_served_result(LOADED, 4, count=2000)})
    notes = [block.text for block in blocks(slow) if isinstance(block, Notice) and "slowest" in block.code]
    assert "stages are means over requests" in notes[0]
    both = replace(slow, baseline=slow.results)
    notes = [block.text for block in blocks(both) if isinstance(block, Notice) and "slowest" in block.code]
    assert notes[0].startswith("p99 changed by 0 s")


def test_every_number_is_in_the_table() -> None:
    """In base units, with its interval; unknown ones are empty."""
    rows = numbers(an_explanation()).rows
    assert rows[0] == ("in process", "bound", "0.003", "0.003", "0.003")
    unknown = numbers(an_explanation(results={RunLevel.ALONE.value: a_served_result(ALONE)})).rows
    assert ("served alone", "protocol", "", "", "") in unknown


def test_a_list_has_the_latency_and_its_largest_part() -> None:
    """Of a comparison it has the sentence, and of a failure the reason."""
    assert brief(an_explanation()) == "15.42 ms under load, most of it queue under load (9.0 ms)"
    assert brief(changed(queue=13.0)) == headline(changed(queue=13.0))


@pytest.mark.parametrize(
    ("time", "texts"), [
        (TimeEstimate(seconds=0.33, interval=Interval(low=0.32, high=0.34)), ("330 ms", "320 to 340 ms")),
        (TimeEstimate(seconds=-58e-9, interval=Interval(low=-0.04, high=inf)), ("-58 ns", "at least -40 ms")),
        (TimeEstimate(seconds=1e-9, interval=Interval(low=-inf, high=0.04)), ("1.0 ns", "at most 40 ms")),
        (TimeEstimate(seconds=58e-9, interval=Interval(low=-0.04, high=0.02)), ("58 ns", "-40 ms to 20 ms")),
        (TimeEstimate(seconds=0.003, interval=Interval(low=0.003, high=0.003)), ("3.00 ms", "computed")),
    ],
)  # fmt: skip
def test_each_end_of_an_interval_has_the_unit_that_suits_it(
    time: TimeEstimate, texts: tuple[str, str]
) -> None:
    """Ends far from the estimate are not told in its unit."""
    assert explanation_views._texts(time) == texts
