from __future__ import annotations

from inspect import signature

import pytest

import modeldyno
from modeldyno.api.error_wording import reword_errors, reword_for_python
from modeldyno.errors import OutOfTime


def test_a_live_object_is_told_of_its_example() -> None:
    """For missing inputs of a live object the error mentions example=; otherwise nothing is added."""
    output = reword_for_python("give it by --input.", live=True)

    assert output == "give it by inputs=. A live object also takes its inputs as example=."
    assert reword_for_python("give it, as `inputs=x=1x3`.", live=True).endswith("as example=.")
    assert reword_for_python("give it by `vary`.", live=True) == "give it by vary=."


def test_a_limit_that_was_too_short_is_named_as_an_argument() -> None:
    """The advice is what a caller types in Python."""

    @reword_errors
    def measure(model: str) -> None:
        raise OutOfTime(f"Nothing of {model} could be measured; give more time, such as --max-time 25s.")

    with pytest.raises(OutOfTime, match=r"such as max_time=25\.$"):
        measure("a.onnx")


def test_help_shows_types_as_they_are_written() -> None:
    """Signatures have no quoted types, and no lambda as a default."""
    for function in (modeldyno.profile, modeldyno.inspect, modeldyno.load):
        text = str(signature(function))

        assert "Result" in text
        assert "'Any'" not in text
        assert "lambda" not in text
