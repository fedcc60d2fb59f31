"""Sequences on a real Triton, whose stateful model writes down each request."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import modeldyno

if TYPE_CHECKING:
    from collections.abc import Mapping

REPOSITORY = Path(__file__).parents[2] / "zoo" / "triton"


def sequences(log: Path) -> Mapping[int, list[tuple[int, ...]]]:
    """Return what the model saw of each sequence: start, end, its step, the input."""
    seen = defaultdict(list)
    for line in log.read_text().splitlines():
        number, *rest = map(int, line.split())
        seen[number].append(tuple(rest))
    return seen


@pytest.mark.engine
@pytest.mark.parametrize("protocol", ["http-binary", "http-json", "grpc"])
@pytest.mark.parametrize("arrivals", [{}, {"rate": "300:poisson", "drivers": 2}], ids=["closed", "rate"])
def test_each_sequence_begins_goes_on_and_ends(
    protocol: str, arrivals: dict[str, str | int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real Triton gave every request to the state of its sequence, and none was left open."""
    monkeypatch.setenv("TALLY_LOG", str(tmp_path / "log"))

    result = modeldyno.load(
        f"{REPOSITORY}#tally",
        concurrency=4,
        sequence=(3, 9),
        max_time=2,
        protocol=protocol,
        store=False,
        **arrivals,
    )

    seen = sequences(tmp_path / "log")
    lengths = [len(steps) for steps in seen.values()]
    assert result["error_rate"] == 0
    assert len(lengths) > 10
    assert max(lengths) <= 9
    assert 5 < sum(lengths) / len(lengths) < 7
    for steps in seen.values():
        assert [step[:3] for step in steps] == [
            (int(number == 1), int(number == len(steps)), number) for number in range(1, len(steps) + 1)
        ]
