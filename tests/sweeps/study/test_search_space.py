"""Axes, their words, and the points of a space."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeldyno.base.errors import RequestError
from modeldyno.sweeps.study.search_space import Axis, Point, Space, axis, key, parse_axis, product_of_knobs

NESTED = Space(
    axes=tuple(
        map(
            parse_axis,
            (
                "backend=torch,onnxruntime",
                "batch_size=1,2,4",
                "compile=true,false if backend=torch",
                "mode=fast,small if compile=true",
                "threads=1..2 if backend=onnxruntime",
            ),
        )
    )
)
"""12 points with torch (2 modes or none), and 6 with onnxruntime, which has two numbers of threads."""

AXES = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """Make spaces whose axes may depend on any before them."""
    axes: list[Axis] = []
    for place, size in enumerate(draw(AXES)):
        values = tuple(range(size))
        where = draw(st.sampled_from([None, *axes]))
        allowed = () if where is None else draw(st.sets(st.sampled_from(where.values)).map(tuple))
        axes.append(
            Axis(name=f"a{place}", values=values, where=where.name if where else None, equals=allowed)
        )
    return Space(axes=tuple(axes))


class TestPoints:
    @given(spaces())
    def test_there_are_as_many_points_as_the_size_says(self, space: Space) -> None:
        """Each is its own."""
        points = list(space.points())

        assert len(points) == space.size
        assert len(set(map(key, points))) == space.size

    @given(spaces())
    def test_every_point_is_one_of_its_own(self, space: Space) -> None:
        """It holds, is its own completion, and its neighbours are points that differ from it."""
        for point in space.points():
            assert space.holds(point)
            assert space.completed(point) == space.named(point) == point
            assert all(space.holds(near) and near != point for near in space.neighbours(point))

    def test_a_space_without_axes_has_one_point(self) -> None:
        """That at which nothing is varied."""
        assert (Space().size, list(Space().points())) == (1, [{}])

    def test_a_condition_takes_points_away(self) -> None:
        """An axis that does not apply is varied by none."""
        assert NESTED.size == 3 * 3 + 3 * 2

    def test_a_condition_on_what_does_not_matter_does_not_hold(self) -> None:
        """The mode of compiling is no question where nothing is compiled."""
        assert {"mode" in point for point in NESTED.points() if point.get("compile") is not True} == {False}
        assert sum("mode" in point for point in NESTED.points()) == 6

    def test_what_is_not_of_the_space_does_not_hold(self) -> None:
        """A value that is no value, an axis too many, and one too few."""
        point: Point = {"backend": "onnxruntime", "batch_size": 1, "threads": 1}

        assert NESTED.holds(point)
        assert not NESTED.holds({**point, "threads": 9})
        assert not NESTED.holds({**point, "compile": True} | {"backend": "torch"})
        assert not NESTED.holds({"backend": "onnxruntime", "batch_size": 1})

    def test_a_million_points_cost_nothing(self) -> None:
        """They are counted without being written out."""
        space = Space(axes=tuple(parse_axis(f"a{n}=1..10") for n in range(12)))
        begun = time.process_time()

        assert space.size == 10**12
        assert time.process_time() - begun < 1

    def test_neighbours_are_one_step_away(self) -> None:
        """A number goes one step up or down, a word to any other; what comes to matter begins anew."""
        near = list(NESTED.neighbours({"backend": "onnxruntime", "batch_size": 2, "threads": 1}))

        assert near == [
            {"backend": "torch", "batch_size": 2, "compile": True, "mode": "fast"},
            {"backend": "onnxruntime", "batch_size": 1, "threads": 1},
            {"backend": "onnxruntime", "batch_size": 4, "threads": 1},
            {"backend": "onnxruntime", "batch_size": 2, "threads": 2},
        ]

    def test_points_are_the_same_whatever_their_order(self) -> None:
        """Two that have the same values have the same key."""
        assert key({"a": 1, "b": 2}) == key({"b": 2, "a": 1})
        assert NESTED.named({"threads": 1, "batch_size": 1, "backend": "torch"}) == {
            "backend": "torch",
            "batch_size": 1,
        }


class TestRefusals:
    @pytest.mark.parametrize(
        ("axes", "message"),
        [
            ((Axis(name="a", values=(1,)),) * 2, "has the axis a twice"),
            ((Axis(name="a", values=()),), "axis a has no values"),
            (
                (Axis(name="a", values=(1,), where="b", equals=(1,)),),
                "depends on b, which is no axis before it",
            ),
            (
                (
                    Axis(name="b", values=("on", "off")),
                    Axis(name="a", values=(1,), where="b", equals=("of",)),
                ),
                "a depends on b=of, which it never is; b may be on, off",
            ),
        ],
    )
    def test_a_space_that_cannot_be_is_refused(self, axes: tuple[Axis, ...], message: str) -> None:
        """In one sentence, before anything is measured."""
        with pytest.raises(RequestError, match=message):
            Space(axes=axes)


class TestWords:
    @pytest.mark.parametrize(
        ("text", "values"),
        [
            ("batch_size=4,1,2", (1, 2, 4)),
            ("threads=1..4", (1, 2, 3, 4)),
            ("threads=1..9:4", (1, 5, 9)),
            ("threads=1..8:4", (1, 5)),
            ("concurrency=1..64*4", (1, 4, 16, 64)),
            ("concurrency=1..70*4", (1, 4, 16, 64)),
            ("rate=0.5..2:0.5", (0.5, 1.0, 1.5, 2.0)),
            ("rate=1,4..6, 10", (1, 4, 5, 6, 10)),
            ("x=-2..0", (-2, -1, 0)),
            ("compile=true,False", (True, False)),
            ("precision=float32,int8", ("float32", "int8")),
            ("preferred_batch=[4,8],[16]", ("[4,8]", "[16]")),
            ("device=cpu , cuda:1", ("cpu", "cuda:1")),
            ("mixed=1,all", (1, "all")),
            ("delay=1e-3,0", (0, 0.001)),
            ("delay=0.1..0.5:0.1", (0.1, 0.2, 0.3, 0.4, 0.5)),
            ("delay=0.001..0.01*3", (0.001, 0.003, 0.009)),
            ("mode=inf,nan", ("inf", "nan")),
        ],
    )
    def test_values_are_read(self, text: str, values: tuple[object, ...]) -> None:
        """Lists, ranges, powers, words and truths; numbers are put in their order."""
        assert parse_axis(text).values == values

    def test_a_condition_is_read(self) -> None:
        """After if, with the values for which the axis matters."""
        conditional = parse_axis("graph=all,basic if backend=onnxruntime,1..2")

        assert (conditional.where, conditional.equals) == ("backend", ("onnxruntime", 1, 2))

    @pytest.mark.parametrize("text", ["a=1,2,4", "b=x,true,2 if a=1,2", "c=[4,8],[16]"])
    def test_an_axis_reads_itself(self, text: str) -> None:
        """What it is written as is read as the same axis."""
        assert parse_axis(str(parse_axis(text))) == parse_axis(text)

    def test_values_from_a_file_are_what_they_are(self) -> None:
        """Numbers and truths need not be read."""
        assert axis("batch_size", [4, "1", 2.5]).values == (1, 2.5, 4)
        assert axis("compile", [False, True], where="mode", equals=[1]).values == (False, True)

    def test_a_list_from_a_file_is_written_in_brackets(self) -> None:
        """A value that holds a comma is one value still when it is read again."""
        assert str(axis("preferred_batch", ["4,8"])) == "preferred_batch=[4,8]"

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("batch_size", "is not an axis; write knob=values"),
            ("batch_size=", "has no values; write batch_size=1,2,4"),
            ("a=1,1", "a has a value twice: 1, 1"),
            ("a=1,2,1.0", "a has a value twice: 1, 2, 1.0"),
            ("a=1,true", "a has a value twice: 1, true"),
            ("a=4..1", "'4..1' is not a rising range"),
            ("a=1..4:0", "is not a rising range"),
            ("a=1..4*1", "is not a rising range"),
            ("a=0..4*2", "is not a rising range"),
            ("a=1..1000000", "more than 10,000 values"),
            ("a=1,2 if b=", "depends on b, but on none of its values"),
        ],
    )
    def test_what_is_no_axis_is_refused(self, text: str, message: str) -> None:
        """In one sentence that says what to write."""
        with pytest.raises(RequestError, match=message):
            parse_axis(text)

    def test_only_numbers_are_ordered(self) -> None:
        """Truths and words have nothing between them."""
        assert parse_axis("a=1,2").ordered
        assert not parse_axis("a=true,false").ordered
        assert not parse_axis("a=1,all").ordered
        assert replace(parse_axis("a=1,2"), values=(1, "x")).ordered is False


def test_a_product_of_knobs_is_one_value_of_an_axis() -> None:
    """It is text, and a number where its knobs have values; the first one without a number is named."""
    (value,) = parse_axis("concurrency=2*instances*max_batch").values

    assert value == "2*instances*max_batch"
    assert product_of_knobs(value, {"instances": 3, "max_batch": 4}) == 24
    assert product_of_knobs(value, {"instances": 3, "max_batch": "auto"}) == "max_batch"
    assert product_of_knobs("2*instances", {}) == "instances"
    assert [product_of_knobs(each, {}) for each in (4, 2.5, "word")] == [None, None, None]


def test_a_value_in_brackets_may_hold_others() -> None:
    """JSON with lists inside is one value, wherever the brackets stand."""
    mixed = '[{"count": 1, "gpus": [0, 1]}, {"count": 2, "gpus": [2]}]'

    assert parse_axis(f'config.instance_group={mixed},[{{"count": 1}}]').values == (mixed, '[{"count": 1}]')
    assert parse_axis("preferred_batch=[4,8],[8,16]").values == ("[4,8]", "[8,16]")
