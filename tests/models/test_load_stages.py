from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from modeldyno.models.load_stages import describing, importing, loading

if TYPE_CHECKING:
    from modeldyno.models.load_stages import WatchStage


def test_describing_is_no_part_of_loading() -> None:
    """Watchers are notified, and the seconds counted separately; loading continues afterwards."""
    stages: list[WatchStage] = []
    with loading(stages.append) as account:
        with importing():
            pass
        with describing(), importing():  # within another it is part of that
            pass

    assert stages == ["load", "import", "load", "ours", "load"]
    assert account.described > 0


def test_nobody_need_watch() -> None:
    """A loader can be called on its own."""
    ran = False
    with describing(), importing():
        ran = True

    assert ran


def test_an_error_leaves_nothing_behind() -> None:
    """The next model is loaded as if the first had not failed."""
    stages: list[WatchStage] = []
    with pytest.raises(ValueError, match="damaged"), loading(stages.append), describing():
        raise ValueError("damaged")
    with describing():
        pass

    assert stages == ["load", "ours", "load"]
