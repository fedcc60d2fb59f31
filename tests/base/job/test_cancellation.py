"""Which share of requests is given up, as it is written."""

from __future__ import annotations

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.cancellation import Cancellation, parse_cancellation
from modeldyno.base.job.load_spec import Load


@pytest.mark.parametrize(
    ("text", "share", "after", "written"),
    [
        ("5%:0.5s", 0.05, 0.5, "5%:0.5s"),
        ("0.2:300ms", 0.2, 0.3, "20%:0.3s"),
        ("12.5 %:0", 0.125, 0.0, "12.5%:0s"),
        ("5%:0.00005", 0.05, 5e-5, "5%:0.00005s"),
    ],
)
def test_a_share_is_read_and_written_back(text: str, share: float, after: float, written: str) -> None:
    """With when its requests are given up."""
    cancel = parse_cancellation(text)
    assert cancel == Cancellation(share=share, after=after)
    assert str(cancel) == written
    assert parse_cancellation(written) == cancel
    assert parse_cancellation(cancel) is cancel
    assert parse_cancellation(None) is None


@pytest.mark.parametrize("text", ["5%", "often", "5%:soon", ":1s"])
def test_what_is_no_share_and_time_is_refused(text: str) -> None:
    """The answer says how to write one."""
    with pytest.raises(RequestError, match=r"write 5%:0\.5s to give up 5 %"):
        parse_cancellation(text)


@pytest.mark.parametrize("text", ["0%:1s", "100%:1s", "5%:25h"])
def test_a_share_of_none_or_all_is_refused(text: str) -> None:
    """Nothing would be measured of a load whose requests are all given up."""
    with pytest.raises(RequestError, match="below 100% and a time"):
        parse_cancellation(text)


def test_a_load_says_what_it_gives_up() -> None:
    """After what it is else."""
    load = Load(concurrency=4, cancel=Cancellation(share=0.05, after=0.5))
    assert str(load) == "concurrency 4, giving up 5% after 0.5s"
