"""What a block of code could do without, on flows written by hand: what is named, and what is left alone."""

from __future__ import annotations

import pytest

from modeldyno.base.result.trace_data import RedundancyKind, RedundantOp
from modeldyno.engine.trace.code_findings import find_in_code
from modeldyno.engine.trace.dataflow import DataFlow, FlowStep, TensorView, TrackedCall, sum_calls


def value(storage: int, size: int = 8, dtype: str = "float32") -> TensorView:
    """A dense vector that fills its memory."""
    width = 8 if dtype == "float64" else 4
    return TensorView(
        storage=storage, shape=(size,), strides=(1,), capacity=size, dtype=dtype, bytes=size * width
    )


def growth(count: int, line: str = "a.py:3") -> list[FlowStep]:
    """A vector that grows by 8 elements, `count` times."""
    return [
        FlowStep(
            name="torch.cat",
            line=line,
            inputs=(value(i, 8 * i or 1), value(100 + i)),
            outputs=(value(i + 1, 8 * (i + 1)),),
            time=1.0,
        )
        for i in range(count)
    ]


def casts(count: int, *, line: str = "a.py:4", other: bool = False) -> list[FlowStep]:
    """One tensor that is cast `count` times, or as many tensors."""
    return [
        FlowStep(
            name="torch.Tensor.double",
            line=line,
            inputs=(value(100 + i if other else 7),),
            outputs=(value(i + 10, dtype="float64"),),
            time=1.0,
            names_dtype=True,
        )
        for i in range(count)
    ]


def elements(count: int, *, storages: int = 1, line: str = "a.py:5") -> list[FlowStep]:
    """Elements that are set one by one, in so many tensors."""
    return [
        FlowStep(
            name="torch.Tensor.__setitem__",
            line=line,
            inputs=(value(i % storages),),
            writes=frozenset({i % storages}),
            time=1.0,
        )
        for i in range(count)
    ]


def lists(count: int, numbers: int) -> list[FlowStep]:
    """Tensors of Python lists."""
    return [
        FlowStep(name="torch.tensor", line="a.py:6", outputs=(value(i),), listed=numbers, names_dtype=True)
        for i in range(count)
    ]


def double(*, named: bool = False, share: float = 1.0) -> list[FlowStep]:
    """A tensor of NumPy's numbers that something is computed with, which takes a share of the time."""
    wide = value(1, dtype="float64")
    return [
        FlowStep(name="torch.from_numpy", line="a.py:7", outputs=(wide,), names_dtype=named),
        FlowStep(name="torch.ones", line="a.py:7", outputs=(value(9, dtype="float64"),)),
        FlowStep(
            name="torch.matmul",
            line="a.py:8",
            inputs=(wide,),
            outputs=(value(2, dtype="float64"),),
            time=share,
        ),
        FlowStep(name="torch.relu", line="a.py:9", inputs=(value(3),), outputs=(value(4),), time=1 - share),
    ]


def judge(*steps: FlowStep, **more: object) -> list[RedundantOp]:
    """Judge a flow."""
    return list(find_in_code(DataFlow(steps=steps, **more)))  # type: ignore[arg-type]


def test_an_array_that_grows_in_a_loop_is_named_with_what_it_copies_again() -> None:
    """Four joins of 1, 2, 3 and 4 parts write ten, of which the last four are needed: 60 % is gained."""
    (finding,) = judge(*growth(5))
    assert (finding.kind, finding.name, finding.line, finding.calls) == (
        RedundancyKind.GROWTH, "torch.cat", "a.py:3", 4,
    )  # fmt: skip
    written = (2 + 3 + 4 + 5) * 32
    assert finding.bytes == written - 5 * 32
    assert finding.time == pytest.approx(4 * (1 - 5 * 32 / written))


def test_a_cast_in_a_loop_is_named_but_for_the_first() -> None:
    """Its gain is that of the others."""
    (finding,) = judge(*casts(4))
    assert (finding.kind, finding.name, finding.calls, finding.time) == (
        RedundancyKind.CAST, "Tensor.double", 3, 3.0,
    )  # fmt: skip
    assert "casts the same tensor to float64" in finding.reason


