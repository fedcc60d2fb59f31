"""Which steps of a call are called needless, on flows written by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from modeldyno.base.result.trace_data import RedundancyKind, RedundantOp
from modeldyno.engine.trace.dataflow import DataFlow, FlowStep, TensorView
from modeldyno.engine.trace.redundant_ops import find_redundant_ops

SIZES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "int64": 8, "bool": 1}


def dense(*shape: int) -> tuple[int, ...]:
    """Give the strides of a dense tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def value(storage: int, *shape: int, dtype: str = "float32", **more: Any) -> TensorView:
    """A dense tensor that fills its memory, unless told otherwise."""
    shape = shape or (2, 3)
    size = 1
    for n in shape:
        size *= n
    made = TensorView(
        storage=storage, shape=shape, strides=dense(*shape), capacity=size,
        dtype=dtype, bytes=size * SIZES.get(dtype, 4),
    )  # fmt: skip
    return replace(made, **more)


def turned(storage: int, *shape: int, dtype: str = "float32") -> TensorView:
    """The last two axes of a dense tensor in turn."""
    view = value(storage, *shape, dtype=dtype)
    return replace(view, shape=_turn(view.shape), strides=_turn(view.strides))


def _turn(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return (*sizes[:-2], sizes[-1], sizes[-2])


def step(name: str, inputs: Any = (), outputs: Any = (), **more: Any) -> FlowStep:
    """A step that takes a second, unless told otherwise."""
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return FlowStep(name=name, inputs=inputs, outputs=outputs, **{"time": 1.0, "scope": "block", **more})


def use(*storages: int, to: int = 99, **more: Any) -> FlowStep:
    """A step that computes with some tensors."""
    return step("torch.nn.functional.linear", tuple(map(value, storages)), value(to), **more)


def judged(*steps: FlowStep, **more: Any) -> list[RedundantOp]:
    """Judge steps of a model whose input is memory 0, and whose output is memory 99."""
    return list(
        find_redundant_ops(
            DataFlow(steps=steps, **{"given": frozenset({0}), "outputs": frozenset({99}), **more})
        )
    )


def one(*steps: FlowStep, **more: Any) -> RedundantOp:
    """Give the one waste of a flow."""
    (redundant_op,) = judged(*steps, **more)
    return redundant_op


CLONE = step("torch.Tensor.clone", value(1), value(2))


class TestCopies:
    def test_a_clone_that_nothing_changes_is_needless(self) -> None:
        """It is told with its module, its cost and what to do."""
        waste = one(use(0, to=1), CLONE, use(1, 2))

        assert (waste.kind, waste.name, waste.scope) == (RedundancyKind.COPY, "Tensor.clone", "block")
        assert (waste.calls, waste.time, waste.bytes) == (1.0, 1.0, 24.0)
        assert "2x3 float32" in waste.reason
        assert waste.reason.endswith("use the original.")

    @pytest.mark.parametrize("storage", [1, 2])
    def test_a_clone_is_needed_where_either_side_changes(self, storage: int) -> None:
        """Whoever changes the copy or the original afterwards needs two of them."""
        changing = step("torch.Tensor.relu_", value(storage), value(storage), writes=frozenset({storage}))
        assert judged(use(0, to=1), CLONE, changing, use(1, 2)) == []

    def test_a_change_before_the_clone_does_not_count(self) -> None:
        """What happened to the original before is in the clone, too."""
        changing = step("torch.Tensor.relu_", value(1), value(1), writes=frozenset({1}))
        assert len(judged(use(0, to=1), changing, CLONE, use(1, 2))) == 1

    def test_a_returned_clone_is_needless_only_if_the_original_dies(self) -> None:
        """A result must not alias an input or another result."""
        assert one(use(0, to=1), CLONE, outputs=frozenset({2})).kind is RedundancyKind.COPY
        assert judged(use(0, to=1), CLONE, outputs=frozenset({1, 2})) == []
        from_input = step("torch.Tensor.clone", value(0), value(2))
        assert judged(from_input, outputs=frozenset({2})) == []

    def test_a_returned_clone_may_free_what_it_is_a_part_of(self) -> None:
        """A part of something large is copied so that the rest can go."""
        part = step("torch.Tensor.clone", value(1, 2, 3, capacity=600), value(2))
        assert judged(use(0, to=1), part, outputs=frozenset({2})) == []
        assert len(judged(use(0, to=1), part, use(2))) == 1

    def test_a_clone_that_the_model_keeps_is_needed(self) -> None:
        """A cache may be anything's past."""
        assert judged(use(0, to=1), CLONE, use(2), kept=frozenset({2})) == []

    def test_one_number_is_no_matter(self) -> None:
        """A clone of a single number is not worth a word."""
        assert judged(step("torch.Tensor.clone", value(0, 1), value(2, 1)), use(2)) == []

    def test_a_call_that_copies_nothing_is_none(self) -> None:
        """contiguous() of what is so already gives the same memory."""
        assert judged(step("torch.Tensor.contiguous", value(0), value(0)), use(0)) == []

    def test_a_copy_by_a_library_is_the_librarys(self) -> None:
        """Only copies that the model's code asks for by their name are judged."""
        assert judged(step("torch.nn.functional.dropout", value(0), value(2)), use(2)) == []

    def test_what_spreads_or_cuts_is_no_plain_copy(self) -> None:
        """A copy of an expanded or of a cut tensor lies in memory otherwise than what it is of."""
        spread = value(0, 2, 3, strides=(0, 1), capacity=3)
        cut = value(0, 2, 3, strides=(6, 1), capacity=12)
        for source in (spread, cut):
            assert judged(step("torch.Tensor.contiguous", source, value(2)), use(2)) == []

    def test_numbers_that_another_size_are_left_alone(self) -> None:
        """What gives more or fewer numbers than it takes is no copy."""
        assert judged(step("torch.Tensor.to", value(0, 4, 4), value(2)), use(2)) == []

    def test_alike_wastes_are_one(self) -> None:
        """Two clones in one module for one reason are two calls of one waste; dearer ones come first."""
        second = step("torch.Tensor.clone", value(1), value(3))
        other = step("torch.Tensor.clone", value(1), value(4), scope="other", time=5.0)
        result = judged(use(0, to=1), CLONE, second, other, use(1, 2, 3, 4))

        assert [(w.scope, w.calls, w.time, w.bytes) for w in result] == [
            ("other", 1.0, 5.0, 24.0),
            ("block", 2.0, 2.0, 48.0),
        ]


class TestFilling:
    MAKE = step("torch.empty_like", value(0), value(2))
    FILL = step("torch.Tensor.copy_", (value(2), value(0)), value(2), writes=frozenset({2}))

    def test_fresh_memory_that_one_copy_fills_is_needless(self) -> None:
        """It is a clone by another name."""
        assert one(self.MAKE, self.FILL, use(2)).name == "Tensor.copy_"

    def test_memory_that_more_than_one_step_fills_is_needed(self) -> None:
        """A buffer is put together of parts, or changed later."""
        later = step("torch.Tensor.add_", value(2), value(2), writes=frozenset({2}))
        assert judged(self.MAKE, self.FILL, later, use(2)) == []
        wide = value(2, 4, 3)
        part = replace(self.FILL, inputs=(value(2, capacity=12), value(0)), outputs=(value(2, capacity=12),))
        assert judged(step("torch.empty", (), wide), part, use(2)) == []

    def test_memory_that_was_there_or_was_read_is_needed(self) -> None:
        """A cache, numbers that are computed, and those that somebody has read are no fresh memory."""
        assert judged(self.FILL, use(2)) == []
        assert judged(use(0, to=2), self.FILL, use(2)) == []
        assert judged(self.MAKE, use(2, to=3), self.FILL, use(2)) == []

    def test_a_number_put_everywhere_is_no_copy(self) -> None:
        """copy_ of fewer numbers spreads them."""
        spread = replace(self.FILL, inputs=(value(2), value(0, 3)))
        assert judged(self.MAKE, spread, use(2)) == []
        alone = replace(self.FILL, inputs=(value(2),))
        assert judged(self.MAKE, alone, use(2)) == []


class TestCasts:
    @staticmethod
    def casts(outer: str = "float32", inner: str = "float16") -> tuple[FlowStep, FlowStep]:
        """There and back."""
        return (
            step("torch.Tensor.to", value(1, dtype=outer), value(2, dtype=inner)),
            step("torch.Tensor.float", value(2, dtype=inner), value(3, dtype=outer)),
        )

    def test_there_and_straight_back_is_needless(self) -> None:
        """Both casts are told as one, with what both cost."""
        waste = one(use(0, to=1), *self.casts(), use(3))

        assert (waste.kind, waste.time, waste.bytes) == (RedundancyKind.CAST, 2.0, 48.0)
        assert (
            "float32 is cast to float16 and straight back to float32, which loses precision" in waste.reason
        )

    @pytest.mark.parametrize(
        ("outer", "inner", "lossy"),
        [
            ("float16", "float32", False),
            ("bfloat16", "float16", True),
            ("float32", "float64", False),
            ("int64", "int32", False),
            ("bool", "float32", False),
        ],
    )
    def test_digits_are_lost_only_in_smaller_fractions(self, outer: str, inner: str, lossy: bool) -> None:
        """The reason says whether the cast loses precision."""
        waste = one(use(0, to=1), *self.casts(outer, inner), use(3))
        assert ("loses precision" in waste.reason) is lossy

    @pytest.mark.parametrize(
        ("outer", "inner"),
        [("float32", "int64"), ("float32", "bool"), ("float32", "float8_e4m3fn"), ("int64", "int8")],
    )
    def test_a_cast_that_computes_is_needed(self, outer: str, inner: str) -> None:
        """Cutting off fractions, asking for zero and quantising are computations."""
        assert judged(use(0, to=1), *self.casts(outer, inner), use(3)) == []

    def test_a_cast_that_somebody_else_uses_is_needed(self) -> None:
        """So is one whose result is changed, returned or kept, and one that is of other numbers by then."""
        there, back = self.casts()
        start = use(0, to=1)
        changing = step("torch.Tensor.add_", value(2), value(2), writes=frozenset({2}))
        after = step("torch.Tensor.add_", value(3), value(3), writes=frozenset({3}))
        assert judged(start, there, use(2), back, use(3)) == []
        assert judged(start, there, back, use(3), kept=frozenset({2})) == []
        assert judged(start, there, changing, back, use(3)) == []
        assert judged(start, there, back, after, use(3)) == []

    def test_a_view_in_between_changes_nothing(self) -> None:
        """One that only looks at numbers in another way is no use of them; a part is not all of them."""
        there, back = self.casts()
        view = step("torch.Tensor.transpose", value(2, dtype="float16"), turned(2, 2, 3, dtype="float16"))
        again = replace(back, inputs=(turned(2, 2, 3, dtype="float16"),))
        part = step("torch.Tensor.float", value(2, 1, 3, dtype="float16"), value(3, 1, 3))
        assert one(use(0, to=1), there, view, again, use(3)).kind is RedundancyKind.CAST
        assert judged(use(0, to=1), there, part, use(3)) == []

    def test_another_dtype_than_before_is_no_way_back(self) -> None:
        """From float16 by float32 to bfloat16 is a way of its own."""
        there = step("torch.Tensor.to", value(1, dtype="float16"), value(2, dtype="float32"))
        on = step("torch.Tensor.to", value(2, dtype="float32"), value(3, dtype="bfloat16"))
        assert judged(use(0, to=1), there, on, use(3)) == []

    def test_a_copy_is_no_cast(self) -> None:
        """Two clones in a row are two copies."""
        again = step("torch.Tensor.clone", value(2), value(3))
        assert [w.kind for w in judged(use(0, to=1), CLONE, again, use(3))] == [RedundancyKind.COPY] * 1
        assert judged(use(0, to=1), CLONE, again, use(3))[0].calls == 2


class TestLayouts:
    TURN = step("torch.Tensor.contiguous", turned(1, 2, 3), value(2, 3, 2))
    BACK = step("torch.Tensor.contiguous", turned(2, 3, 2), value(3, 2, 3))

    def test_a_round_trip_is_needless(self) -> None:
        """Turned, and turned back with nothing done in between: both copies are told as one."""
        waste = one(use(0, to=1), self.TURN, self.BACK, use(3))

        assert (waste.kind, waste.time, waste.bytes) == (RedundancyKind.LAYOUT, 2.0, 48.0)
        assert waste.reason.endswith("leave out both.")

    def test_a_first_copy_that_is_used_stays(self) -> None:
        """Then the way back alone is needless."""
        waste = one(use(0, to=1), self.TURN, use(2, to=5), self.BACK, use(3, 5))

        assert (waste.time, waste.bytes) == (1.0, 24.0)
        assert waste.reason.endswith("use the earlier tensor.")

    def test_the_first_copy_is_named_with_its_module_if_it_is_another_one(self) -> None:
        """The module that turns it back is the one that is told; the reason names the other."""
        waste = one(use(0, to=1), replace(self.TURN, scope="stem"), self.BACK, use(3))
        assert waste.scope == "block"
        assert "before Tensor.contiguous in stem;" in waste.reason
        redundant_op = one(use(0, to=1), replace(self.TURN, scope=""), self.BACK, use(3))
        assert "before Tensor.contiguous in the model;" in redundant_op.reason

    def test_one_copy_into_another_order_is_needed(self) -> None:
        """Something behind it may want the order, as a view that merges heads does."""
        assert judged(use(0, to=1), self.TURN, use(2)) == []

    @pytest.mark.parametrize("storage", [1, 2, 3])
    def test_a_change_on_the_way_makes_it_needed(self, storage: int) -> None:
        """What comes back is not what went there, or must not alias it."""
        changing = step("torch.Tensor.relu_", value(storage), value(storage), writes=frozenset({storage}))
        order = [use(0, to=1), self.TURN, self.BACK, use(3)]
        order.insert(3 if storage == 3 else 2, changing)
        assert judged(*order) == []

    def test_what_cannot_be_followed_is_left_alone(self) -> None:
        """Merged axes, parts, casts and other memory in between end the search."""
        merged = step("torch.Tensor.reshape", turned(1, 2, 3), value(2, 6))
        back = step("torch.Tensor.clone", value(2, 3, 2, strides=(1, 3)), value(3, 3, 2))
        assert judged(use(0, to=1), merged, back, use(3)) == []
        part = step("torch.Tensor.contiguous", value(2, 2, 2, strides=(1, 2), offset=2), value(3, 2, 2))
        assert judged(use(0, to=1), self.TURN, part, use(3)) == []
        first = step("torch.Tensor.contiguous", value(2, 2, 2, strides=(1, 2)), value(3, 2, 2))
        assert judged(use(0, to=1), self.TURN, first, use(3)) == []

    def test_three_ways_round_are_followed(self) -> None:
        """Turned, turned on, and turned back to the beginning."""
        shape = (2, 3, 5)
        start = value(1, *shape)
        once = value(2, 3, 5, 2)
        twice = value(3, 5, 2, 3)
        steps = (
            use(0, to=1),
            step("x.contiguous", replace(start, shape=(3, 5, 2), strides=(5, 1, 15)), once),
            step("x.contiguous", replace(once, shape=(5, 2, 3), strides=(2, 1, 10)), twice),
            step("x.contiguous", replace(twice, shape=(2, 3, 5), strides=(3, 1, 6)), value(4, *shape)),
            use(4),
        )
        waste = one(*steps)
        assert waste.kind is RedundancyKind.LAYOUT

    def test_the_same_order_made_twice_is_needless_once(self) -> None:
        """The second copy is told, and names the module of the first."""
        again = step("torch.Tensor.contiguous", turned(1, 2, 3), value(4, 3, 2), scope="values")
        waste = one(use(0, to=1), self.TURN, again, use(2, 4))

        assert (waste.kind, waste.scope) == (RedundancyKind.LAYOUT, "values")
        assert "Tensor.contiguous in block already made" in waste.reason

    @pytest.mark.parametrize("storage", [1, 2, 4])
    def test_made_twice_is_needed_where_something_changes(self, storage: int) -> None:
        """Neither of the two copies, nor in between what they are of, may change."""
        again = step("torch.Tensor.contiguous", turned(1, 2, 3), value(4, 3, 2))
        changing = step("torch.Tensor.relu_", value(storage), value(storage), writes=frozenset({storage}))
        order = [use(0, to=1), self.TURN, again, use(2, 4)]
        order.insert(3 if storage == 4 else 2, changing)
        assert judged(*order) == []

    def test_made_twice_is_needed_where_the_second_lives_on(self) -> None:
        """Two results that are alike must not be one."""
        again = step("torch.Tensor.contiguous", turned(1, 2, 3), value(4, 3, 2))
        assert judged(use(0, to=1), self.TURN, again, outputs=frozenset({2, 4})) == []


class TestWeights:
    CAST = step("torch.Tensor.to", value(7), value(2, dtype="float16"))

    def test_a_weight_that_is_converted_in_each_call_is_needless(self) -> None:
        """It could be stored as it is used."""
        cast = one(self.CAST, use(0, 2), weights=frozenset({7}))
        assert (cast.kind, "store it that way" in cast.reason) == (RedundancyKind.CAST, True)
        turn = step("torch.Tensor.contiguous", turned(7, 2, 3), value(2, 3, 2))
        assert one(turn, use(0, 2), weights=frozenset({7})).kind is RedundancyKind.LAYOUT

    def test_it_is_needed_where_it_changes_lives_on_or_is_a_part(self) -> None:
        """A part of a table is no weight; what is kept was converted once."""
        change = step("torch.Tensor.add_", value(7), value(7), writes=frozenset({7}))
        after = step("torch.Tensor.add_", value(2), value(2), writes=frozenset({2}))
        part = step("torch.Tensor.to", value(7, capacity=60), value(2, dtype="float16"))
        weights = frozenset({7})
        assert judged(self.CAST, use(0, 2), change, weights=weights) == []
        assert judged(self.CAST, after, use(0, 2), weights=weights) == []
        assert judged(self.CAST, use(0, 2), weights=weights, kept=frozenset({2})) == []
        assert judged(part, use(0, 2), weights=weights) == []
        assert judged(self.CAST, use(0, 2)) == []

    def test_a_clone_of_a_weight_that_changes_is_needed(self) -> None:
        """It is neither a conversion nor a needless copy."""
        clone = step("torch.Tensor.clone", value(7), value(2))
        change = step("torch.Tensor.add_", value(2), value(2), writes=frozenset({2}))
        assert one(clone, use(0, 2), weights=frozenset({7})).kind is RedundancyKind.COPY
        assert judged(clone, change, use(0, 2), weights=frozenset({7})) == []
        kept = replace(clone, outputs=(value(2),))
        assert judged(kept, use(0, 2), weights=frozenset({7}), outputs=frozenset({2})) == []


class TestTransfers:
    def test_what_crosses_is_told_by_its_way(self) -> None:
        """From a device to the host and back are two transfers."""
        down = step("torch.Tensor.cpu", value(1, device="cuda"), value(2))
        up = step("torch.Tensor.to", value(2), value(3, device="cuda"), scope="up")
        result = judged(use(0, to=1), down, up, use(3), device="cuda")

        assert [(w.kind, w.scope, w.bytes) for w in result] == [
            (RedundancyKind.TRANSFER, "block", 24.0),
            (RedundancyKind.TRANSFER, "up", 24.0),
        ]
        assert "to the host" in result[0].reason
        assert "from the host" in result[1].reason

    def test_from_device_to_device_is_needed(self) -> None:
        """A model that is spread over devices hands its activations on."""
        on = step("torch.Tensor.to", value(1, device="cuda"), value(2, device="xpu"))
        assert judged(use(0, to=1), on, use(2), device="cuda") == []

    def test_weights_that_are_brought_in_are_needed(self) -> None:
        """Weights that do not fit on the device come when their turn comes."""
        bring = step("torch.Tensor.to", value(7), value(2, device="cuda"), place="cuda")
        assert judged(bring, use(2), weights=frozenset({7}), device="cuda") == []

    def test_to_the_host_is_told_on_the_host_where_the_code_says_so(self) -> None:
        """It costs nothing there, and much on a device; a name taken from another tensor is none."""
        written = step("torch.Tensor.to", value(1), value(1), place="cpu", literal=True)
        taken = replace(written, literal=False)
        other = replace(written, place="cuda")
        assert one(use(0, to=1), written, use(1)).kind is RedundancyKind.TRANSFER
        assert judged(use(0, to=1), taken, use(1)) == []
        assert judged(use(0, to=1), other, use(1)) == []
        assert judged(use(0, to=1), written, use(1), device="cuda") == []

    def test_a_constant_that_is_made_and_moved_is_needless(self) -> None:
        """The making is part of what it costs; what is computed of constants alone is one."""
        make = step("torch.tensor", (), value(2), time=3.0)
        move = step("torch.Tensor.to", value(2), value(2), place="cpu")
        waste = one(make, move, use(0, 2))
        assert (waste.kind, waste.time, waste.bytes) == (RedundancyKind.TRANSFER, 4.0, 24.0)
        assert waste.reason.startswith("torch.tensor creates the same constant")

        square = step("torch.Tensor.mul", (value(2), value(2)), value(3))
        moved = step("torch.Tensor.to", value(3), value(4, device="cuda"), place="cuda")
        assert one(make, square, moved, use(0, 4), device="cuda").reason.startswith("Tensor.mul creates")

    def test_a_constant_made_where_it_is_used_is_none(self) -> None:
        """Nor is one that the code does not move, or that depends on the input."""
        here = step("torch.arange", (), value(2), place="cpu")
        move = step("torch.Tensor.to", value(2), value(2), place="cpu")
        mixed = step("torch.Tensor.mul", (value(2), value(0)), value(3))
        assert judged(here, move, use(0, 2)) == []
        assert judged(step("torch.tensor", (), value(2)), use(0, 2)) == []
        assert judged(step("torch.tensor", (), value(2)), mixed, replace(move, inputs=(value(3),))) == []

    def test_numbers_of_the_host_put_on_a_device_are_made_anew(self) -> None:
        """torch.tensor with a device copies from the host each time; arange computes there."""
        direct = step("torch.tensor", (), value(2, device="cuda"), place="cuda")
        assert one(direct, use(0, 2), device="cuda").kind is RedundancyKind.TRANSFER
        assert judged(replace(direct, name="torch.arange"), use(0, 2), device="cuda") == []

    def test_a_constant_from_before_is_named_by_its_move(self) -> None:
        """A step that is told to work on a constant of unknown making is named itself."""
        make = step("torch.zeros", (), (value(2), value(3)))
        move = step("torch.Tensor.to", value(3), value(3), place="cpu")
        assert "torch.zeros creates" in one(make, move, use(0, 3)).reason


class TestWaits:
    def test_a_number_for_the_host_is_a_wait(self) -> None:
        """It is told on the host, too, as it would be on a device."""
        waste = one(use(0, to=1), step("torch.Tensor.item", value(1, 1), awaited=(value(1, 1),)), use(1))
        assert (waste.kind, waste.name) == (RedundancyKind.SYNCHRONISATION, "Tensor.item")
        assert waste.reason.endswith("keep it a tensor.")

    def test_a_size_that_depends_on_numbers_is_a_wait(self) -> None:
        """Masks give as many numbers as are chosen, which the host must know."""
        waste = one(use(0, to=1), step("torch.nonzero", value(1), value(2), awaited=(value(1),)), use(2))
        assert "the size of its result" in waste.reason

    def test_a_condition_has_words_of_its_own(self) -> None:
        """Nobody writes __bool__."""
        waste = one(use(0, to=1), step("torch.Tensor.__bool__", value(1, 1), awaited=(value(1, 1),)))
        assert waste.reason.startswith("a condition on a tensor makes the host wait")

    def test_what_the_host_made_by_itself_stays_with_it(self) -> None:
        """On the host, numbers that depend on no input would not be on a device; shapes tell no numbers."""
        make = step("torch.zeros_like", value(0), value(2))
        listed = step("torch.Tensor.tolist", value(2))
        assert judged(make, listed) == []
        filled = step("torch.Tensor.add_", (value(2), value(0)), value(2), writes=frozenset({2}))
        assert len(judged(make, filled, listed)) == 1

    def test_on_a_device_only_what_is_there_is_waited_for(self) -> None:
        """A number of the host is at hand."""
        number = value(1, 1, device="cuda")
        there = step("torch.Tensor.item", number, awaited=(number,))
        here = step("torch.Tensor.item", value(1, 1), awaited=(value(1, 1),))
        assert len(judged(there, device="cuda")) == 1
        assert judged(here, device="cuda") == []

    def test_what_a_step_makes_within_itself_is_like_its_input(self) -> None:
        """allclose() waits for a number that only it has seen; a size may be a number of the host's."""
        inner = value(50, 1)
        assert len(judged(use(0, to=1), step("torch.allclose", (value(1), value(0)), awaited=(inner,)))) == 1
        assert judged(step("torch.allclose", (value(5), value(6)), awaited=(inner,))) == []
        size = step("torch.div", (), value(3, 1))
        shaped = step("torch.Tensor.view", (value(0), value(3, 1)), value(0), awaited=(value(3, 1),))
        assert judged(size, shaped) == []


def test_an_empty_call_has_no_waste() -> None:
    """Nothing is wasted where nothing is done."""
    assert find_redundant_ops(DataFlow(steps=())) == ()
