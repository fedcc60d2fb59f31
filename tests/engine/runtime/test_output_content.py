"""Whether outputs follow their inputs: constant, coarse and repeated ones are named, honest ones are not."""

from __future__ import annotations

import numpy as np
import pytest

from modeldyno.engine.data.outputs import sketch_output
from modeldyno.engine.runtime.output_content import coarse_output, constant_output, reverse_rows, rows_repeat
from modeldyno.engine.runtime.output_watch import OutputChecks

RANDOM = np.random.default_rng(0)
X = {"x": RANDOM.standard_normal((8, 256)).astype(np.float32)}
Y = np.tanh(X["x"] * 3).astype(np.float32)


def test_outputs_that_are_equal_for_all_inputs_are_constant() -> None:
    """One that differs is enough to be none."""
    same, other = sketch_output({"y": Y}), sketch_output({"y": Y + 1})

    assert [each.code for each in constant_output([X] * 3, {0: same, 1: same, 2: same})] == [
        "constant-output"
    ]
    assert not list(constant_output([X] * 3, {0: same, 1: same, 2: other}))
    assert not list(constant_output([X], {0: same}))


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_values_of_a_format_of_16_bits_are_coarse(kind: str) -> None:
    """Although they are float32."""
    narrow = (
        Y.astype(np.float16).astype(np.float32)
        if kind == "float16"
        else (Y.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    )

    (doubt,) = coarse_output(X, {"y": narrow})

    assert (doubt.code, kind in doubt.seen) == ("coarse-output", True)


@pytest.mark.parametrize(
    "values",
    [Y, np.round(Y * 100), np.round(Y * 4) / 4, Y.astype(np.float64), np.zeros_like(Y), Y > 0],
    ids=["float32", "whole numbers", "quarters", "float64", "zeros", "flags"],
)
def test_values_that_are_no_more_precise_by_nature_are_not_coarse(values: np.ndarray) -> None:
    """Whole numbers and simple fractions fit any format."""
    assert not list(coarse_output(X, {"y": values}))


def _half(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x[:4], x[:4]])


def _padded(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x[:4], np.zeros_like(x[4:])])


def _dead(x: np.ndarray) -> np.ndarray:
    return np.where(x[:, :1] > 0, x, 0)


def _labels(x: np.ndarray) -> np.ndarray:
    return np.round(x[:, :1] > 0).astype(np.float32)


@pytest.mark.parametrize(
    ("function", "named"),
    [(_half, True), (_padded, True), (_dead, False), (_labels, False), (np.tanh, False)],
)
def test_rows_that_repeat_at_the_same_places_are_named(function: object, named: bool) -> None:
    """Those that repeat because of what they hold go where the input's rows go."""
    assert callable(function)
    output, moved = ({"y": function(feed["x"])} for feed in (X, reverse_rows(X)))

    assert [each.code for each in rows_repeat(X, output, moved)] == ["rows-repeat"] * named


def test_an_output_of_another_input_is_named() -> None:
    """The same values by chance are none: a label has few."""
    checks, labels = OutputChecks(), OutputChecks()
    for payload in (0, 1, 1, 0):
        checks.add(payload, {"y": Y + (payload if checks.calls < 2 else 1 - payload)})
        labels.add(payload, {"y": np.array([payload if labels.calls < 2 else 1 - payload], np.float32)})

    assert "earlier-output" in {each.code for each in checks.doubts()}
    assert "earlier-output" not in {each.code for each in labels.doubts()}
