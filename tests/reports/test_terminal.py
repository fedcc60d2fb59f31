from __future__ import annotations

import io
import re
import shlex
import subprocess
from dataclasses import replace
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from modeldyno.base.report.blocks import Align, Column, Heading, Notice, Severity, Table, make_table
from modeldyno.base.report.charts import (
    AxisScale,
    Bins,
    Effect,
    Forest,
    Plot,
    ReferenceLine,
    Series,
    Waterfall,
    WaterfallStep,
)
from modeldyno.profiling import views
from modeldyno.reports import terminal
from modeldyno.testing.reporters import DOCUMENTS, HOSTILE, full_result, hostile_result, sample_judgements

WORDS = st.lists(st.text(st.sampled_from("ab1.模é\u0301 "), max_size=30), max_size=4)


@pytest.mark.parametrize("kind", DOCUMENTS)
@pytest.mark.parametrize("width", [20, 30, 45, 60, 72, 80, 120])
def test_no_line_is_wider_than_the_terminal(kind: str, width: int) -> None:
    """Every line fits, however narrow the terminal."""
    text = terminal.text(views.blocks(DOCUMENTS[kind]()), width=width)

    assert max(map(terminal.display_width, text.splitlines())) <= width


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("width", [40, 80])
def test_names_break_no_layout(text: str, width: int) -> None:
    """Names without end, or of wide characters, are cut to fit."""
    lines = terminal.text(views.blocks(hostile_result(text)), width=width).splitlines()

    assert max(map(terminal.display_width, lines)) <= width


def test_numbers_stay_whole() -> None:
    """At 60 columns each value stands on one line with its unit, and so does its interval."""
    text = terminal.text(views.blocks(full_result()), width=60)

    assert re.search(r"^latency\.p50 +413 us +411 to 415 us$", text, re.MULTILINE)
    assert not re.search(r"^ *(us|ms|MiB|GiB)\b", text, re.MULTILINE)


def test_columns_of_numbers_end_together() -> None:
    """Values are aligned to the right."""
    rows = terminal.render(full_result()).splitlines()
    header = next(row for row in rows if row.startswith("metric"))
    ends = {
        re.match(r"\S+ +(?:\S+(?: \w+)?)", row).end()  # type: ignore[union-attr]
        for row in rows
        if row.startswith(("latency.p5", "latency.mean", "load_time"))
    }

    assert ends == {header.index("value") + len("value")}


LONG_CHANGE = """metric                   digits (1)  digits (2)  change                verdict
latency.p50                 33.5 us     41.6 us  +24.3%                undecided
                                                 (-37.8 to +148%)
time_to_first_token.p99     12.3 ms     13.3 ms  +912%                 undecided
                                                 (-98.7 to +12,345%)
"""


def test_a_verdict_stays_beside_its_row() -> None:
    """A long change is wrapped before its interval; a short last column needs no line of its own."""
    left, right = Align.LEFT, Align.RIGHT
    titles = {"metric": left, "digits (1)": right, "digits (2)": right, "change": left, "verdict": left}
    rows = (
        ("latency.p50", "33.5 us", "41.6 us", "+24.3% (-37.8 to +148%)", "undecided"),
        ("time_to_first_token.p99", "12.3 ms", "13.3 ms", "+912% (-98.7 to +12,345%)", "undecided"),
    )
    columns = tuple(Column(title=title, align=align) for title, align in titles.items())

    assert terminal.text([Table(title="", columns=columns, rows=rows)], width=80) == LONG_CHANGE


def console(*, encoding: str = "utf-8", width: int = 80, **how: bool | str) -> tuple[Console, io.BytesIO]:
    """Make a console that writes to memory."""
    written = io.BytesIO()
    file = io.TextIOWrapper(written, encoding=encoding, write_through=True)
    return Console(file=file, width=width, **how), written  # type: ignore[arg-type]


