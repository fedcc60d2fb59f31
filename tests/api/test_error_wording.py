from __future__ import annotations

from inspect import signature

import modeldyno
from modeldyno.api.error_wording import reword_for_python


def test_a_live_object_is_told_of_its_example() -> None:
    """For missing inputs of a live object the error mentions example=; otherwise nothing is added."""
    output = reword_for_python("give it by --input.", live=True)

    assert output == "give it by inputs=. A live object also takes its inputs as example=."
    assert reword_for_python("give it, as `inputs=x=1x3`.", live=True).endswith("as example=.")
    assert reword_for_python("give it by `vary`.", live=True) == "give it by vary=."


def test_help_shows_types_as_they_are_written() -> None:
    """Signatures have no quoted types, and no lambda as a default."""
    for function in (modeldyno.profile, modeldyno.inspect, modeldyno.load):
        shown = str(signature(function))

        assert "Result" in shown
        assert "'Any'" not in shown
        assert "lambda" not in shown
