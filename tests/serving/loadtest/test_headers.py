"""Headers in the environment: there within the block, and as before after it."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest

from modeldyno.serving.load.endpoint_url import HEADERS_VARIABLE
from modeldyno.serving.loadtest.series import headers_in_environment


@pytest.mark.parametrize("before", [None, "Old: 1"])
def test_headers_last_as_long_as_the_block(monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    """A later call in the same process does not send them, even after an error."""
    monkeypatch.delenv(HEADERS_VARIABLE, raising=False)
    if before is not None:
        monkeypatch.setenv(HEADERS_VARIABLE, before)
    with suppress(ValueError), headers_in_environment(["A: b", "C: d"]):
        assert os.environ[HEADERS_VARIABLE] == "A: b\nC: d"
        raise ValueError
    assert os.environ.get(HEADERS_VARIABLE) == before


def test_no_headers_leave_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the user has set is sent."""
    monkeypatch.setenv(HEADERS_VARIABLE, "Old: 1")
    with headers_in_environment([]):
        assert os.environ[HEADERS_VARIABLE] == "Old: 1"