class TestDraw:
    def test_a_pipe_gets_no_colour(self) -> None:
        """What is no terminal gets the same plain text as a file."""
        target, written = console()
        document = full_result()
        terminal.print_blocks(
            views.blocks(document, views.ViewOptions(judgements=sample_judgements(document))), console=target
        )

        assert written.getvalue().decode() == terminal.render(
            document, judgements=sample_judgements(document)
        )

    def test_a_terminal_gets_colour(self) -> None:
        """A terminal gets the same text, with colours."""
        target, written = console(force_terminal=True, color_system="standard")
        document = full_result()
        terminal.print_blocks(
            views.blocks(document, views.ViewOptions(judgements=sample_judgements(document))), console=target
        )
        drawn = written.getvalue().decode()

        assert "\x1b[1;31m✗ \x1b[0m" in drawn
        assert re.sub(r"\x1b\[[\d;]*m", "", drawn) == terminal.render(
            document, judgements=sample_judgements(document)
        )

    @pytest.mark.parametrize(
        ("outcome", "code"),
        [(Severity.HELD, "1;32"), (Severity.BROKEN, "1;31"), (Severity.UNDECIDED, "1;33"), (None, "1")],
    )
    def test_a_verdict_has_the_colour_of_what_it_amounts_to(
        self, outcome: Severity | None, code: str
    ) -> None:
        """Green for good, red for bad, yellow where it is open; only bold where it states figures."""
        target, written = console(force_terminal=True, color_system="standard")
        verdict = Notice(severity=Severity.VERDICT, text="so it is", outcome=outcome)
        terminal.print_blocks([verdict], console=target)

        assert f"\x1b[{code}mso it is\x1b[0m" in written.getvalue().decode()

    def test_verdicts_of_rows_are_coloured_and_figures_are_plain(self) -> None:
        """The word that decides is found at once; a verdict is never dim."""
        target, written = console(force_terminal=True, color_system="standard")
        rows = [
            ("latency.p50", "1 ms", "worse"),
            ("throughput", "9 /s", "better"),
            ("memory", "2 MiB", "same"),
        ]
        terminal.print_blocks([make_table("", ("metric", "value>", "verdict"), rows)], console=target)
        drawn = written.getvalue().decode()

        assert "\x1b[1;31mworse" in drawn
        assert "\x1b[32mbetter" in drawn
        assert " 1 ms  \x1b" in drawn

    def test_no_color_is_respected(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """NO_COLOR leaves weight and takes the colours away."""
        monkeypatch.setenv("NO_COLOR", "1")
        target, written = console(force_terminal=True)
        terminal.print_blocks(views.blocks(full_result()), console=target)

        assert not re.search(rb"\x1b\[[\d;]*3[0-7]m", written.getvalue())

    def test_an_ascii_terminal_gets_ascii(self) -> None:
        """Where the encoding is not UTF-8, signs and bars are drawn in ASCII."""
        target, written = console(encoding="latin-1")
        terminal.print_blocks(views.blocks(hostile_result("模型")), console=target)
        drawn = written.getvalue().decode("ascii")

        assert "x ??: error: ??" in drawn
        assert re.search(r"400 us #{20,} 565  p50", drawn)

    def test_a_plot_of_few_loads_is_drawn(self) -> None:
        """A row for each load: marks with intervals, a bound as a line, hollow where it breaks."""
        plot = Plot(
            title="Latency by load",
            x=AxisScale(label="concurrency"),
            y=AxisScale(label="latency", unit="s", logarithmic_from=10),
            series=(
                Series(name="p50", x=(1.0, 32.0), y=(0.004, 0.04), low=(0.003, nan), high=(0.005, inf)),
                Series(name="p99", x=(1.0, 32.0), y=(0.02, 0.07), hollow=(1,)),
            ),
            rules=(ReferenceLine(name="p99 <= 50 ms", at=0.05),),
            note="n",
        )
        title, key, one, other, axis, note = terminal.text([plot]).splitlines()

        assert (title, note) == ("Latency by load", "n")
        assert key == "latency (ms): ● p50 ▲ p99 ┊ p99 <= 50 ms"
        assert re.fullmatch(r" +1  +─+●─+ +▲ +┊", one)
        assert re.fullmatch(r" +32  +● *┊ *△", other)
        assert axis.split() == ["concurrency", "5", "10", "20", "50"]
        assert one.index("┊") == other.index("┊")

    def test_a_bound_beyond_the_edge_of_a_plot_is_an_arrow(self) -> None:
        """Its name stands above the plot with the direction in which it lies; nothing is squeezed for it."""
        line = Series(name="p50", x=(1.0, 2.0), y=(0.004, 0.006))
        plot = Plot(
            title="t",
            x=AxisScale(label="n"),
            y=AxisScale(label="latency", unit="s"),
            series=(line,),
            rules=(ReferenceLine(name="far", at=9.0), ReferenceLine(name="near zero", at=-1.0)),
        )

        assert "→ far" in terminal.text([plot])
        assert "← near zero" in terminal.text([plot])
        assert "┊" not in terminal.text([plot])

    @pytest.mark.parametrize("change", ["many", "narrow", "stacked", "vertical", "series", "one"])
    def test_another_plot_is_told_in_words(self, change: str) -> None:
        """Of many places, of one, in a narrow window, of areas, with vertical lines, or of many lines."""
        line = Series(name="p50", x=(1.0, 2.0), y=(4.0, 6.0))
        scale = AxisScale(label="n")
        plot = Plot(title="t", x=scale, y=scale, series=(line,))
        places = tuple(map(float, range(17)))
        changed = {
            "many": replace(plot, series=(Series(name="p50", x=places, y=places),)),
            "narrow": plot,
            "stacked": replace(plot, stacked=True),
            "vertical": replace(plot, rules=(ReferenceLine(name="knee", at=1.0, vertical=True),)),
            "series": replace(plot, series=(line,) * 5),
            "one": replace(plot, series=(Series(name="p50", x=(1.0,), y=(4.0,)),)),
        }[change]
        text = terminal.text([changed], width=24 if change == "narrow" else 80)

        assert " ".join(text.split()).startswith(("t Plot of n", "t Areas of n"))

    @pytest.mark.parametrize("text", HOSTILE[:6], ids=range(6))
    def test_markup_in_names_is_text(self, text: str) -> None:
        """Names are printed and never read as markup, emoji codes or links."""
        target, written = console(force_terminal=True, color_system="standard")
        terminal.print_blocks(views.blocks(hostile_result(text)), console=target)
        plain = re.sub(r"\x1b\[[\d;]*m", "", written.getvalue().decode())

        assert plain == terminal.render(hostile_result(text))


class TestWrap:
    @given(WORDS, st.integers(min_value=2, max_value=20))
    def test_lines_fit_and_lose_nothing(self, words: list[str], width: int) -> None:
        """Lines fit the width and hold all that is not a space, in order."""
        text = " ".join(words)
        lines = terminal.wrap(text, width)

        assert max(map(terminal.display_width, lines)) <= width
        assert re.sub(r"\s", "", "".join(lines)) == re.sub(r"\s", "", text)

    def test_quantities_stay_together(self) -> None:
        """A line does not end between a number and its unit."""
        assert terminal.wrap("it took 412.5 us", 14) == ["it took", "412.5 us"]

    def test_names_are_cut_at_their_joints(self) -> None:
        """A name that is longer than a line is cut behind a dot, an underscore or an at sign."""
        assert terminal.wrap("process_memory@baseline", 16) == ["process_memory@", "baseline"]
        assert terminal.wrap("a.bcdefghijklmnop", 8) == ["a.bcdefg", "hijklmno", "p"]

    def test_spaces_can_be_kept(self) -> None:
        """Lines of a log keep their indentation."""
        assert terminal.wrap("    a  b", 6, keep=True) == ["    a ", " b"]


class TestTables:
    def test_a_table_without_a_title_begins_with_its_header(self) -> None:
        """No empty line stands for a missing title."""
        table = Table(
            title="", columns=(Column(title="id"), Column(title="n", align=Align.RIGHT)), rows=(("a", "1"),)
        )

        assert terminal.text([table]) == "id  n\na   1\n"

    def test_an_empty_table_is_its_header(self) -> None:
        """A table without rows shows what its columns would be."""
        table = Table(title="", columns=(Column(title="id"), Column(title="name")), rows=())

        assert terminal.text([table]) == "id  name\n"

    def test_spare_columns_give_way_one_after_the_other(self) -> None:
        """As few as need be, in the order in which the table names them."""
        columns = tuple(Column(title=title) for title in ("a name", "first one", "middle", "the last"))
        table = Table(title="", columns=columns, rows=(("a", "1", "2", "3"),), spare=("middle", "first one"))
        headers = [terminal.text([table], width=width).splitlines()[0] for width in (40, 30, 20)]

        assert headers == [
            "a name  first one  middle  the last",
            "a name  first one  the last",
            "a name  the last",
        ]

    def test_a_few_wide_rows_become_columns(self) -> None:
        """Where the columns do not fit and the rows as columns do, the table is turned."""
        columns = (
            Column(title="load", align=Align.RIGHT),
            *(Column(title=f"metric {number}", align=Align.RIGHT) for number in range(4)),
        )
        table = Table(
            title="", columns=columns, rows=(("1", "5", "66", "7", "8"), ("16", "500", "6", "7", "8"))
        )

        assert terminal.text([table], width=30).splitlines() == [
            "load       1   16",
            "metric 0   5  500",
            "metric 1  66    6",
            "metric 2   7    7",
            "metric 3   8    8",
        ]

    def test_a_last_number_keeps_its_title(self) -> None:
        """Only a remark goes below its row; a number there said of nothing what it was."""
        titles = "concurrency", "requests/s", "compute time", "client CPU"
        columns = tuple(Column(title=title, align=Align.RIGHT) for title in titles)
        rows = ("1", "140/s", "5 ms", "0.03 cores"), ("4", "590/s", "6 ms", "0.06 cores")

        assert terminal.text([Table(title="", columns=columns, rows=rows)], width=40).splitlines() == [
            "concurrency            1           4",
            "requests/s         140/s       590/s",
            "compute time        5 ms        6 ms",
            "client CPU    0.03 cores  0.06 cores",
        ]

    def test_columns_that_fit_nowhere_are_stacked(self) -> None:
        """Where not even the numbers fit, each cell has a line."""
        columns = (
            Column(title="a"),
            Column(title="b", align=Align.RIGHT),
            Column(title="c"),
            Column(title="d"),
        )
        table = Table(title="", columns=columns, rows=(("name", "1" * 15, "2" * 15, "note"),))

        assert terminal.text([table], width=24) == f"name\n  b: {'1' * 15}\n  c: {'2' * 15}\n  d: note\n"


def test_a_chart_without_counts_is_drawn() -> None:
    """Bins that are all empty have no bars."""
    chart = Bins(
        title="t",
        scale=AxisScale(label="x", unit="s"),
        edges=(1.0, 2.0, 3.0),
        counts=(0.0, 0.0),
        counted="n",
    )

    assert terminal.text([chart]) == "t (n)\n1 s  0\n2 s  0\n"


WATERFALL = Waterfall(
    title="Time",
    scale=AxisScale(label="time", unit="s"),
    steps=(
        WaterfallStep(name="bound", size=0.002, low=0.002, high=0.002),
        WaterfallStep(name="kernels", size=0.003, low=0.002, high=0.004),
        WaterfallStep(name="server", size=-0.001, low=-0.002, high=0.001),
        WaterfallStep(name="queue", size=None),
        WaterfallStep(name="rest", size=1e-6, is_rest=True),
        WaterfallStep(name="whole", size=0.004, is_sum=True),
    ),
    note="a note",
)


def test_a_waterfall_is_drawn() -> None:
    """Each bar begins where the one before ends; the smallest has half a character, an unknown one none."""
    assert terminal.text([WATERFALL], width=46) == (
        "Time\n"
        "bound    2.00 ms  computed        █████\n"
        "kernels   3.0 ms  2.0 to 4.0 ms        ███████\n"
        "server   -1.0 ms  -2.0 to 1.0 ms           ▐██\n"
        "queue    unknown\n"
        "rest     1.00 us                           ▐\n"
        "whole    4.00 ms                  █████████▌\n"
        "a note\n"
    )


def test_a_narrow_terminal_shows_a_waterfall_without_bars() -> None:
    """Names and numbers stay; a waterfall of nothing has no bars either."""
    assert "█" not in terminal.text([WATERFALL], width=30)
    empty = Waterfall(title="t", scale=AxisScale(label="x"), steps=(WaterfallStep(name="a", size=None),))
    assert terminal.text([empty]) == "t\na  unknown\n"


def test_a_picture_is_told() -> None:
    """What no terminal draws is said in a sentence, with its note; a heading stands out."""
    effect = Effect(name="latency.p50", value=0.1, low=0.05, high=0.2, smallest=0.03, outcome="worse")
    picture = Forest(title="Changes", effects=(effect,), note="of one process")

    assert terminal.text([Heading(title="Part"), picture]) == (
        "PART\n\nChanges\nDifferences with their 95 % intervals: latency.p50 +10.0%, worse.\nof one process\n"
    )


def test_notices_of_a_kind_stand_together() -> None:
    """An empty line parts doubts from notes, and not doubts from doubts."""
    doubt, note = (Notice(severity=s, text="t") for s in (Severity.DOUBT, Severity.NOTE))

    assert terminal.text([doubt, doubt, note]) == "! t\n! t\n\n· t\n"


def test_a_command_that_goes_on_can_be_pasted() -> None:
    """Read by a shell it is the command again: no word is cut, and none is quoted over two lines."""
    command = (
        f"modeldyno advise onnx:/{'long/' * 20}net.onnx --set batch_size=32 --require 'latency.p99 <= 5ms'"
    )

    laid_out = terminal.text([Notice(severity=Severity.NOTE, text="t", advice=command)])

    pasted = laid_out.partition("→ ")[2]
    assert pasted.count("\\\n") > 1
    printed = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' {pasted}"], capture_output=True, text=True, check=True
    ).stdout
    assert printed.splitlines() == shlex.split(command)
    assert [len(line) > 80 for line in laid_out.splitlines()].count(True) == 1, "the long path alone"


def test_a_wide_character_takes_two_columns() -> None:
    """Columns are counted as a terminal counts them."""
    assert [terminal.display_width(text) for text in ("ab", "模型", "e\u0301")] == [2, 4, 1]
