"""A trace is replayed request by request: each at its time, with its lengths and its beginning."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.engine.data.test_token_prompts import a_tokenizer

import modeldyno
from modeldyno.base.errors import RequestError
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

FAST: dict[str, Any] = {"max_time": 20, "store": False, "progress": False}
COUNT = 90


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of pieces of words."""
    pytest.importorskip("tokenizers")
    return a_tokenizer("byte-level pairs", tmp_path_factory.mktemp("pairs"))


@pytest.fixture(scope="module")
def url(tokenizer: Path) -> Iterator[str]:
    """A server that counts by the same tokenizer, and caches the beginnings of prompts."""
    with serve_in_subprocess(
        "--pace", "0.0005", "--workers", "8", "--prefix-cache", "--tokenizer", str(tokenizer)
    ) as server:
        yield f"http://127.0.0.1:{server.port}/v1"


def requests() -> list[dict[str, Any]]:
    """Return requests every 20 ms: three chats that grow by a block, among prompts of their own."""
    return [
        {
            "timestamp": 20 * at,
            "input_length": 32 * (at // 15 + 1) if at % 5 < 3 else 40 + at,
            "output_length": at % 7 + 1,
            "hash_ids": [f"{at % 5} {part}" for part in range(at // 15 + 1)] if at % 5 < 3 else [],
        }
        for at in range(COUNT)
    ]


def written(rows: Sequence[object], file: Path) -> Path:
    """Write lines of JSON."""
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


def records(file: Path) -> list[dict[str, int]]:
    """Return the requests that were recorded, in the order of their times."""
    with file.open() as lines:
        rows = [
            {name: int(row[name]) for name in ("due", "message", "tokens")} for row in csv.DictReader(lines)
        ]
    return sorted(rows, key=lambda row: row["due"])


@pytest.mark.parametrize("drivers", [1, 2])
def test_each_request_of_a_trace_is_sent_at_its_time_with_its_lengths(
    url: str, tokenizer: Path, drivers: int, tmp_path: Path
) -> None:
    """By one process or by several; and the server's cache gives no more than the trace shared."""
    rows = requests()
    result = modeldyno.load(
        url, replay=written(rows, tmp_path / "t.jsonl"), tokenizer=str(tokenizer), records=tmp_path / "r.csv",
        drivers=drivers, seed=drivers, **FAST,
    )  # fmt: skip

    sent = records(tmp_path / "r.csv")
    assert [row["message"] for row in sent] == [*range(COUNT)]
    assert [row["tokens"] for row in sent] == [row["output_length"] for row in rows]
    assert [row["due"] - sent[0]["due"] for row in sent] == [20_000_000 * at for at in range(COUNT)]
    assert result["prompt_tokens"] == rows[0]["input_length"]
    assert (result["cached_prompt_share"] or 0) > 0.3
    codes = {doubt.code for doubt in result.doubts}
    assert not codes & {"trace-reduced", "cached-prompts", "length-differs", "fewer-tokens"}
    assert "with the lengths of" in " ".join(str(result).split())


def test_the_session_of_an_agent_is_replayed(url: str, tokenizer: Path, tmp_path: Path) -> None:
    """As Weka writes it, with the requests of the agents that it started and what they shared."""
    rows = requests()
    entries: list[dict[str, Any]] = [
        {
            "t": row["timestamp"] / 1000, "type": "s", "model": "m", "in": row["input_length"],
            "out": row["output_length"], "hash_ids": row["hash_ids"],
        }
        for row in rows
    ]  # fmt: skip
    agent = {"t": entries[30]["t"], "type": "subagent", "status": "completed", "requests": entries[30:60]}
    session = {"id": "a", "block_size": 32, "requests": [*entries[:30], agent, *entries[60:]]}
    (tmp_path / "weka.json").write_text(json.dumps(session, indent=1))
    result = modeldyno.load(
        url,
        replay=tmp_path / "weka.json",
        tokenizer=str(tokenizer),
        records=tmp_path / "r.csv",
        seed=5,
        **FAST,
    )

    sent = records(tmp_path / "r.csv")
    assert [row["tokens"] for row in sent] == [row["output_length"] for row in rows]
    assert [row["due"] - sent[0]["due"] for row in sent] == [20_000_000 * at for at in range(COUNT)]
    assert (result["cached_prompt_share"] or 0) > 0.3
    assert not {doubt.code for doubt in result.doubts} & {"trace-reduced", "cached-prompts", "length-differs"}


def test_a_part_of_a_trace_is_replayed_faster(url: str, tokenizer: Path, tmp_path: Path) -> None:
    """Prompts are made for that part alone, and the result says which it is."""
    result = modeldyno.load(
        url, replay=written(requests(), tmp_path / "t.jsonl"), replay_speed=2, replay_window="1s",
        tokenizer=str(tokenizer), records=tmp_path / "r.csv", seed=31, **FAST,
    )  # fmt: skip

    sent = records(tmp_path / "r.csv")
    assert [row["due"] - sent[0]["due"] for row in sent] == [10_000_000 * at for at in range(50)]
    assert result.inputs[0].distinct == 50
    assert str(result.job.load).endswith("t.jsonl, its first 1 s, 2 times as fast")
    assert "in its first 1 s" in " ".join(str(result).split())


def test_the_same_trace_again_is_in_the_cache(url: str, tokenizer: Path, tmp_path: Path) -> None:
    """With the same seed, its prompts are the same; which is told, as it was not asked for."""
    options = {
        "replay": written(requests(), tmp_path / "t.jsonl"), "tokenizer": str(tokenizer), "seed": 9, **FAST
    }  # fmt: skip
    modeldyno.load(url, **options)
    again = modeldyno.load(url, **options)

    (doubt,) = (doubt for doubt in again.doubts if doubt.code == "cached-prompts")
    assert "instead of the" in doubt.seen


def test_without_a_tokenizer_the_times_alone_are_used(url: str, tmp_path: Path) -> None:
    """Which is told, with what is lacking."""
    result = modeldyno.load(url, replay=written(requests(), tmp_path / "t.jsonl"), max_tokens=3, **FAST)

    (doubt,) = (doubt for doubt in result.doubts if doubt.code == "trace-reduced")
    assert "hash_ids, input_length, output_length of its requests; only their arrival times" in doubt.seen
    assert "`tokenizer=DIR`" in doubt.advice


def test_the_requests_of_a_trace_are_sent_without_its_times(
    url: str, tokenizer: Path, tmp_path: Path
) -> None:
    """In a closed loop, as an input."""
    trace = written(requests(), tmp_path / "t.jsonl")
    result = modeldyno.load(
        url, inputs=f"prompt=trace:{trace}", tokenizer=str(tokenizer), concurrency=2, requests=30, seed=4,
        **FAST,
    )  # fmt: skip

    assert result.inputs[0].source == f"trace:{trace}"
    assert result.inputs[0].distinct == COUNT


@pytest.mark.parametrize(
    ("source", "more", "why"),
    [
        ("trace:/no/such", {}, "names no file; write trace:FILE"),
        ("trace:{}/times", {}, "has no lengths of prompts, so that none can be made"),
        ("trace:{}/t.jsonl", {"batch_size": 2}, "has one prompt; set batch_size=1"),
        ("trace:{}/t.jsonl", {"tokenizer": "/no/such"}, "There is no tokenizer"),
        ("trace:{}/t.jsonl", {"endpoint": "chat", "sequence": 2}, "turns of a session grow; leave out"),
    ],
)
def test_what_contradicts_a_trace_is_refused(
    url: str, tokenizer: Path, source: str, more: dict[str, Any], why: str, tmp_path: Path
) -> None:
    """In one sentence."""
    (tmp_path / "times").write_text("1\n2\n")
    written(requests(), tmp_path / "t.jsonl")
    options = {"tokenizer": str(tokenizer), **FAST, **more}
    with pytest.raises(RequestError, match=why):
        modeldyno.load(url, inputs=source.format(tmp_path), **options)


def test_a_model_without_prompts_has_no_trace_of_them(tmp_path: Path) -> None:
    """It takes tensors."""
    trace = written(requests(), tmp_path / "t.jsonl")
    with pytest.raises(RequestError, match="makes prompts, which only a server of a language model takes"):
        modeldyno.profile("examples/digits/digits.onnx", inputs=f"trace:{trace}", store=False, progress=False)


def test_a_trace_is_replayed_whole_if_nobody_wishes_for_less(url: str, tmp_path: Path) -> None:
    """However soon the median is precise; here it is a series of rates, of some 120 requests."""
    series = tmp_path / "rates.csv"
    series.write_text("seconds,rate\n0,20\n2,60\n4,20\n")
    file = tmp_path / "requests.csv"
    result = modeldyno.load(
        f"{url}#echo", replay=str(series), max_tokens=2, records=file, store=False, progress=False
    )
    rows = records(file)
    assert len(rows) >= 100
    assert 3.5 < (rows[-1]["due"] - rows[0]["due"]) / 1e9 < 4
    assert "trace-reduced" not in {doubt.code for doubt in result.doubts}
