"""Sequences on a real Triton, whose stateful model writes down each request."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import modeldyno

if TYPE_CHECKING:
    from collections.abc import Mapping

REPOSITORY = Path(__file__).parents[2] / "zoo" / "triton_repository"


def sequences(log: Path) -> Mapping[int, list[tuple[int, ...]]]:
    """Return what the model saw of each sequence: start, end, its step, the input."""
    by_sequence = defaultdict(list)
    for line in log.read_text().splitlines():
        number, *rest = map(int, line.split())
        by_sequence[number].append(tuple(rest))
    return by_sequence


@pytest.mark.engine
@pytest.mark.parametrize("protocol", ["http-binary", "http-json", "grpc"])
@pytest.mark.parametrize("arrivals", [{}, {"rate": "300:poisson", "drivers": 2}], ids=["closed", "rate"])
def test_each_sequence_begins_goes_on_and_ends(
    protocol: str, arrivals: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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

    by_sequence = sequences(tmp_path / "log")
    lengths = [len(steps) for steps in by_sequence.values()]
    assert result["error_rate"] == 0
    assert len(lengths) > 10
    assert max(lengths) <= 9
    assert 5 < sum(lengths) / len(lengths) < 7
    for steps in by_sequence.values():
        assert [step[:3] for step in steps] == [
            (int(number == 1), int(number == len(steps)), number) for number in range(1, len(steps) + 1)
        ]


@pytest.mark.engine
@pytest.mark.parametrize("protocol", ["http-binary", "grpc"])
def test_the_answers_to_streams_of_requests_are_those_expected(protocol: str, tmp_path: Path) -> None:
    """A stateful model sums each stream of a file up, as its expected answers say; a wrong one is found."""
    path = tmp_path / "requests.json"
    document: dict[str, Any] = {
        "data": [
            [{"INPUT": [1]}, {"INPUT": {"b64": "AgAAAA=="}}],
            [{"INPUT": [5]}, {"INPUT": [6]}, {"INPUT": [7]}],
        ],
        "validation_data": [
            [{"OUTPUT": [1], "STEP": [1]}, {"OUTPUT": {"b64": "AwAAAA=="}}],
            [{"OUTPUT": [5]}, {"OUTPUT": [11]}, {"OUTPUT": [18], "STEP": [3]}],
        ],
    }

    def load() -> modeldyno.Result:
        path.write_text(json.dumps(document))
        return modeldyno.load(
            f"{REPOSITORY}#tally", concurrency=3, sequence="data", inputs=str(path), max_time=2,
            protocol=protocol, store=False,
        )  # fmt: skip

    result = load()
    assert result.failure is None
    assert result["checked_calls"] == 10

    document["validation_data"][1][2]["OUTPUT"] = [19]
    failure = load().failure
    assert failure is not None
    assert "that to request 5: output 'OUTPUT' is 18 where 19 is expected" in failure.message
