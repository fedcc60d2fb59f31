"""Who acts: the user of the process, whatever its variables say."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

from modeldyno.base.identity import actor

if TYPE_CHECKING:
    import pytest


def test_the_actor_is_the_user_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not who LOGNAME or USER names; a name that is given stands before it."""
    user = pwd.getpwuid(os.getuid()).pw_name
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(variable, "mallory")
    assert actor() == user
    monkeypatch.setenv("MODELDYNO_ACTOR", " ada ")
    assert actor() == f"ada ({user})"


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_number: int) -> None:
        raise KeyError

    monkeypatch.setattr("pwd.getpwuid", fail)
    assert actor() == str(os.getuid())
