from __future__ import annotations

from typing import Any

import pytest

from modeldyno.core.metrics.measurement_plan import Plan


@pytest.mark.parametrize("name", ["max_time", "min_runs", "timeout", "memory_limit"])
def test_text_is_no_number(name: str) -> None:
    """A quantity with a unit belongs to the command line; a Plan holds base units."""
    wrong: dict[str, Any] = {name: "2s"}

    with pytest.raises(ValueError, match=f"`{name}` is '2s', but must be a number in base units"):
        Plan(**wrong)
