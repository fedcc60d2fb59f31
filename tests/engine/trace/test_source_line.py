"""Which lines of a traceback are the user's own."""

from __future__ import annotations

import json
import sysconfig

import pytest

from modeldyno.base.metrics import metric
from modeldyno.models.static.source_line import format_error_location, is_user_file, short_path

OTHERS = (
    "<string>",
    "<frozen importlib._bootstrap>",
    f"{sysconfig.get_path('stdlib')}/json/decoder.py",
    f"{sysconfig.get_path('purelib')}/torch/nn/modules/linear.py",
    "/usr/lib/python3/dist-packages/numpy/core.py",
    metric.__file__,
)


@pytest.mark.parametrize("filename", OTHERS)
def test_lines_of_others_are_told_apart(filename: str) -> None:
    """What is installed, Python's, ModelDyno's, or compiled from text is not the user's code."""
    assert not is_user_file(filename)


@pytest.mark.parametrize(
    "filename", ["mynet.py", "/work/torch/mynet.py", "/work/transformers/net.py", __file__]
)
def test_a_folder_named_like_a_library_is_none(filename: str) -> None:
    """A file elsewhere is the user's, whatever its folder is called."""
    assert is_user_file(filename)


def test_the_innermost_line_of_the_user_is_told() -> None:
    """An error that a library raises is told at the line of the user's code that called it."""
    with pytest.raises(json.JSONDecodeError) as raised:
        json.loads("no")
    line = raised.traceback[0].lineno + 1

    assert len(raised.traceback) > 1
    assert format_error_location(raised.value) == f"test_source_line.py:{line}"


def test_an_error_without_a_line_of_the_user_has_none() -> None:
    """An error that was never raised came through no line."""
    assert format_error_location(ValueError("x")) == ""


def test_a_file_of_a_library_is_named_from_its_package_on() -> None:
    """The path of an environment says nothing of an error, and would break a line of the report."""
    assert short_path("/opt/env/lib/python3.11/site-packages/torch/nn/linear.py") == "torch/nn/linear.py"
    assert short_path("/home/user/net.py") == "/home/user/net.py"
