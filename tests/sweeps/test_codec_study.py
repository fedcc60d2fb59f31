"""Studies to JSON and back: equal, with a schema number, and refused in one line where they are damaged."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base import codec
from modeldyno.base.errors import RequestError, UnreadableDocument
from modeldyno.base.job.load_spec import Load
from modeldyno.base.metrics.constraints import Answer, Constraint, Judgement, Verdict
from modeldyno.base.metrics.measurement import Interval
from modeldyno.base.metrics.metric import Query
from modeldyno.sweeps import codec as codec_study
from modeldyno.sweeps.study.study import SCHEMA, Budget, Study, Trial, TrialState
from modeldyno.testing.sample_results import a_result
from modeldyno.testing.sample_studies import a_served_study, a_study
from modeldyno.testing.stores import TRIALS, add_sample_trial

if TYPE_CHECKING:
    from pathlib import Path

BOUND = Constraint.parse("latency.p99 <= 10ms")
OPEN = Answer(query=Query.parse("latency.p99"), value=None, interval=Interval(low=0.001, high=inf), why="few")
UNCERTAIN = Trial(
    number=1,
    point={"a": 1, "b": 0.5, "c": True, "d": "4,8"},
    state=TrialState.DONE,
    answers=(OPEN, replace(OPEN, interval=Interval(low=-inf, high=inf)), replace(OPEN, interval=None)),
    judgements=(Judgement(constraint=BOUND, verdict=Verdict.UNDECIDED, answer=OPEN),),
)


def a_full_study() -> Study:
    """Make a study in which no part is left out."""
    study = a_served_study(
        "instances=1,2",
        "queue_delay=0,100 if instances=2",
        settings={"threads": 2},
        default={"instances": 1},
        budget=Budget(max_time=60.0, max_trials=9),
        job=replace(a_served_study().job, load=Load(concurrency=2)),
    )
    for result, ask in TRIALS:
        study, _ = add_sample_trial(study, result, ask)
    return study.add(replace(UNCERTAIN, number=len(study.trials) + 1))


@pytest.mark.parametrize("study", [a_study(), a_full_study(), a_study(trials=(UNCERTAIN,))])
def test_round_trip(study: Study) -> None:
    """A study comes back equal, also with separate trials."""
    assert codec_study.decode(codec_study.encode(study)) == study
    assert (
        codec_study.decode(codec_study.encode_definition(study), *map(codec_study.encode_trial, study.trials))
        == study
    )


def test_what_was_derived_is_not_written() -> None:
    """Cached properties of a study do not change its document."""
    study = a_full_study()
    before = codec_study.encode(study)
    assert study.candidates
    assert study.skipped

    assert codec_study.encode(study) == before
    assert {"measured", "candidates", "skipped"}.isdisjoint(json.loads(before))


def test_file(tmp_path: Path) -> None:
    """A study that was written to a file is read from it."""
    codec.write(tmp_path / "study.json", codec_study.encode(a_full_study()))

    assert codec_study.read(tmp_path / "study.json") == a_full_study()
    with pytest.raises(RequestError, match="Cannot read"):
        codec_study.read(tmp_path / "none.json")


def test_a_study_is_no_result_and_a_result_no_study() -> None:
    """Each kind of document is refused where the other is wanted."""
    with pytest.raises(UnreadableDocument, match="not a ModelDyno study"):
        codec_study.decode(codec.encode(a_result()))
    with pytest.raises(UnreadableDocument, match="not a ModelDyno result"):
        codec.decode(codec_study.encode(a_study()))


def plain(study: Study) -> Any:
    return json.loads(codec_study.encode(study))


def test_later_schema() -> None:
    """A study of a later schema is refused, with the advice to upgrade."""
    assert plain(a_study())["schema"] == SCHEMA
    with pytest.raises(UnreadableDocument, match=r"has schema 99.*upgrade ModelDyno"):
        codec_study.decode(json.dumps(plain(a_study()) | {"schema": 99}))


def test_upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    """A study of an older schema goes through every upgrade, its trials included."""

    def upgrade(document: dict[str, Any]) -> dict[str, Any]:
        trials = [{**trial, "number": trial["count"]} for trial in document["trials"]]
        return document | {"trials": trials, "schema": SCHEMA}

    study = a_full_study()
    older = plain(study) | {"schema": SCHEMA - 1}
    for trial in older["trials"]:
        trial["count"] = trial.pop("number")
    monkeypatch.setitem(codec_study.UPGRADES, SCHEMA - 1, upgrade)

    assert codec_study.decode(json.dumps(older)) == study


def test_a_hole_in_the_log() -> None:
    """A study from which a trial is missing is refused: it would be measured again as another one."""
    study = a_full_study()
    with pytest.raises(UnreadableDocument, match="without a gap"):
        codec_study.decode(
            codec_study.encode_definition(study), *map(codec_study.encode_trial, study.trials[1:])
        )


def understood(data: bytes) -> Study | None:
    """Read a study; None if it is refused in one line that says what it is."""
    try:
        return codec_study.decode(data, origin="s.json")
    except UnreadableDocument as error:
        output = str(error)
    assert "\n" not in output
    assert output.startswith("s.json")
    return None


def test_truncated() -> None:
    """A study cut short anywhere is refused in one line."""
    document = codec_study.encode(a_study(trials=(UNCERTAIN,))).rstrip()
    assert understood(document) is not None

    for end in range(len(document)):
        assert understood(document[:end]) is None


@pytest.mark.parametrize("new", b'\0"0{]\xff')
def test_overwritten(new: int) -> None:
    """A study with any one byte overwritten is refused in one line, or still a whole study."""
    document = codec_study.encode(a_study(trials=(UNCERTAIN,)))
    for place in range(len(document)):
        result = understood(document[:place] + bytes([new]) + document[place + 1 :])

        assert result is None or result.job.backend


@pytest.mark.parametrize(
    "data",
    [
        b"", b"null", b"[]", b"{}", b"7", b"[" * 100_000, b'{"kind": "study"}', b'{"kind": "result"}',
        b'{"kind": "study", "schema": "1"}', b'{"kind": "study", "schema": 0}',
        b'{"kind": "study", "schema": 1, "trials": 7}', b'{"kind": "study", "schema": 1, "trials": [7]}',
        b'{"kind": "study", "schema": 1, "trials": [{"answers": 7}]}',
        b'{"kind": "study", "schema": 1, "trials": [{"answers": [{"interval": {}}], "judgements": []}]}',
    ],
)  # fmt: skip
def test_no_study(data: bytes) -> None:
    """What is no study is refused in one line."""
    assert understood(data) is None
