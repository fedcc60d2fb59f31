"""Outputs of other configurations and models are judged by a tolerance, or by the user's own function."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.conversion.agreement.rule import OutputCheck, Tolerance
from modeldyno.conversion.judge_outputs import judge, judge_files
from modeldyno.conversion.request import make_output_check, parse_tolerance
from modeldyno.engine.data.outputs import named_arrays

if TYPE_CHECKING:
    from pathlib import Path

JUDGES = """
import os
import numpy as np

def near(outputs, expected):
    return np.abs(outputs - expected).max() < 0.5

def equal(outputs, expected):
    np.testing.assert_array_equal(outputs, expected)
    return True

def named(outputs, expected):
    return sorted(outputs) == ["boxes", "scores"] and outputs["boxes"].shape == (2, 4)

def nothing(outputs, expected):
    np.allclose(outputs, expected)

def ends(outputs, expected):
    os.abort()
"""
EXPECTED = {"scores": np.array([[1.0, 2.0], [3.0, 4.0]])}
OFF = {"scores": EXPECTED["scores"] + 0.1}


@pytest.fixture
def judges(tmp_path: Path) -> str:
    """Return the path of a file with functions."""
    path = tmp_path / "judges.py"
    path.write_text(JUDGES)
    return str(path)


def test_the_output_farthest_beyond_its_tolerance_is_named() -> None:
    """An output without a share of its own may be off by a hundredth."""
    wide = OutputCheck(tolerance=Tolerance(outputs={"scores": 0.03}, by="ada"))
    narrow = OutputCheck(tolerance=Tolerance(relative=0.02, by="ada"))

    assert not judge(EXPECTED, OFF, wide)
    assert judge(EXPECTED, OFF, narrow) == (
        "output 'scores' is off by 0.025 of its largest value, where 0.02 is allowed"
    )
    assert "0.01 is allowed" in judge(EXPECTED, OFF, OutputCheck(tolerance=Tolerance(by="ada")))


def test_other_shapes_never_do() -> None:
    """Whoever judges."""
    check = OutputCheck(tolerance=Tolerance(relative=0.9, by="ada"))

    assert judge(EXPECTED, {"scores": np.zeros((2, 3))}, check)


def test_a_tolerance_of_an_unknown_output_is_refused() -> None:
    """With the nearest known name."""
    with pytest.raises(UnknownName, match="did you mean 'scores'"):
        judge(EXPECTED, OFF, OutputCheck(tolerance=Tolerance(outputs={"score": 0.1}, by="ada")))


def test_the_function_of_the_user_judges_in_a_process_of_its_own(judges: str) -> None:
    """It returns whether the outputs will do, or raises an AssertionError; it may even crash."""
    assert not judge(EXPECTED, OFF, OutputCheck(verify=f"{judges}:near"))
    assert judge(EXPECTED, OFF, OutputCheck(verify=f"{judges}:equal")).startswith(
        "judges.py:equal refuses them: Arrays are not equal"
    )
    with pytest.raises(RequestError, match="returns nothing"):
        judge(EXPECTED, OFF, OutputCheck(verify=f"{judges}:nothing"))
    with pytest.raises(RequestError, match="gave no answer: it crashed"):
        judge(EXPECTED, OFF, OutputCheck(verify=f"{judges}:ends"))


def test_several_outputs_are_given_by_the_names_of_the_expected_ones(judges: str) -> None:
    """Those of a converted model may have others."""
    expected = {"scores": np.zeros((2, 2)), "boxes": np.zeros((2, 4))}
    actual = {"out0": np.zeros((2, 2)), "out1": np.zeros((2, 4))}

    assert not judge(expected, actual, OutputCheck(verify=f"{judges}:named"))


def test_of_calls_of_other_inputs_nothing_is_said(tmp_path: Path) -> None:
    """Of another batch size, the samples that both have are compared."""
    paths = [tmp_path / name for name in ("a.npz", "b.npz", "c.npz")]
    x = np.arange(6.0).reshape(3, 2)
    for path, inputs, outputs in (
        (paths[0], x, x),
        (paths[1], x[:2], x[:2]),
        (paths[2], x[:2] + 1, x[:2]),
    ):
        np.savez(path, **named_arrays({"x": inputs}, {"y": outputs}))  # type: ignore[arg-type]
    check = OutputCheck(tolerance=Tolerance(relative=1e-6, by="ada"))

    assert not judge_files(paths[0], paths[1], check)
    with pytest.raises(ValueError, match="different inputs"):
        judge_files(paths[0], paths[2], check)


def test_a_tolerance_is_a_number_text_or_a_mapping() -> None:
    """One without a name is that of all other outputs."""
    expected = Tolerance(relative=1e-3, outputs={"boxes": 0.02}, by="ada")

    assert parse_tolerance(1e-3, by="ada") == Tolerance(relative=1e-3, by="ada")
    assert parse_tolerance("1e-3,boxes=2%", by="ada") == expected
    assert parse_tolerance({"boxes": 0.02, "": 1e-3}, by="ada") == expected
    for wrong in ("2", "boxes=0", "boxes=1%,boxes=2%", "much"):
        with pytest.raises(RequestError):
            parse_tolerance(wrong)


def test_a_function_and_a_tolerance_exclude_each_other(judges: str) -> None:
    """Only one of them can judge."""
    with pytest.raises(RequestError, match="give one of verify and tolerance"):
        make_output_check(1e-3, f"{judges}:near")
    assert make_output_check(None, None) is None
