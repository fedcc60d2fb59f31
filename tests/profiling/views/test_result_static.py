"""How an inspection is shown."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Interval, Measurement
from modeldyno.base.report.blocks import Block, Notice, Severity, Table
from modeldyno.base.result.static_data import MemoryItem, Module, Operator, SizePoint, StaticReport
from modeldyno.profiling import views
from modeldyno.profiling.views import ViewOptions, numbers
from modeldyno.profiling.views.result.module_tree import build_module_tree, leaves, name_range
from modeldyno.reports import csv, html, markdown, terminal
from modeldyno.testing.reporters import HOSTILE, full_result
from modeldyno.testing.sample_results import a_job, an_inspection, an_outline

if TYPE_CHECKING:
    from modeldyno.base.job.static_options import StaticOptions
    from modeldyno.base.result.result import Result


def table(result: Result, title: str, options: ViewOptions = views.PLAIN) -> Table:
    """Find a table by how its title begins."""
    return next(b for b in tables(result, options) if b.title.startswith(title))


def tables(result: Result, options: ViewOptions = views.PLAIN) -> list[Table]:
    """Return all tables."""
    return [block for block in views.blocks(result, options) if isinstance(block, Table)]


def notes(blocks: tuple[Block, ...]) -> list[str]:
    """Return the texts of all side notes."""
    return [b.text for b in blocks if isinstance(b, Notice) and b.severity is Severity.NOTE]


def rows(result: Result, title: str, options: ViewOptions = views.PLAIN) -> dict[str, tuple[str, ...]]:
    """Return the rows of a table by their first cell."""
    return {row[0]: row[1:] for row in table(result, title, options).rows}


def outlined(**changes: object) -> Result:
    """Make an inspection whose outline is changed."""
    return an_inspection(outline=replace(an_outline(), **changes))  # type: ignore[arg-type]


def network(modules: dict[str, tuple[str, int]]) -> Result:
    """Make an inspection of modules: path to class and MACs."""
    return an_inspection(
        outline=StaticReport(modules=tuple(Module(path=p, kind=kind) for p, (kind, _) in modules.items())),
        measurements=tuple(
            Measurement(metric="macs", value=macs, scope=p) for p, (_, macs) in modules.items()
        ),
    )


def unbounded() -> Result:
    """Make an inspection with an operator of unknown shapes."""
    analysed = an_inspection()
    magic = Operator(kind="own.Magic", calls=1, counted=False, most=None, shapes="? -> ?")
    return replace(
        analysed,
        outline=replace(an_outline(), operators=(magic,)),
        measurements=tuple(
            replace(m, interval=Interval(low=1_412_628_480, high=inf)) if m.metric == "macs" else m
            for m in analysed.measurements
        ),
    )


class TestSentence:
    def test_it_says_what_the_model_has_and_costs(self) -> None:
        """Parameters, work at which sizes, and memory, in one sentence."""
        analysed = an_inspection()
        exact = tuple(replace(m, interval=None) for m in analysed.measurements)

        assert views.headline(replace(analysed, measurements=exact)) == (
            "mini has 22.7 M parameters (86.6 MiB) and costs 1.41 GMACs (2.85 GFLOPs) at batch 1, seq 128; "
            "it needs 88.5 MiB at the peak, 1.88 MiB of it activations."
        )

    def test_what_is_open_is_told_as_open(self) -> None:
        """Operators without a formula make the count a span, in units of each end."""
        analysed = an_inspection()
        wide = tuple(
            replace(m, interval=Interval(low=900_000, high=2_000_000)) if m.metric == "macs" else m
            for m in analysed.measurements
        )

        assert " costs 1.41 to 1.44 GMACs (2.85 GFLOPs) at " in views.headline(analysed)
        assert " costs 900 kMACs to 2.00 MMACs (" in views.headline(replace(analysed, measurements=wide))

    def test_what_nothing_bounds_is_at_least_what_was_counted(self) -> None:
        """Past unknown shapes the sentence and the meaning give the lower end alone."""
        document = unbounded()

        assert " costs at least 1.41 GMACs (2.85 GFLOPs) at " in views.headline(document)
        assert rows(document, "Totals")["macs"] == ("1.41 G", "1.41 G or more: 1 operator uncounted")

    def test_a_training_step_is_called_one(self) -> None:
        """In training the cost is that of a step."""
        job = replace(a_job(), probes=("static",), inspection=views_train())

        assert "(2.85 GFLOPs) in a training step at batch 1" in views.headline(an_inspection(job=job))

    def test_what_is_unknown_is_left_out(self) -> None:
        """Without parameters, sizes or the whole of the memory the sentence is shorter."""
        macs = Measurement(metric="macs", value=640)
        peak = Measurement(metric="activation_peak", value=2048)
        analysed = an_inspection(outline=None, measurements=(macs, peak))

        assert views.headline(analysed) == "mini costs 640 MACs; its activations need 2.00 KiB at the peak."
        assert views.headline(replace(analysed, measurements=(macs,))) == "mini costs 640 MACs."


def views_train() -> StaticOptions:
    """Make what asks for a training step."""
    from modeldyno.profiling.request import make_inspection

    return make_inspection(mode="train", optimizer="adam")


class TestTotals:
    def test_each_number_has_its_meaning(self) -> None:
        """Every total of the whole is told under its own name, in words."""
        cells = rows(an_inspection(), "Totals, at batch 1, seq 128")

        assert cells["parameters"] == ("22.7 M", "all trainable, 512 more elements in buffers")
        assert cells["weight_bytes"] == ("86.6 MiB", "float32 86.6 MiB, int64 4.00 KiB")
        assert cells["macs"] == ("1.41 G", "between 1.41 G and 1.44 G: 1 operator uncounted")
        assert cells["flops"] == ("2.85 G", "2 x macs + elementwise")
        assert cells["memory_peak"] == ("88.5 MiB", "predicted for this CPU, with weights, inputs")
        assert cells["largest_batch"] == ("10,240", "whose peak fits")
        assert "trainable_parameters" not in cells

    @pytest.mark.parametrize(("trainable", "text"), [(0, "none trainable"), (500, "500 trainable")])
    def test_frozen_parameters_are_told(self, trainable: int, text: str) -> None:
        """How many parameters ask for a gradient stands beside their number."""
        counts = (
            Measurement(metric="parameters", value=1000),
            Measurement(metric="trainable_parameters", value=trainable),
        )

        assert rows(an_inspection(measurements=counts), "Totals")["parameters"] == ("1,000", text)

    def test_parameters_alone_need_no_words(self) -> None:
        """Where nobody knows what is trainable nothing is said of it."""
        counts = (Measurement(metric="parameters", value=1000),)

        assert rows(an_inspection(measurements=counts), "Totals")["parameters"] == ("1,000", "")

    def test_without_parameters_none_are_trainable(self) -> None:
        """Of nothing it is not said that all of it is trainable."""
        counts = tuple(Measurement(metric=m, value=0) for m in ("parameters", "trainable_parameters"))

        assert rows(an_inspection(measurements=counts), "Totals")["parameters"] == ("0", "")

    def test_training_has_its_own_words(self) -> None:
        """The peak holds gradients and the state of the optimiser that is named."""
        more = (
            Measurement(metric="memory_peak", value=4096),
            Measurement(metric="optimizer_bytes", value=2048),
            Measurement(metric="largest_batch", value=12),
        )
        job = replace(a_job(), inspection=replace(views_train(), memory=24 * 2**30))
        cells = rows(an_inspection(job=job, measurements=more), "Totals")

        assert cells["memory_peak"][1].endswith("with weights, inputs, gradients, optimiser state")
        assert cells["optimizer_bytes"] == ("2.00 KiB", "of the state of adam")
        assert cells["largest_batch"] == ("12", "whose peak fits 24 GiB")

    def test_a_batch_of_none_is_told(self) -> None:
        """Where not even one sample fits, that is an answer."""
        none = (Measurement(metric="largest_batch", value=0),)
        job = replace(a_job(), inspection=replace(views_train(), memory=2**30))

        assert rows(an_inspection(job=job, measurements=none), "Totals")["largest_batch"] == (
            "0", "not even one sample fits 1 GiB",
        )  # fmt: skip

    def test_a_training_step_is_divided_up(self) -> None:
        """Forward and backward are told beside their sum, and are no modules."""
        macs = [
            Measurement(metric="macs", value=value, scope=scope)
            for scope, value in (
                ("", 3000), ("phase forward", 1000), ("phase backward", 2000), ("phase update", 0),
            )
        ]  # fmt: skip

        assert rows(an_inspection(measurements=tuple(macs)), "Totals")["macs"] == (
            "3,000",
            "forward 1,000, backward 2,000",
        )

    def test_modules_are_no_dtypes(self) -> None:
        """Without an outline the bytes of a module are told apart from those of a dtype."""
        sizes = [Measurement(metric="weight_bytes", value=8, scope=scope) for scope in ("", "float32", "fc")]
        items = (*sizes, Measurement(metric="parameters", value=2, scope="fc"))

        assert rows(an_inspection(outline=None, measurements=items), "Totals")["weight_bytes"][1] == "float32"

    def test_a_model_that_was_run_keeps_its_table(self) -> None:
        """With a latency the totals that explain it are rows of the one table of results."""
        static = an_inspection()
        assert static.outline is not None
        both = replace(
            full_result(),
            outline=replace(static.outline, modules=static.outline.modules),
            measurements=(
                *full_result().measurements,
                *(m for m in static.measurements if m.metric != "parameters"),
            ),
        )
        cells = {**rows(both, "Measured"), **rows(both, "Computed from the model, not measured")}

        assert cells["macs"] == ("1.41 G", "", "between 1.41 G and 1.44 G: 1 operator uncounted")
        assert {"flops", "coverage", "activation_peak", "memory_peak"} <= set(cells)
        assert not {"elementwise", "bytes_read", "roofline_latency@a100"} & set(cells)
        assert not any("@encoder" in name for name in cells)
        assert rows(both, "Not counted")["custom.rotate"][1] == "0 to 30.0 M"


class TestModules:
    def test_alike_layers_are_one_row(self) -> None:
        """Six layers with equal numbers are one row that has their sum; shells are joined to it."""
        cells = rows(an_inspection(), "Modules")

        assert cells["· encoder.layer.0-5 (6 x Layer)"] == ("1x128x384", "10.6 M", "1.41 G", "100%")
        assert cells["· · attention (6 x Attention)"][2:] == ("507 M", "35.9%")
        assert not any("dropout" in name for name in cells)
        assert "equal modules are merged into one row with their sum" in notes(views.blocks(an_inspection()))

    def test_sorted_by_weights_they_are_shown(self) -> None:
        """The bytes of the weights take the place of the parameters where the rows are sorted by them."""
        (table,) = (
            t for t in tables(an_inspection(), ViewOptions(sort="weight_bytes")) if t.title == "Modules"
        )

        assert [column.title for column in table.columns] == ["module", "output", "weights", "MACs", "share"]
        assert table.rows[0][2] == "86.6 MiB"

    @pytest.mark.parametrize(
        ("output", "expected"),
        [
            ("", None),
            ("4x8 float32", "4x8"),
            ("4x8 bfloat16", "4x8 bfloat16"),
            ("4x8 float32 and 2 more", "4x8 +2"),
            ("scalar int64", "scalar int64"),
        ],
    )
    def test_the_shape_that_a_module_gives_is_short(self, output: str, expected: str | None) -> None:
        """The usual dtype goes without saying, and further tensors are counted."""
        result = an_inspection()
        assert result.outline is not None
        modules = tuple(replace(each, output=output) for each in result.outline.modules)
        made = replace(result, outline=replace(result.outline, modules=modules))
        (listing,) = (t for t in tables(made, ViewOptions()) if t.title == "Modules")

        assert (listing.rows[0][1] if listing.columns[1].title == "output" else None) == expected

    def test_unlike_layers_stay_apart(self) -> None:
        """A layer that differs in anything has a row of its own."""
        document = network({
            "": ("Net", 33), "a": ("List", 33), "a.0": ("B", 3), "a.1": ("B", 3), "a.2": ("B", 4),
            "a.3": ("C", 4), "a.4": ("C", 4), "a.6": ("C", 4), "a.7x": ("C", 4), "a.8": ("B", 4),
            "a.9": ("B", 1), "a.9.x": ("D", 1), "a.10": ("B", 1), "a.10.y": ("D", 1),
        })  # fmt: skip

        assert [row[0] for row in table(document, "Modules", ViewOptions(depth=9)).rows][1:] == [
            "· a (List)", "· · 0-1 (2 x B)", "· · 2 (B)", "· · 3-4 (2 x C)", "· · 6 (C)", "· · 7x (C)",
            "· · 8 (B)", "· · 9.x (D)", "· · 10.y (D)",
        ]  # fmt: skip

    def test_a_class_that_is_not_known_leaves_no_brackets(self) -> None:
        """An exporter need not tell the class of what only holds others."""
        document = network({"": ("N", 9), "a": ("", 9), "a.x": ("B", 5), "a.y": ("", 4)})

        assert [row[0] for row in table(document, "Modules", ViewOptions(depth=9)).rows] == [
            "N", "· a", "· · x (B)", "· · y",
        ]  # fmt: skip
        alike = network({"": ("N", 8), "a.0": ("", 4), "a.1": ("", 4)})
        assert table(alike, "Modules").rows[1][0] == "· a.0-1"

    def test_numbered_modules_are_named_where_a_pattern_would_say_nothing(self) -> None:
        """A sequence of layers has no names but numbers: the first of them stand for all."""
        layers = {str(n): ("Linear" if n % 2 == 0 else "ReLU", 7 if n % 2 == 0 else 0) for n in range(12)}
        few = {"": ("N", 21), **{path: layers[path] for path in ("0", "1", "2", "3", "4")}}
        many = {"": ("N", 42), **layers}

        assert rows(network(few), "Most expensive")["0, 2, 4"][0] == "3 x Linear"
        assert rows(network(many), "Most expensive")["0, 2, 4, 6, …"][0] == "6 x Linear"
        below = {f"net.{path}": layer for path, layer in layers.items()}
        assert "net.*" in rows(network({"": ("N", 42), "net": ("M", 42), **below}), "Most expensive")

    def test_a_list_need_not_be_a_module(self) -> None:
        """Numbered neighbours are alike whether what holds them is listed or not."""
        document = network({"": ("N", 6), "a.0": ("B", 3), "a.1": ("B", 3)})

        assert "· a.0-1 (2 x B)" in rows(document, "Modules")

    def test_the_depth_is_what_is_read_at_a_glance(self) -> None:
        """Without a depth the deepest is shown that needs no more than 25 rows."""
        wide = {f"m{i}.{part}": ("P", (i + 1) * 10 + len(part)) for i in range(9) for part in ("", "x", "yy")}
        modules = {"": ("N", 1), **{path.rstrip("."): module for path, module in wide.items()}}
        inspection = network(modules)

        assert len(table(inspection, "Modules, to depth 1").rows) == 10
        assert "18 more modules below these; --depth 2 goes deeper" in notes(views.blocks(inspection))
        assert len(table(inspection, "Modules", ViewOptions(depth=2)).rows) == 28
        assert len(table(inspection, "Modules", ViewOptions(depth=0)).rows) == 1

    def test_a_wide_network_is_cut(self) -> None:
        """More than 25 modules at the first level are cut, and the note says how to see them."""
        document = network({"": ("N", 1), **{f"m{i}x": ("P", i + 1) for i in range(40)}})

        assert len(table(document, "Modules").rows) == 25
        assert "16 more modules at this depth; --depth 1 shows all" in notes(views.blocks(document))
        assert len(table(document, "Modules", ViewOptions(depth=1)).rows) == 41

    def test_what_weighs_nothing_is_left_out(self) -> None:
        """A module with neither parameters nor MACs is shown only where a depth is asked for."""
        document = network({"": ("N", 3), "a": ("L", 3), "act": ("Tanh", 0), "b": ("L", 0)})
        tanh = Measurement(metric="elementwise", value=5, scope="act")
        document = replace(document, measurements=(*document.measurements, tanh))

        assert list(rows(document, "Modules")) == ["N", "· a (L)"]
        assert "1 module with neither parameters nor MACs left out; --depth shows all" in notes(
            views.blocks(document)
        )
        assert list(rows(document, "Modules", ViewOptions(depth=1))) == ["N", "· a (L)", "· act (Tanh)"]

    def test_siblings_are_sorted(self) -> None:
        """Sorted by a number the largest comes first, each below its parent."""
        names = [row[0] for row in table(an_inspection(), "Modules", ViewOptions(sort="macs", depth=1)).rows]

        assert names[1].startswith("· encoder")
        assert (
            table(an_inspection(), "Most expensive", ViewOptions(sort="parameters")).rows[0][0]
            == "embeddings.word"
        )

    def test_modules_are_filtered(self) -> None:
        """Only those whose path or class holds the text are shown, by their whole path."""
        cells = rows(an_inspection(), "Modules with 'ATTENTION'", ViewOptions(filter="ATTENTION"))

        assert list(cells)[1] == "encoder.layer.0-5.attention.query"
        assert len(cells) == 5
        assert len(rows(an_inspection(), "Modules with", ViewOptions(filter="attention", depth=2))) == 1
        assert "no module has 'conv' in its path or class" in notes(
            views.blocks(an_inspection(), ViewOptions(filter="conv"))
        )

    def test_the_costliest_are_leaves(self) -> None:
        """The five costliest are the modules that no deeper one explains, over all layers."""
        shown_table = table(an_inspection(), "Most expensive, by MACs").rows

        assert shown_table[0] == ("encoder.layer.0-5.intermediate", "6 x Linear", "453 M", "32.1%")
        assert len(shown_table) == 5

    def test_work_between_modules_is_some_ones(self) -> None:
        """What a module does beside its children is told as its own."""
        root = build_module_tree(an_inspection())
        assert root is not None
        (own,) = (work for work in leaves(root) if work.kind == "Attention itself")

        assert own.path == "encoder.layer.0-5.attention"
        assert own.numbers[0] == 6 * (84_443_136 - 4 * 18_874_368)

    def test_the_costliest_are_named_over_unlike_layers(self) -> None:
        """Layers that are not alike as a whole still add up where their parts have one name."""
        document = network({
            "": ("N", 9), "a.0": ("B", 3), "a.0.x": ("L", 3), "a.1": ("C", 6), "a.1.x": ("L", 6),
        })  # fmt: skip

        assert table(document, "Most expensive").rows == (("a.*.x", "2 x L", "9", "100%"),)

    def test_without_macs_the_costliest_are_those_with_operations(self) -> None:
        """A network without matrix products is ranked by FLOPs, and one without anything not at all."""
        document = network({"": ("N", 0), "a": ("B", 0)})
        flops = tuple(Measurement(metric="flops", value=7, scope=path) for path in ("", "a"))

        assert not any(t.title.startswith("Most expensive") for t in tables(document))
        assert table(replace(document, measurements=flops), "Most expensive, by FLOPs").rows[0][:2] == (
            "a",
            "B",
        )

    def test_long_names_keep_their_end(self) -> None:
        """A path that leaves no room is cut at its beginning; no row is wider than the terminal."""
        path = "very_long_package.language_model.decoder_layers"
        document = network({"": ("N", 2), f"{path}.mlp": ("FeedForward", 1), f"{path}.attention": ("A", 1)})
        lines = terminal.text(views.blocks(document)).splitlines()

        assert max(map(len, lines)) <= 80
        assert any(line.startswith("…") and "decoder_layers.mlp" in line for line in lines)

    def test_modules_need_not_be_there(self) -> None:
        """Without modules, or with a part alone, there is no tree."""
        assert build_module_tree(an_inspection(outline=None)) is None
        assert build_module_tree(outlined(modules=())) is None
        assert not any(t.title.startswith("Modules") for t in tables(outlined(modules=())))

    def test_a_network_may_be_absurdly_deep(self) -> None:
        """A thousand levels are shown like any other network."""
        paths = [".".join(["m"] * level) for level in range(1000)]
        document = network({path: (f"K{level}", 1000 - level) for level, path in enumerate(paths)})

        assert len(table(document, "Modules").rows) == 25


@pytest.mark.parametrize(
    ("paths", "name"),
    [
        (("a.0.b",), "a.0.b"),
        (("a.0.b", "a.0.b"), "a.0.b"),
        (("a.0.b", "a.2.b", "a.1.b"), "a.0-2.b"),
        (("a.0.b", "a.2.b"), "a.*.b"),
        (("0.a.0", "1.a.1"), "*.a.*"),
        (("1.a.0", "1.a.1"), "1.a.0-1"),
        (("a.*.0", "a.*.1"), "a.*.*"),
        (("10", "2", "0", "2"), "0, 2, 10"),
        (("0", "2", "4", "6", "8"), "0, 2, 4, 6, …"),
    ],
)
def test_paths_of_one_pattern_are_named_together(paths: tuple[str, ...], name: str) -> None:
    """A range where the numbers follow each other, and a star where they do not."""
    assert name_range(paths) == name


class TestPeak:
    def test_activations_are_told_by_module(self) -> None:
        """Weights and inputs are one row each; activations are told by what made them."""
        shown_table = table(an_inspection(), "Memory at the peak, in encoder.layer.3.output (aten.addmm)")

        assert [row[0] for row in shown_table.rows] == [
            "weights", "activations of encoder.layer.2-3.output", "activations of embeddings.word", "inputs",
        ]  # fmt: skip
        assert shown_table.rows[0][1:] == ("86.6 MiB", "97.9%")
        assert shown_table.rows[-1][2] == "<0.1%"

    def test_the_rest_is_summed(self) -> None:
        """Beyond six rows the rest is one."""
        held = tuple(MemoryItem(scope=f"m{i}x", role="activation", bytes=10 - i) for i in range(9))
        shown_table = table(outlined(peak=held, peak_scope="", peak_operator=""), "Memory at the peak")

        assert shown_table.rows[-1] == ("3 more", "9 B", "16.7%")
        assert shown_table.title == "Memory at the peak"

    def test_other_roles_keep_their_names(self) -> None:
        """Gradients and state have words; a role that nobody knows is told as it is."""
        roles = ("gradient", "optimizer state", "novel", "activation")
        held = tuple(MemoryItem(scope="", role=role, bytes=8) for role in roles)

        assert list(rows(outlined(peak=held), "Memory at")) == [
            "gradients of parameters", "optimiser state", "novel", "activations",
        ]  # fmt: skip

    def test_nothing_held_is_no_table(self) -> None:
        """Without a peak there is no table of it."""
        assert not any(t.title.startswith("Held") for t in tables(outlined(peak=())))


class TestOperators:
    def test_what_was_not_counted_is_always_listed(self) -> None:
        """Each operator without a formula has its calls, its shapes and the most that it may cost."""
        assert rows(an_inspection(), "Not counted")["custom.rotate"] == (
            "6",
            "0 to 30.0 M",
            "(1, 12, 128, 32) x (128, 32) -> (1, 12, 128, 32), in encoder.layer.0.attention",
        )

    def test_many_are_summed_unless_asked_for(self) -> None:
        """Beyond twelve the rest is one row, and all are listed when everything is."""
        many = tuple(Operator(kind=f"x.{i}", calls=2, counted=False, most=1000) for i in range(20))

        assert table(outlined(operators=many), "Not counted").rows[-1] == (
            "8 more", "16", "0 to 8,000", "-v lists them",
        )  # fmt: skip
        assert len(table(outlined(operators=many), "Not counted", ViewOptions(verbose=True)).rows) == 20

    def test_what_has_no_shape_has_no_bound(self) -> None:
        """Operators of unknown shapes may take any number of MACs, and the title says what is wanting."""
        document = unbounded()

        assert rows(document, "Not counted: no formula, or unknown shapes")["own.Magic"][1] == "0 or more"
        assert rows(document, "Operators", ViewOptions(verbose=True))["own.Magic"][1] == "0 or more"
        many = tuple(Operator(kind=f"x.{i}", calls=1, counted=False, most=None) for i in range(13))
        assert table(outlined(operators=many), "Not counted").rows[-1][2] == "0 or more"

    def test_all_operators_are_listed_when_asked_for(self) -> None:
        """Verbose adds the table of operators, the costliest first."""
        cells = rows(an_inspection(), "Operators", ViewOptions(verbose=True))

        assert cells["aten.addmm"] == ("36", "1.36 G", "0")
        assert cells["custom.rotate"] == ("6", "0 to 30.0 M", "—")
        assert not any(t.title == "Operators" for t in tables(an_inspection()))
        assert not any(
            t.title == "Operators" for t in tables(outlined(operators=()), ViewOptions(verbose=True))
        )

    def test_assumptions_are_notes(self) -> None:
        """What was taken for granted is said."""
        assert "every row of the mask is full, as in a batch without padding" in notes(
            views.blocks(an_inspection())
        )

    def test_an_assumption_that_is_a_doubt_is_told_once(self) -> None:
        """What the analysis doubts itself needs no note beside."""
        assumption = an_outline().assumptions[0]
        doubt = Doubt(code="assumed-branch", seen=assumption, advice="a")

        assert assumption not in notes(views.blocks(an_inspection(doubts=(doubt,))))


class TestEstimates:
    def test_other_sizes_are_a_grid(self) -> None:
        """A row for each combination, the bounds of a device marked as such, and the formulas."""
        shown_table = table(an_inspection(), "At other sizes")

        assert [column.title for column in shown_table.columns] == [
            "batch", "seq", "MACs", "activations", "memory", "a100 bound",
        ]  # fmt: skip
        assert shown_table.rows[0] == ("1", "128", "≥ 1.41 G", "1.88 MiB", "88.5 MiB", "≥ 132 us")
        assert rows(an_inspection(), "Formulas")["activation_peak"] == ("15360*batch*seq",)
        assert "the formulas hold for batch >= 1 (traced to 8), seq = 16k (traced to 512)" in notes(
            views.blocks(an_inspection())
        )
        assert not any("formulas hold" in text for text in notes(views.blocks(outlined(domain=""))))

    def test_what_a_point_lacks_is_a_dash(self) -> None:
        """Points need not have the same sizes or values."""
        points = (
            SizePoint(sizes={"batch": 1}, values={"macs": 5.0}),
            SizePoint(sizes={"seq": 2}, values={"flops": 7.0}),
        )
        shown_table = table(outlined(points=points), "At other sizes")

        assert shown_table.rows == (("1", "—", "≥ 5", "—"), ("—", "2", "—", "7"))

    def test_many_points_are_cut(self) -> None:
        """Forty rows are shown; the document has all."""
        points = tuple(SizePoint(sizes={"batch": i + 1}, values={"macs": 1.0}) for i in range(50))
        analysed = outlined(points=points, formulas={}, traced=True)

        assert len(table(analysed, "At other sizes").rows) == 40
        assert "10 more sizes are in the JSON output: --json PATH" in notes(views.blocks(analysed))
        assert any("each was traced separately" in text for text in notes(views.blocks(analysed)))
        assert not any(t.title == "Formulas" for t in tables(analysed))

    def test_points_without_a_word_on_formulas(self) -> None:
        """Where none was sought nothing is said of it."""
        analysed = outlined(formulas={}, traced=False)

        assert not any("traced" in text for text in notes(views.blocks(analysed)))

    def test_a_device_is_an_estimate(self) -> None:
        """Title and signs say that these are lower bounds; the limit is named with its reason."""
        title = "Estimated lower bounds from the peaks of devices; nothing was run on them"
        shown_table = table(an_inspection(), title)

        assert shown_table.rows == (
            ("a100", "≥ 131 us", "—", "≥ 58.4 us", "compute", "19.5 TFLOP/s, 1.55 TB/s"),
        )

    def test_the_lower_roof_is_named(self) -> None:
        """Where computing alone takes less than the bound it is memory; without peaks nobody knows."""
        scoped = {
            "roofline_latency": 1e-3,
            "eager_latency": 2e-3,
            "peak_flops": 1e14,
            "peak_bandwidth": 1e12,
        }
        items = [Measurement(metric=m, value=value, scope="d") for m, value in scoped.items()]
        bound = [
            table(an_inspection(measurements=(*items, Measurement(metric=m, value=macs))), "Estimated").rows[
                0
            ]
            for m, macs in (("macs", 4.9e10), ("macs", 5e10), ("causal_macs", 5e10))
        ]
        unknown = table(an_inspection(measurements=(items[0], items[3])), "Estimated").rows[0]

        assert [row[3] for row in bound] == ["memory", "compute", "compute"]
        assert unknown == ("d", "≥ 1.00 ms", "—", "memory", "unknown FLOP/s, 1.00 TB/s")

    def test_the_time_of_a_token_is_a_column_of_models_that_generate(self) -> None:
        """Of a network for images it would be a column of dashes."""
        call, token = (
            Measurement(metric=metric, value=1e-3, scope="d")
            for metric in ("roofline_latency", "decode_latency")
        )
        plain, generating = (
            table(an_inspection(measurements=measurements), "Estimated")
            for measurements in ((call,), (call, token))
        )

        assert [column.title for column in plain.columns] == [
            "device", "one call", "op by op", "bound by", "peaks",
        ]  # fmt: skip
        assert generating.rows[0][3] == "≥ 1.00 ms"

    @pytest.mark.parametrize(
        ("device", "peak", "count"),
        [("a100", 156e12, 1), ("a100", 19.5e12, 0), ("t4", 8e12, 0), ("rtx4090", 82.6e12, 0)],
    )
    def test_the_peak_of_tf32_is_told(self, device: str, peak: float, count: int) -> None:
        """Where products of float32 are taken to be faster than its own peak, a note says as what."""
        measurements = tuple(
            Measurement(metric=metric, value=value, scope=device)
            for metric, value in (("roofline_latency", 1e-3), ("peak_flops", peak))
        )
        texts_shown = notes(views.blocks(an_inspection(measurements=measurements)))
        assert sum("TF32" in text for text in texts_shown) == count

    @pytest.mark.parametrize(
        ("peak", "weights", "says"),
        [
            (80e9, 70e9, ""),
            (100e9, 70e9, "do not fit into the 74.5 GiB of a100: take a smaller batch"),
            (170e9, 160e9, "weights in fewer bits, or sharding over 3 of them"),
        ],
    )
    def test_what_does_not_fit_a_device_is_told_with_what_helps(
        self, peak: float, weights: float, says: str
    ) -> None:
        """Its memory is in the table of devices; 119 GiB of weights had a bound in milliseconds alone."""
        measurements = (
            Measurement(metric="roofline_latency", value=1e-3, scope="a100"),
            Measurement(metric="memory_peak", value=peak),
            Measurement(metric="weight_bytes", value=weights),
        )
        texts_shown = notes(views.blocks(an_inspection(measurements=measurements)))
        assert sum("do not fit" in text for text in texts_shown) == bool(says)
        assert any(says in text for text in texts_shown)


class TestFooter:
    def test_it_says_that_nothing_was_run(self) -> None:
        """The course stands where the backend does otherwise, and the load of the machine is no matter."""
        cells = rows(an_inspection(), "How it was measured")
        training = an_inspection(job=replace(a_job(), inspection=views_train()))

        assert cells["analysed"] == ("inference at batch 1, seq 128, nothing was run",)
        assert not {"backend", "conditions"} & set(cells)
        assert rows(training, "How it was measured")["analysed"][0].startswith("a training step with adam at")

    def test_what_could_not_be_analysed_is_an_inspection_all_the_same(self) -> None:
        """Without an outline the totals that are known stand in the same table."""
        analysed = an_inspection(outline=None, measurements=(Measurement(metric="parameters", value=5),))

        assert rows(analysed, "Totals")["parameters"] == ("5", "")
        assert rows(analysed, "How it was measured")["analysed"] == ("inference, nothing was run",)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_names_do_not_act(text: str) -> None:
    """Whatever modules, operators and devices are called, every format comes out in one piece."""
    analysed = an_inspection(
        measurements=(
            *an_inspection().measurements,
            Measurement(metric="macs", value=1, scope=text),
            Measurement(metric="roofline_latency", value=1.0, scope=text),
        ),
        outline=StaticReport(
            sizes={text: 1},
            modules=(
                Module(path="", kind=text),
                Module(path=text, kind=text),
                Module(path=f"{text}.0", kind=text),
            ),
            operators=(Operator(kind=text, calls=1, counted=False, most=9, shapes=text, scope=text),),
            peak=(
                MemoryItem(scope=text, role=text, bytes=5),
                MemoryItem(scope=text, role="activation", bytes=5),
            ),
            peak_scope=text,
            peak_operator=text,
            points=(SizePoint(sizes={text: 1}, values={"macs": 1.0, f"roofline_latency@{text}": 1.0}),),
            formulas={text: text},
            assumptions=(text,),
        ),
    )
    written = terminal.text(views.blocks(analysed, ViewOptions(filter=text, verbose=True))) + terminal.render(
        analysed
    )

    assert "\x1b" not in written
    assert "\u202e" not in written
    page = html.render(analysed)
    assert page.count("<script") == html.render(an_inspection()).count("<script")
    assert markdown.render(analysed)
    assert not any(line.startswith(("=", "+", "@")) for line in csv.render(analysed).splitlines())


def test_csv_has_the_numbers_of_modules() -> None:
    """Each module has its rows, with its path as the scope."""
    written = csv.render(an_inspection()).splitlines()

    assert "macs,encoder.layer.0.attention,,84443136,,,,,," in written
    assert "macs,,,1412628480,1412628480,1442628480,,,," in written


def test_csv_has_the_numbers_at_other_sizes() -> None:
    """Each point of a grid has its rows: totals, and the bounds of a device with that as their scope."""
    written = csv.render(an_inspection()).splitlines()

    assert written[0] == "metric,scope,statistic,value,low,high,unit,n,note,sizes"
    assert "macs,,,1408000000,,,,,,batch=1 seq=128" in written
    assert "roofline_latency,a100,,0.00013184,,,s,,,batch=1 seq=128" in written
    assert sum(line.endswith("batch=8 seq=512") for line in written) == 4


def test_csv_of_two_models_names_them() -> None:
    """Both have all their rows, in base units, under their names."""
    written = csv.table(numbers(an_inspection(name="teacher"), an_inspection(name="student"))).splitlines()

    assert written[0].startswith("model,metric,scope,")
    assert "teacher,macs,,,1412628480,1412628480,1442628480,,,," in written
    assert "student,macs,,,1412628480,1412628480,1442628480,,,," in written


def test_a_path_that_looks_like_a_formula_is_defused() -> None:
    """A spreadsheet takes a module called =1+1 for text."""
    analysed = an_inspection(measurements=(Measurement(metric="macs", value=1, scope="=1+1"),))

    assert "macs,'=1+1,,1,,,,,," in csv.render(analysed).splitlines()
