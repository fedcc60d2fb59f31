from __future__ import annotations

import pytest

from modeldyno.errors import RequestError
from modeldyno.registry.targets import named_device


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("cpu", "cpu"),
        ("CPU", "cpu"),
        ("gpu", "cuda:0"),
        ("gpu:1", "cuda:1"),
        ("cuda:07", "cuda:7"),
        ("cuda", "cuda:0"),
    ],
)
def test_a_device_has_one_name(text: str, name: str) -> None:
    assert named_device(text) == name


@pytest.mark.parametrize("text", ["", "banana", "gpu:", "gpu:0,1", "cuda:-1"])
def test_what_is_no_device_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="is no name of a device; write cpu, or gpu:0"):
        named_device(text)
