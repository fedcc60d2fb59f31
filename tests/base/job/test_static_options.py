from __future__ import annotations

import pytest

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.static_options import MOST_POINTS, StaticOptions, parse_vary


@pytest.mark.parametrize(
    ("texts", "sizes"),
    [
        ((), {}),
        (("",), {}),
        (("batch=8",), {"batch": (8,)}),
        (("batch=1..8",), {"batch": (1, 2, 4, 8)}),
        (("batch=1..6",), {"batch": (1, 2, 4, 6)}),
        (("batch=3..20",), {"batch": (3, 6, 12, 20)}),
        (("batch=4..4",), {"batch": (4,)}),
        (("seq=512,128,128",), {"seq": (128, 512)}),
        (("batch=1..4,32",), {"batch": (1, 2, 4, 32)}),
        (("batch=1..2 seq=128,512", "width=7"), {"batch": (1, 2), "seq": (128, 512), "width": (7,)}),
    ],
)
def test_sizes_are_read(texts: tuple[str, ...], sizes: dict[str, tuple[int, ...]]) -> None:
    """A range doubles and ends with its last number; sizes come sorted, each once."""
    assert parse_vary(texts) == sizes


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("batch", "`vary` 'batch' is not dimension=sizes"),
        ("=8", "`vary` '=8' is not dimension=sizes"),
        ("batch=", "`vary` 'batch=': '' is not a size"),
        ("batch=a", "'a' is not a size; write whole numbers from 1"),
        ("batch=0", "'0' is not a size"),
        ("batch=-1", "'-1' is not a size"),
        ("batch=1.5", "'1.5' is not a size"),
        ("batch=1,,2", "'' is not a size"),
        ("batch=1...4", "'1...4' is not a size"),
        ("batch=8..1", "the range 8..1 is empty; write the smaller number first"),
        ("batch=1 batch=2", "gives the dimension batch twice"),
        ("batch=" + "9" * 5000, "this is too large; a size has 12 digits at most"),
        ("batch=1..1000000000000", "'batch=1..1000000000000': this is too large"),
    ],
)
def test_what_are_no_sizes_is_refused(text: str, says: str) -> None:
    """The sentence quotes the part that is wrong and says what to write."""
    with pytest.raises(RequestError, match="`vary`") as caught:
        parse_vary([text])

    assert says in str(caught.value)


def test_an_inspection_is_checked() -> None:
    """What can be carried out is given back; the largest grid is no mistake."""
    largest = StaticOptions(
        vary={"batch": tuple(range(1, MOST_POINTS + 1))}, memory=1, devices=("a100", "here")
    )

    assert largest.checked() is largest


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (StaticOptions(optimizer="adamax"), "no optimizer 'adamax'; did you mean 'adam"),
        (
            StaticOptions(vary={"batch": tuple(range(1001)), "seq": (1, 2)}),
            "`vary` asks for 2,002 combinations",
        ),
        (StaticOptions(devices=("here", "a1000")), "no device 'a1000' in the table; known: h100, h100-pcie,"),
        (StaticOptions(memory=0), "`memory` takes an amount such as 24GiB, not 0"),
        (StaticOptions(memory=-(2**30)), "`memory` takes an amount such as 24GiB, not -1 GiB"),
    ],
)
def test_an_inspection_that_cannot_be_carried_out_is_refused(wrong: StaticOptions, says: str) -> None:
    """Before anything is loaded, one sentence says what is wrong."""
    with pytest.raises(RequestError) as caught:
        wrong.checked()

    assert says in str(caught.value)
    assert isinstance(caught.value, UnknownName) == says.startswith("no ")
