from __future__ import annotations

import pytest

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.views.python_wording import translate_doubts, use_python_words


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("--memory takes an amount such as 24GiB.", "memory= takes an amount such as 24GiB."),
        ("give it, as --input x=1x128:int64, or a file.", "give it, as inputs='x=1x128:int64', or a file."),
        ("write --input x=batchx4.", "write inputs='x=batchx4'."),
        ("give other shapes by --input.", "give other shapes by inputs=."),
        ("inspect it with --mode inference.", "inspect it with mode='inference'."),
        ("give --trust if you know it.", "give trust=True if you know it."),
        ("ask for less with --max-time 3s.", "ask for less with max_time=3."),
        ("give it more time with --max-time", "give it more time with max_time="),
        ("pool fresh processes with --processes 5", "pool fresh processes with processes=5"),
        ("say so with --set batch_size=4, or not", "say so with batch_size=4, or not"),
        ("ask for fewer (--set threads=1): they", "ask for fewer (threads=1): they"),
        ("with --set precision=fp16.", "with precision='fp16'."),
        ("choose another with --backend triton.", "choose another with backend='triton'."),
        ("drop `pin`, or --inline", "drop pin=, or inline=True"),
        ("drop --no-store", "drop store=False"),
        ("a model--with dashes -- stays.", "a model--with dashes -- stays."),
    ],
)  # fmt: skip
def test_options_are_written_as_arguments(text: str, written: str) -> None:
    """Each field and each option is called as Python calls it; other text stays as it is."""
    assert use_python_words(text) == written


def test_doubts_advise_what_to_write_in_python() -> None:
    """Only the words change; the code stays."""
    (doubt,) = translate_doubts([Doubt(code="time-limit", seen="--max-time 2s", advice="raise --max-runs")])

    assert doubt == Doubt(code="time-limit", seen="max_time=2", advice="raise max_runs=")
