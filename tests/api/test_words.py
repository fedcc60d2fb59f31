from __future__ import annotations

import pytest

from modeldyno.api.words import worded


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("--memory takes an amount such as 24GiB.", "memory= takes an amount such as 24GiB."),
        ("give it, as --input x=1x128:int64, or a file.", "give it, as inputs='x=1x128:int64', or a file."),
        ("write --input x=batchx4.", "write inputs='x=batchx4'."),
        ("give other shapes by --input.", "give other shapes by inputs=."),
        ("inspect it with --mode inference.", "inspect it with mode='inference'."),
        ("give --trust if you know it.", "give trust=True if you know it."),
        ("ask for less with --max-time 3s.", "ask for less with max_time= 3s."),
        ("a model--with dashes -- stays.", "a model--with dashes -- stays."),
    ],
)  # fmt: skip
def test_options_are_written_as_arguments(text: str, written: str) -> None:
    """Each option of the command line is called as Python calls it; other text stays as it is."""
    assert worded(text, live=False) == written


def test_a_live_object_is_told_of_its_example() -> None:
    """Where inputs are missing, a live object has a better way than shapes; elsewhere nothing is added."""
    told = worded("give it by --input.", live=True)

    assert told == "give it by inputs=. A live object takes its inputs as example=, too."
    assert worded("give it by --vary.", live=True) == "give it by vary=."
