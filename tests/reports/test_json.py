from __future__ import annotations

import pytest

from modeldyno.base import codec
from modeldyno.reports import json
from modeldyno.testing.reporters import DOCUMENTS, hostile_result


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_nothing_is_lost(kind: str) -> None:
    """What is written is read as the same Result."""
    document = DOCUMENTS[kind]()

    assert codec.decode(json.render(document)) == document


def test_what_acts_on_a_terminal_is_escaped_and_kept() -> None:
    """Control characters in names are written as escapes, and are read as what they were."""
    document = hostile_result("\x9b31m \x7f \u202e")
    written = json.render(document)

    assert rb"\u009b31m \u007f \u202e" in written
    assert codec.decode(written) == document
