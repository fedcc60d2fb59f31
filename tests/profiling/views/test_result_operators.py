"""How operators and needless steps are shown."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modeldyno.base.metrics.measurement import observed_number
from modeldyno.base.report.blocks import Notice, Table
from modeldyno.base.result.result import Artifact
from modeldyno.base.result.trace_data import EventKind, ExecutedOp, RedundancyKind, RedundantOp, TraceReport
from modeldyno.profiling import views
from modeldyno.profiling.views.result.operators import operations, operator_time_clause
from modeldyno.reports import terminal
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result


def row(name: str, self_time: float, scope: str = "", **more: Any) -> ExecutedOp:
    """One call of an operator."""
    return ExecutedOp(name=name, scope=scope, calls=1.0, self_time=self_time, total_time=self_time, **more)


def waste(scope: str, time: float, **more: Any) -> RedundantOp:
    """A needless clone."""
    return RedundantOp(
        **{
            "kind": RedundancyKind.COPY, "name": "Tensor.clone", "scope": scope, "calls": 1.0, "time": time,
            "bytes": 1024.0, "reason": "Tensor.clone copies 2x3 float32; use the original.", **more,
        }
    )  # fmt: skip


EXECUTED = (
    row("aten::addmm", 3e-3, "encoder.layer.0.fc"),
    row("aten::addmm", 3e-3, "encoder.layer.1.fc"),
    row("aten::add", 2e-3, "encoder.layer.0"),
    row("aten::relu", 2e-3),
)


def watched(*executed: ExecutedOp, wastes: tuple[RedundantOp, ...] | None = None, **changes: Any) -> Result:
    """A Result of nothing but what was watched."""
    activity = TraceReport(executed=executed, wastes=wastes)
    return replace(a_result(), measurements=(), doubts=(), activity=activity, **changes)


def tables(result: Result) -> dict[str, Table]:
    """Return the tables by their titles."""
    return {block.title: block for block in operations(result) if isinstance(block, Table)}


def notes(result: Result) -> list[str]:
    """Return the texts of the notices."""
    return [block.text for block in operations(result) if isinstance(block, Notice)]


def test_nothing_is_shown_where_nobody_looked() -> None:
    """A Result without a second pass has no such part, nor words for it."""
    for activity in (None, TraceReport()):
        bare = replace(a_result(), activity=activity)
        assert list(operations(bare)) == []
        assert operator_time_clause(bare) == ""


def test_the_costliest_come_first_by_name_and_by_module() -> None:
    """Calls and times of alike modules are summed up; a share is that of all own times."""
    by_title = tables(watched(*EXECUTED))

    assert by_title["Slowest operators"].rows == (
        ("aten::addmm", "2", "6.00 ms", "60.0%"),
        ("aten::add", "1", "2.00 ms", "20.0%"),
        ("aten::relu", "1", "2.00 ms", "20.0%"),
    )
    assert by_title["Slowest operators by module"].rows == (
        ("encoder.layer.0-1.fc", "aten::addmm", "2", "6.00 ms", "60.0%"),
        ("encoder.layer.0", "aten::add", "1", "2.00 ms", "20.0%"),
        ("(the model itself)", "aten::relu", "1", "2.00 ms", "20.0%"),
    )


def test_a_sentence_leads() -> None:
    """How many operators take how long, which has most of it, and what watching cost."""
    result = watched(*EXECUTED)
    (text,) = notes(result)
    assert text == ("one call runs 4 operators, which take 10.0 ms of operator time; aten::addmm has 60.0%")
    recorded = replace(result, measurements=(observed_number("pass_overhead", 1.25, scope="ops"),))
    assert notes(recorded)[0].endswith("; recording them slowed the call by 25%")
    noisy = replace(result, measurements=(observed_number("pass_overhead", 0.9, scope="ops"),))
    assert notes(noisy)[0].endswith("; recording them did not slow the call measurably")
    assert notes(watched(row("none", 0.0))) == ["one call runs 1 operator"]


def test_it_is_the_verdict_where_nothing_else_was_measured() -> None:
    """A run of this probe alone has a sentence."""
    assert views.headline(watched(*EXECUTED)).endswith(" spends 10.0 ms in 4 operators of a call.")


def test_on_a_device_its_time_counts() -> None:
    """Shares are those of the time on the device, which kernels and operators do not add up to twice."""
    result = watched(
        row("aten::mm", 1e-3, "fc", device_time=8e-3),
        row("aten::copy_", 5e-3, device_time=2e-3),
        row("gemm", 0.0, "fc", device_time=8e-3, kind=EventKind.KERNEL),
        row("Memcpy DtoH", 0.0, device_time=2e-3, kind=EventKind.TRANSFER),
        row("cudaStreamSynchronize", 4e-3, kind=EventKind.SYNCHRONISATION),
        row("my range", 1e-3, "fc", kind=EventKind.RANGE),
    )
    by_title = tables(result)

    assert "take 10.0 ms on the device; aten::mm has 80.0%" in notes(result)[0]
    assert by_title["Slowest operators"].rows[0] == ("aten::mm", "1", "1.00 ms", "8.00 ms", "80.0%")
    assert by_title["Kernels"].rows == (("fc", "gemm", "1", "0 s", "8.00 ms", "100%"),)
    assert by_title["Transfers"].rows == (("Memcpy DtoH", "1", "0 s", "2.00 ms", "100%"),)
    assert by_title["Waits for a device"].rows == (("cudaStreamSynchronize", "1", "4.00 ms", "100%"),)
    assert by_title["Ranges marked in the model's code"].rows == (("fc", "my range", "1", "1.00 ms", "100%"),)


def test_modules_are_left_out_where_there_are_none() -> None:
    """A runtime that names no modules has one table of operators."""
    by_title = tables(watched(row("Conv", 1e-3), row("Relu", 1e-4)))
    assert list(by_title) == ["Slowest operators"]


def test_only_the_costliest_are_shown_and_how_many_there_are() -> None:
    """A long list is cut, and its title says so."""
    many = tuple(row(f"op{n:02}", 1e-3 / (n + 1), f"m{n}") for n in range(20))
    by_title = tables(watched(*many))

    assert list(by_title) == ["Slowest operators, 8 of 20", "Slowest operators by module, 8 of 20"]
    assert [len(table.rows) for table in by_title.values()] == [8, 8]


def test_needless_steps_are_shown_with_their_reason() -> None:
    """Alike ones in alike modules are one row; the costliest comes first, and the title has the sum."""
    cast = waste(
        "head", 5e-3, kind=RedundancyKind.CAST, name="Tensor.float", reason="leave it out.", bytes=0.0
    )
    by_title = tables(watched(wastes=(waste("layer.0", 1e-3), waste("layer.1", 1e-3), cast, waste("", 1e-6))))

    (table,) = by_title.values()
    assert table.title == "Unnecessary copies and waits: 7.00 ms of a call"
    assert table.rows == (
        ("head", "cast, Tensor.float", "1", "5.00 ms", "0 B", "leave it out."),
        ("layer.0-1", "copy, Tensor.clone", "2", "2.00 ms", "2.00 KiB", waste("", 0).reason),
        ("(the model itself)", "copy, Tensor.clone", "1", "1.00 us", "1.00 KiB", waste("", 0).reason),
    )
    many = tuple(waste(f"m{n}", 1e-3, reason=f"reason {chr(97 + n)}.") for n in range(9))
    title = next(iter(tables(watched(wastes=many))))
    assert title == "Unnecessary copies and waits: 9.00 ms of a call, 8 of 9"


def test_that_nothing_is_needless_is_told_where_somebody_looked() -> None:
    """None found is a finding; not looked for is none."""
    sentence = "no unnecessary copies, casts, transfers or waits were found"

    assert notes(watched(*EXECUTED, wastes=()))[1:] == [sentence]
    assert notes(watched(*EXECUTED))[1:] == []


def test_the_trace_is_told_where_it_is() -> None:
    """Only the trace is: other files of a Result are not this part's."""
    files = tuple(
        Artifact(name=name, path=f"/tmp/{name}.json", digest="sha256:0") for name in ("log", "trace")
    )
    texts_shown = notes(watched(*EXECUTED, artifacts=files))
    assert texts_shown[1:] == ["the trace is in /tmp/trace.json; open it at ui.perfetto.dev"]


def test_it_fits_eighty_columns_whatever_it_is_called() -> None:
    """Names from outside are cut and cleaned; a fraction of a call is shown as such."""
    long = "aten::" + "x" * 200
    hostile = "\x1b[31mred\n"
    result = watched(
        replace(row(long, 1e-3, "layer." + "y" * 200), calls=1.5),
        row(hostile, 1e-3, hostile),
        row("k" * 90, 0.0, device_time=1e-3, kind=EventKind.KERNEL),
        wastes=(waste("z" * 200, 1e-3, name=hostile + "n" * 90, reason="r" * 2000),),
    )
    text = terminal.text(operations(result))

    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert " 1.5 " in text
