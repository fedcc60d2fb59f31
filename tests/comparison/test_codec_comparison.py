"""Comparisons as documents."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base import codec
from modeldyno.base.errors import RequestError, UnreadableDocument
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Interval
from modeldyno.base.metrics.metric import Query
from modeldyno.base.result.output_agreement import OutputAgreement
from modeldyno.comparison import codec as codec_comparison
from modeldyno.comparison.change.comparison import (
    CandidateComparison,
    Cause,
    CausePart,
    Change,
    ChangeVerdict,
    Comparison,
    SettingDiff,
)
from modeldyno.sweeps import codec as codec_study
from modeldyno.testing.sample_results import a_result, an_inspection
from modeldyno.testing.sample_studies import a_study

if TYPE_CHECKING:
    from pathlib import Path

P50 = Query.parse("latency.p50")
CHANGE = Change(
    query=P50,
    baseline=1.0,
    candidate=None,
    difference=None,
    interval=Interval(low=-inf, high=inf),
    outcome=ChangeVerdict.UNDECIDED,
    why="too few",
)
WHOLE = Comparison(
    id="c" * 12,
    created="2026-01-02T03:04:05.678+00:00",
    baseline=a_result(),
    contrasts=(
        CandidateComparison(
            candidate=an_inspection(),
            changes=(CHANGE, replace(CHANGE, interval=None, difference=0.5, outcome=ChangeVerdict.WORSE)),
            judged=(P50,),
            settings=(SettingDiff(name="threads", baseline=2, candidate=None),),
            software=(SettingDiff(name="torch", baseline="2.1", candidate="2.2"),),
            hardware=(SettingDiff(name="cores", baseline=2, candidate=8),),
            outputs=(OutputAgreement(output="y", largest=inf, relative=0.5, cosine=0.9),),
            causes=(
                Cause(
                    query=P50,
                    by="layers",
                    total=1.0,
                    parts=(
                        CausePart(
                            scope="fc",
                            kind="Linear",
                            baseline=0.5,
                            candidate=1.5,
                            interval=Interval(low=0.5, high=inf),
                            changed=True,
                        ),
                    ),
                ),
            ),
            doubts=(Doubt(code="not-in-turns", seen="apart", advice="together"),),
        ),
    ),
    order="alternating",
    sequence=(0, 1, 1, 0),
    level=0.98,
)


def test_round_trip() -> None:
    """No part is lost, including infinite ends."""
    assert codec_comparison.decode(codec_comparison.encode(WHOLE)) == WHOLE


def test_its_results_have_their_certificates() -> None:
    """The document has certificates, for readers in other languages."""
    document = json.loads(codec_comparison.encode(WHOLE))

    assert document["kind"] == "comparison"
    latency = next(m for m in document["baseline"]["measurements"] if m["metric"] == "latency")
    assert latency["value"]["certificate"]["n"] == 8


def test_file(tmp_path: Path) -> None:
    """A file has its kind."""
    paths = [tmp_path / name for name in ("c.json", "s.json", "r.json")]
    for path, data in zip(
        paths,
        (codec_comparison.encode(WHOLE), codec_study.encode(a_study()), codec.encode(a_result())),
        strict=True,
    ):
        codec.write(path, data)

    assert [codec.kind_name(path.read_bytes()) for path in paths] == ["comparison", "study", ""]
    assert codec_comparison.read(paths[0]) == WHOLE
    with pytest.raises(RequestError, match="Cannot read"):
        codec_comparison.read(tmp_path / "absent.json")


def test_another_document_is_no_comparison() -> None:
    """A comparison is not read as a result or a study, and vice versa."""
    for data in (codec.encode(a_result()), codec_study.encode(a_study()), b"[]"):
        with pytest.raises(UnreadableDocument, match="but not a ModelDyno comparison"):
            codec_comparison.decode(data)
    with pytest.raises(UnreadableDocument, match="but not a ModelDyno study"):
        codec_study.decode(codec_comparison.encode(WHOLE))


def test_later_schema() -> None:
    """A later schema of the comparison or of a result in it is refused."""
    document = json.loads(codec_comparison.encode(WHOLE))
    later = json.dumps({**document, "schema": 99})
    inner = json.dumps({**document, "baseline": {**document["baseline"], "schema": 99}})

    for data in (later, inner):
        with pytest.raises(UnreadableDocument, match="has schema 99"):
            codec_comparison.decode(data)


@pytest.mark.parametrize(
    "broken",
    [
        {"contrasts": [{}]},
        {"baseline": None},
        {"contrasts": None},
        {"sequence": ["a"]},
        {"schema": "1"},
    ],
)
def test_damaged(broken: dict[str, Any]) -> None:
    """A damaged document is refused in one sentence."""
    document = {**json.loads(codec_comparison.encode(WHOLE)), **broken}

    with pytest.raises(UnreadableDocument, match="is damaged or not a ModelDyno comparison"):
        codec_comparison.decode(json.dumps(document))


def test_truncated() -> None:
    """A truncated document is refused, wherever it is cut."""
    data = codec_comparison.encode(WHOLE)

    for end in range(0, len(data) - 2, len(data) // 50):
        with pytest.raises(UnreadableDocument):
            codec_comparison.decode(data[:end])


def test_a_result_that_cannot_be_is_refused() -> None:
    """As it is by itself."""
    document = json.loads(codec_comparison.encode(WHOLE))
    document["baseline"]["measurements"][0]["value"]["runs"] = []

    with pytest.raises(UnreadableDocument, match="the samples of latency are truncated"):
        codec_comparison.decode(json.dumps(document))