def test_a_tensor_that_python_fills_or_makes_is_named() -> None:
    """Element by element, of a list in each call, or of one long list."""
    assert [f.line for f in judge(*elements(32))] == ["a.py:5"]
    assert [f.line for f in judge(*lists(2, 64))] == ["a.py:6"]
    assert "a Python list of 4,096 numbers" in judge(*lists(1, 4096))[0].reason


def test_float64_that_nobody_has_named_is_named_where_it_begins() -> None:
    """With the share of the time that it takes, of which float32 saves about half."""
    (finding,) = judge(*double(share=0.4))
    assert (finding.kind, finding.line, finding.time) == (RedundancyKind.PRECISION, "a.py:7", 0.2)
    assert "1 operators compute in it, 40% of the operator time, most at a.py:8" in finding.reason


def test_float64_from_outside_torch_begins_where_it_is_first_used() -> None:
    """In a whole script, in which every tensor is made by a step or comes from elsewhere."""
    wide = value(1, dtype="float64")
    first = FlowStep(name="aten.lift_fresh.default", line="a.py:1", inputs=(wide,), outputs=(wide,))
    flow = DataFlow(steps=(first, *double()[2:]), given=frozenset({1}))
    (finding,) = find_in_code(flow, whole=True)
    assert (finding.kind, finding.line) == (RedundancyKind.PRECISION, "a.py:1")
    assert finding.reason.startswith("torch.from_numpy makes float64 of numbers of NumPy or Python")
    assert find_in_code(flow) == ()


def test_gradients_that_nobody_computes_are_named() -> None:
    """Of at least two calls at a line."""
    calls = [TrackedCall(module="Net", line="a.py:9", gradients=[])] * 2
    (finding,) = judge(tracked=tuple(calls))
    assert (finding.kind, finding.name, finding.line, finding.calls) == (
        RedundancyKind.GRADIENT, "Net", "a.py:9", 2,
    )  # fmt: skip


CHANGED = FlowStep(name="torch.Tensor.add_", inputs=(value(7),), writes=frozenset({7}))


@pytest.mark.parametrize(
    "steps",
    [
        growth(4),  # three times is no loop
        [*growth(3), *growth(3, "b.py:1")],
        growth(9, line=""),  # in a library
        [FlowStep(name="torch.cat", line="a.py:3", inputs=(value(1),))] * 9,  # gives nothing
        casts(2),
        casts(9, line=""),
        casts(9, other=True),
        [*casts(2), CHANGED, *casts(2)],  # not the same values
        elements(31),
        elements(64, storages=16),
        elements(64, line=""),
        lists(1, 4095),
        lists(9, 63),
        double(named=True),
        double(share=0.05),
        double()[:1],
        [*double()[2:]],
    ],
)
def test_what_may_be_meant_is_left_alone(steps: list[FlowStep]) -> None:
    """A single occurrence, another tensor each time, what a library does, what is named in the code."""
    assert judge(*steps) == []


def test_what_a_cast_changes_and_weights_are_left_to_others() -> None:
    """A result that is changed is needed, a weight has a rule of its own, a copy without a cast is none."""
    steps = casts(9)
    changed = [FlowStep(name="x", inputs=s.outputs, writes=frozenset({s.outputs[0].storage})) for s in steps]
    same = [
        FlowStep(name="torch.Tensor.clone", line="a.py:4", inputs=(value(7),), outputs=(value(i + 10),))
        for i in range(4)
    ]
    assert judge(*(step for pair in zip(steps, changed, strict=True) for step in pair)) == []
    assert judge(*steps, weights=frozenset({7})) == []
    assert judge(*same) == []


@pytest.mark.parametrize(
    "calls", [[("a.py:1", False)], [("a.py:1", False), ("a.py:1", True)], [("", False), ("", False)]]
)
def test_gradients_that_may_still_be_wanted_are_left_alone(calls: list[tuple[str, bool]]) -> None:
    """One call, one whose gradient came, or one that a library makes."""
    tracked = tuple(TrackedCall(module="Net", line=line, gradients=[True] * used) for line, used in calls)
    assert judge(tracked=tracked) == []


def test_calls_are_summed_by_their_names_in_the_code() -> None:
    """The slowest first."""
    rows = sum_calls(DataFlow(steps=(*casts(2), *growth(3))))
    assert [(row.name, row.calls, row.self_time) for row in rows] == [
        ("torch.cat", 3, 3.0),
        ("double", 2, 2.0),
    ]
