"""A sweep of batch sizes beside an input whose shape fixes the batch."""

from __future__ import annotations

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.sweeps.axes import check_batch_axis
from modeldyno.sweeps.study.search_space import Space, parse_axis

SPACE = Space(axes=(parse_axis("batch_size=1,8"),))


@pytest.mark.parametrize(
    ("text", "free"),
    [
        ("x=1x3x64x64", "x=batchx3x64x64"),
        ("1x8", "batchx8"),
        ("x=1,8", "x=batch,8"),
        ("ids=4x128:int64:0..99", "ids=batchx128:int64:0..99"),
    ],
)
def test_a_fixed_batch_is_refused_before_a_trial(text: str, free: str) -> None:
    """The message has the shape to write, which is accepted."""
    with pytest.raises(RequestError) as caught:
        check_batch_axis(SPACE, [text])
    assert str(caught.value) == (
        f"`inputs={text}` fixes the batch, which the axis batch_size varies; write `inputs={free}`."
    )
    check_batch_axis(SPACE, [free])


def test_what_fixes_no_batch_is_accepted() -> None:
    """A scalar, a list, a table beside an input whose batch is free, and one batch size alone."""
    check_batch_axis(SPACE, ["rate=scalar:int64:16000", "sizes=2"])
    check_batch_axis(SPACE, ["boxes=100x4", "x=batchx3x64x64"])
    check_batch_axis(Space(axes=(parse_axis("batch_size=4"),)), ["x=4x8"])
    check_batch_axis(Space(axes=(parse_axis("threads=1,2"),)), ["x=1x8"])
