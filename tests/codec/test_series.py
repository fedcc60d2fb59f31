"""Conclusions as documents."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.codec import series as codec_series
from modeldyno.core.comparison.saved_kinds import SeriesDocument, kind_of, name_of
from modeldyno.errors import RequestError, UnreadableDocument
from modeldyno.testing.sample_series import a_capacity, a_comparison, a_ladder

if TYPE_CHECKING:
    from pathlib import Path

MADE: dict[str, SeriesDocument] = {
    "ladder": a_ladder(),
    "capacity": a_capacity(),
    "comparison": a_comparison(),
}


@pytest.mark.parametrize("kind", MADE)
def test_round_trip(kind: str, tmp_path: Path) -> None:
    """No part is lost, including infinite ends; the document has its kind."""
    result = MADE[kind]
    path = tmp_path / "found.json"
    path.write_bytes(codec_series.encode(result))

    assert codec_series.read(path) == result
    assert json.loads(path.read_text())["kind"] == kind == kind_of(result)
    assert name_of(result) == ("mlp" if kind != "comparison" else a_comparison().baseline.name)


def test_what_was_derived_is_ignored_on_reading() -> None:
    """Derived replicas are in the document with the measurements."""
    data = codec_series.encode(a_ladder(), provision={"replicas": 3})

    assert json.loads(data)["provision"] == {"replicas": 3}
    assert codec_series.decode(data) == a_ladder()


@pytest.mark.parametrize("found", MADE.values(), ids=MADE)
def test_a_later_schema_is_refused(found: SeriesDocument) -> None:
    """A document of a later schema is refused."""
    with pytest.raises(UnreadableDocument, match="upgrade ModelDyno"):
        codec_series.decode(codec_series.encode(replace(found, schema=99)))


def damaged(**changes: Any) -> bytes:
    """Change something in the document of a search."""
    return json.dumps({**json.loads(codec_series.encode(a_capacity())), **changes}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b"7",
        b"{",
        b"{}",
        b'{"kind": "study"}',
        b'{"kind": 7}',
        b'{"kind": ["ladder"]}',
        b'{"kind": "ladder"}',
        b'{"kind": "ladder", "schema": "x"}',
        codec_series.encode(a_ladder())[:400],
        damaged(rungs=[{"load": "many"}]),
        damaged(rungs=[{"load": 1, "answers": [{"interval": {"low": 1}}]}]),
        damaged(search={"bounds": []}),
        damaged(passed="four"),
        damaged(end="never"),
    ],
)
def test_what_is_none_is_refused_in_one_sentence(data: bytes, tmp_path: Path) -> None:
    """Any file content is read completely, or refused with the file name."""
    path = tmp_path / "odd.json"
    path.write_bytes(data)
    with pytest.raises(UnreadableDocument, match=r"odd\.json") as raised:
        codec_series.read(path)

    assert "\n" not in str(raised.value)


def test_no_file_is_a_wrong_request(tmp_path: Path) -> None:
    """The error has the path."""
    with pytest.raises(RequestError, match="Cannot read"):
        codec_series.read(tmp_path / "none.json")
