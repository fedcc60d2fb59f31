from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.metric import Query
from modeldyno.base.report.blocks import Notice, Severity, Table
from modeldyno.engine.trace.token_metrics import GenerationLength, token_measurements
from modeldyno.profiling.views import ViewOptions, blocks, headline
from modeldyno.profiling.views.result.tokens import generation
from modeldyno.reports import terminal
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result

HOW = Distribution.of([1.0])


def times(extent: GenerationLength, sequences: int, *, first: float = 0.08) -> np.ndarray:
    """Take 80 ms for the first token and 10 ms for each after it, a per cent more or less."""
    made = 0.01 * (1 + 0.01 * np.random.default_rng(2).standard_normal((sequences, extent.generated)))
    made[:, 0] *= first / 0.01
    return made


def a_generation(
    *extents: GenerationLength, sequences: int = 400, more: tuple[Measurement, ...] = ()
) -> Result:
    """Return the Result of a run that generated, and timed no calls."""
    measurements: list[Measurement] = []
    for extent in extents:
        measurements += token_measurements(times(extent, sequences), extent, 1, HOW)
        measurements.append(Measurement(metric="kv_cache_bytes", value=5_000_000, scope=extent.scope))
    return a_result(measurements=(*measurements, *more), doubts=())


def tables(result: Result) -> dict[str, Table]:
    """Return the tables of generation by their titles."""
    return {block.title: block for block in generation(result) if isinstance(block, Table)}


def notes(result: Result) -> dict[str, str]:
    """Return the notes by their codes."""
    return {block.code: block.text for block in generation(result) if isinstance(block, Notice)}


TWO = (GenerationLength(prompt=32, generated=16), GenerationLength(prompt=1024, generated=16))


def test_the_verdict_is_about_tokens_where_no_call_was_timed() -> None:
    """One sentence: the first token, those after it, under which circumstances, and the rate."""
    clause = headline(a_generation(*TWO))

    pattern = (
        r"digits generates its first token after (\S+) ms, then one every (\S+) ms "
        r"\(median; prompt 32, batch 8 on onnxruntime\): (\S+) tokens/s overall\."
    )
    match = re.fullmatch(pattern, clause)
    assert match is not None
    assert [float(text) for text in match.groups()] == pytest.approx([80, 10, 16 / 0.23], rel=0.02)


def test_a_timed_call_keeps_the_verdict() -> None:
    """Beside a latency, the same is said at the head of the tables."""
    latency = next(m for m in a_result().measurements if m.metric == "latency")
    result = a_generation(*TWO, more=(latency,))
    first = next(iter(generation(result)))

    assert " answers in " in headline(result)
    assert isinstance(first, Notice)
    assert first.severity is Severity.NOTE
    assert first.text.startswith("Generates its first token after ")
    assert "" not in notes(a_generation(*TWO))


def test_each_length_is_a_row() -> None:
    """Lengths, medians, rates and the number of sequences stand side by side."""
    table = tables(a_generation(*TWO))["Generated tokens, batch 8: medians"]

    assert [row[:2] for row in table.rows] == [("32", "16"), ("1,024", "16")]
    for row in table.rows:
        to_first, each, slow, decode, whole, count = row[2:]
        assert [float(cell.split()[0]) for cell in (to_first, each, slow)] == pytest.approx(
            [80, 10, 10.2], rel=0.02
        )
        assert float(decode) == pytest.approx(100, rel=0.02)
        assert float(whole) == pytest.approx(16 / 0.23, rel=0.02)
        assert count == "400, converged"


def test_what_is_no_claim_yet_is_marked() -> None:
    """A median of three is about that; a percentile of few gaps, too."""
    result = a_generation(TWO[0], sequences=3)
    (row,) = tables(result)["Generated tokens, batch 8: medians"].rows

    assert row[2].startswith("~")
    assert row[4] == "about 10 ms"
    assert "after about 8" in headline(result)
    assert "then one about every " in headline(result)


def test_a_mean_that_differs_from_its_tokens_is_explained() -> None:
    """Two tokens in fifteen that are held up make the mean of a generation far more than its median token."""
    extent = TWO[0]
    steps = times(extent, 50)
    steps[:, [4, 9]] += 0.1
    held_up = a_result(measurements=tuple(token_measurements(steps, extent, 1, HOW)), doubts=())

    assert notes(held_up)["stalls"].startswith(
        "the mean time per token is 23.3 ms, but most tokens take 10.0 ms"
    )
    assert "stalls" not in notes(a_generation(*TWO))
    assert "stalls" not in notes(a_generation(GenerationLength(prompt=8, generated=1)))


