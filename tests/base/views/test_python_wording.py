from __future__ import annotations

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.views.python_wording import translate_doubts


def test_doubts_advise_what_to_write_in_python() -> None:
    """Only the words change; the code stays."""
    (doubt,) = translate_doubts([Doubt(code="time-limit", seen="`max_time=2`", advice="raise `max_runs`")])

    assert doubt == Doubt(code="time-limit", seen="max_time=2", advice="raise max_runs=")