def test_a_single_token_has_no_row_by_place() -> None:
    """Of one token there is the first one only."""
    by_title = tables(a_generation(GenerationLength(prompt=8, generated=1)))
    (row,) = by_title["Generated tokens, batch 8: medians"].rows

    assert len(by_title) == 1
    assert row[3:6] == ("—", "—", "—")
    assert "then" not in headline(a_generation(GenerationLength(prompt=8, generated=1)))


def test_what_reads_no_text_has_its_input_as_prompt() -> None:
    """A model of sound has no length of a prompt."""
    result = a_generation(GenerationLength(prompt=None, generated=16))

    assert {row[0] for table in tables(result).values() for row in table.rows} == {"its input"}
    assert "prompt" not in headline(result)


def test_quarters_tell_how_a_token_depends_on_its_place() -> None:
    """A token that takes longer the later it comes is seen in the row."""
    extent = GenerationLength(prompt=8, generated=17)
    made = times(extent, 60)
    made[:, 1:] += 1e-3 * np.arange(16)
    items = (
        *token_measurements(made, extent, 1, HOW),
        Measurement(metric="kv_cache_bytes", value=4096, scope=extent.scope),
    )
    _, places = tables(a_result(measurements=items)).values()
    (row,) = places.rows

    assert [float(cell.split()[0]) for cell in row[2:6]] == pytest.approx([11.5, 15.5, 19.5, 23.5], rel=0.01)
    assert row[6] == "1.0 ms"
    assert row[7] == "4.00 KiB"


def test_the_cache_stands_beside_its_prediction() -> None:
    """What a token adds is measured, and what was predicted is told with it."""
    growth = Measurement(metric="kv_cache_per_token", value=36_864, scope="measured")
    predicted = Measurement(metric="kv_cache_per_token", value=36_864)

    assert "cache" not in notes(a_generation(*TWO))
    assert (
        notes(a_generation(*TWO, more=(growth,)))["cache"]
        == "each token of a sample adds 36.0 KiB to the cache"
    )
    assert notes(a_generation(*TWO, more=(growth, predicted)))["cache"].endswith("; predicted: 36.0 KiB")


def test_a_cache_that_does_not_grow_is_told_as_such() -> None:
    """A state, or a full window."""
    growth = Measurement(metric="kv_cache_per_token", value=0.0, scope="measured")

    assert notes(a_generation(*TWO, more=(growth,)))["cache"] == "the cache does not grow with the tokens"


def test_the_bound_of_this_machine_shows_what_was_reached() -> None:
    """A token that takes 10 ms where 2.5 ms are the least has a quarter; other devices say nothing."""
    here, other = (
        Measurement(metric="decode_latency", value=0.0025, scope=scope) for scope in ("here", "a100")
    )

    texts_shown = notes(a_generation(*TWO, more=(here,)))["bound"]
    assert "2.50 ms" in texts_shown
    assert "25.0%" in texts_shown
    assert "bound" not in notes(a_generation(*TWO, more=(other,)))
    assert "bound" not in notes(a_generation(GenerationLength(prompt=8, generated=1), more=(here,)))


def test_the_table_of_results_leaves_them_to_these() -> None:
    """They are no rows among the others, unless a bound is about them."""
    result = a_generation(TWO[0])
    query = Query.parse("time_to_first_token.p50@prompt=32,generate=16")
    bound = Constraint(query=query, at_most=True, bound=1.0)
    judgements = (bound.judge(result.measurements),)
    plain, judged = (
        [
            b
            for b in blocks(result, ViewOptions(judgements=judged))
            if isinstance(b, Table) and b.title == "Measured"
        ]
        for judged in ((), judgements)
    )

    assert not plain
    assert any("time_to_first_token.p50" in row[0] for row in judged[0].rows)


def test_a_run_without_generation_has_no_tables_of_it() -> None:
    """Nothing is said of what was not measured."""
    assert not list(generation(a_result()))


@pytest.mark.parametrize("sequences", [3, 400])
def test_eighty_columns_are_enough(sequences: int) -> None:
    """No row of these tables is folded."""
    big: dict[str, Any] = {"sequences": sequences}
    text = terminal.text(generation(a_generation(*TWO, **big)))

    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) == 2 * (2 + len(TWO)) + 1  # titles, heads and rows of two tables, and what parts them
