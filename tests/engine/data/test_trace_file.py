"""Traces are read in the forms that people have, and what is none is refused with its line."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base.errors import MissingExtra, RequestError
from modeldyno.engine.data.rate_series import arrival_times
from modeldyno.engine.data.trace_file import Trace, read_trace

if TYPE_CHECKING:
    from pathlib import Path

SECOND = 1_000_000_000
FORMS = {
    "mooncake": """
        {"timestamp": 250, "input_length": 700, "output_length": 9, "hash_ids": [0, 7]}
        {"timestamp": 0, "input_length": 512, "output_length": 8, "hash_ids": [0]}
    """,
    "bailian": """
        {"chat_id": 1, "timestamp": 1.25, "input_length": 700, "output_length": 9, "hash_ids": [0, 7]}
        {"chat_id": 2, "timestamp": 1, "input_length": 512, "output_length": 8, "hash_ids": [0]}
    """,
    "other names": """
        {"timestamp": 250.0, "prompt_tokens": 700, "completion_tokens": 9}
        {"timestamp": 0.0, "prompt_tokens": 512, "completion_tokens": 8}
    """,
    "BurstGPT": """
        Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
        5,ChatGPT,512,8,520,Conversation log
        5.1,ChatGPT,0,0,0,Conversation log
        5.25,GPT-4,700,9,709,API log
    """,
    "Azure": """
        TIMESTAMP,ContextTokens,GeneratedTokens
        2023-11-16 18:15:46.7500000,512,8
        2023-11-16 18:15:47.0000000,700,9
    """,
    "Azure of 2024": """
        TIMESTAMP,ContextTokens,GeneratedTokens
        2024-05-10 00:00:00.009930+00:00,512,8
        2024-05-10 00:00:00.259930+00:00,700,9
    """,
    "Vidur": """
        arrived_at,num_prefill_tokens,num_decode_tokens
        0.0,512,8
        0.25,700,9
    """,
    "ours": """
        seconds,prompt_tokens,output_tokens
        10.25,700,9
        10,512,8
    """,
}


def written(text: str, folder: Path) -> Trace:
    """Read a text as a trace."""
    path = folder / "trace"
    path.write_text("\n".join(line.strip() for line in text.splitlines()))
    return read_trace(str(path))


@pytest.mark.parametrize("form", FORMS)
def test_lengths_are_read_in_the_order_of_their_times(form: str, tmp_path: Path) -> None:
    """Whatever the columns are called, and in whatever unit the times are."""
    trace = written(FORMS[form], tmp_path)

    assert [*trace.times] == [0, SECOND // 4]
    assert [*trace.prompt_tokens] == [512, 700]
    assert [*trace.output_tokens] == [8, 9]
    assert trace.failed == (form == "BurstGPT")
    assert trace.others == (("Log Type", "Model") if form == "BurstGPT" else ())
    assert bool(trace.blocks) == (form in {"mooncake", "bailian"})


@pytest.mark.parametrize(
    "text",
    [
        "5.5\n5.0\n\n5.25\n",
        "\n".join(f'{{"timestamp": {time}, "input_length": 3}}' for time in (250, 0, 500.0)),
    ],
)
def test_times_alone_are_seconds_or_milliseconds(text: str, tmp_path: Path) -> None:
    """They are sorted, and count from the first of them."""
    trace = written(text, tmp_path)

    assert [*trace.times] == [0, SECOND // 4, SECOND // 2]
    assert [*trace.output_tokens] == []


def test_what_a_trace_has_beside_its_times_is_known(tmp_path: Path) -> None:
    """By its first request: lengths, and what nothing is made of."""
    trace = written(
        '\n{"timestamp": 0, "output_length": 4, "input_length": 3, "user": 8, "id": 1}\n', tmp_path
    )

    assert trace.lengths == ("input_length", "output_length")
    assert trace.others == ("user",)
    assert written("0.5\n", tmp_path).lengths == ()


@pytest.mark.parametrize(
    ("rows", "size"),
    [
        ([(512, 1), (513, 2), (6758, 14)], 512),
        ([(16, 1), (100, 7)], 16),
        ([(1024, 16), (1023, 15), (100, 1)], 64),
        ([(100, 3), (100, 9)], 512),
        ([(100, 0)], 512),
    ],
)
def test_the_size_of_a_block_is_recognised(rows: list[tuple[int, int]], size: int, tmp_path: Path) -> None:
    """By how many ids prompts have; of contradictions, and without any, it is mooncake's."""
    lines = [
        f'{{"timestamp": 0, "input_length": {tokens}, "hash_ids": {["a"] * count}}}'.replace("'", '"')
        for tokens, count in rows
    ]
    assert written("\n".join(lines), tmp_path).block_tokens == size


def test_a_trace_may_say_the_size_of_its_blocks(tmp_path: Path) -> None:
    """Then nothing is recognised."""
    text = '{"timestamp": 0, "input_length": 512, "hash_ids": [[1]], "block_size": 24}'
    trace = written(text, tmp_path)

    assert trace.block_tokens == 24
    assert [*trace.blocks] == [("[1]",)]


def test_a_file_of_lengths_has_two_numbers_a_line(tmp_path: Path) -> None:
    """A third column needs a header; a mark of the byte order is none of JSON."""
    path = tmp_path / "pairs.csv"
    path.write_text("0,512,128\n1,4,5\n")
    with pytest.raises(RequestError, match="more than two numbers; name the columns"):
        read_trace(str(path), timed=False)
    path.write_text('{"timestamp": 1, "input_length": 3}\n', encoding="utf-8-sig")
    assert [*read_trace(str(path)).prompt_tokens] == [3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.5\nsoon\n", "Line 2 of the trace"),
        ("nan\n", "Line 1"),
        ('{"when": 3}\n', "Line 1"),
        ('{"timestamp": null}\n', "Line 1"),
        ("{broken\n", "Line 1"),
        ('{"timestamp": 1}\n[2]\n', "Line 2"),
        (
            '{"timestamp": 1, "input_length": 3}\n{"timestamp": 1}\n',
            "Line 2 .*: input_length is None, no number",
        ),
        ("seconds,prompt_tokens\n1,2\n\n2,-3\n", "Line 4 .*: prompt_tokens is '-3', no number of tokens"),
        ("seconds,prompt_tokens\n1,2.5\n", "Line 2 .* no number of tokens"),
        ("seconds,prompt_tokens\n2024-13-01 00:00:00,2\n", "Line 2"),
        ("prompt_tokens,output_tokens\n1,2\n", "has no column of times; name one of them seconds"),
        ("\n", "has no requests"),
        ("seconds,prompt_tokens\n1,0\n", "has no requests: the 1 that it has have no tokens"),
        ("1e20\n", "Line 1"),
        ("seconds,prompt_tokens\n1,1e30\n", "Line 2 .* no number of tokens"),
        ('seconds,prompt_tokens\n1,"' + "2" * 200_000 + "\n", "is no CSV that can be read"),
        (None, "Cannot read the trace"),
        (b"\xff\xfe", "it is not text"),
    ],
)
def test_a_trace_that_cannot_be_read_is_refused_in_a_sentence(
    text: str | bytes | None, message: str, tmp_path: Path
) -> None:
    """The sentence names the file, and the line where there is one."""
    path = tmp_path / "trace"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(RequestError, match=message) as refusal:
        read_trace(str(path))
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def a_span(when: float, attributes: dict[str, Any]) -> dict[str, Any]:
    """Build a span as the collector of OpenTelemetry writes it."""
    kinds = {str: "stringValue", int: "intValue", float: "doubleValue"}
    return {
        "name": "chat llama",
        "startTimeUnixNano": str(1_790_000_000_000_000_000 + int(when * SECOND)),
        "attributes": [
            {"key": key, "value": {kinds[type(value)]: str(value) if isinstance(value, int) else value}}
            for key, value in attributes.items()
        ],
    }


def of_spans(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"scope": {"name": "openai"}, "spans": [*spans]}]}]}


@pytest.mark.parametrize("indent", [None, 2])
def test_requests_of_language_models_in_spans_of_opentelemetry_are_a_trace(
    indent: int | None, tmp_path: Path
) -> None:
    """Neither what is no such request, nor the sums that the span of an agent has."""
    names = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens")
    older = ("gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens")
    documents = [
        of_spans(
            a_span(1.5, {"gen_ai.operation.name": "chat", names[0]: 700, names[1]: 9}),
            a_span(0.5, {"gen_ai.operation.name": "invoke_agent", names[0]: 1212, names[1]: 17}),
            a_span(0.7, {"http.route": "/chat"}),
        ),
        of_spans(a_span(1.25, {older[0]: 512, older[1]: 8})),
    ]
    path = tmp_path / "spans.json"
    if indent:
        documents = [{"resourceSpans": [part for each in documents for part in each["resourceSpans"]]}]
    path.write_text("\n".join(json.dumps(document, indent=indent) for document in documents))
    trace = read_trace(str(path))
    assert [when / SECOND for when in trace.times] == pytest.approx([0, 0.25], abs=1e-6)
    assert [*trace.prompt_tokens] == [512, 700]
    assert [*trace.output_tokens] == [8, 9]
    assert not trace.others


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (of_spans(), "has no requests"),
        (
            {"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": [{"key": 1, "value": 2}]}, 3]}]}]},
            "has no",
        ),
        ({"resourceSpans": 3}, "has no requests"),
    ],
)
def test_spans_without_a_request_are_refused(document: object, sentence: str, tmp_path: Path) -> None:
    """As a trace without one is."""
    path = tmp_path / "spans.json"
    path.write_text(json.dumps(document))
    with pytest.raises(RequestError, match=sentence):
        read_trace(str(path))


RATES = {
    "a CSV": "seconds,rate\n0,10\n10,30\n20,30\n30,0\n",
    "AIPerf's JSON": '[{"time_s": 0, "qps": 10}, {"time_s": 10, "qps": 30},\n {"time_s": 20, "qps": 30}, '
    '{"time_s": 30, "qps": 0}]',
}


@pytest.mark.parametrize("text", RATES.values(), ids=RATES)
def test_a_series_of_rates_is_a_trace_of_times_alone(text: str, tmp_path: Path) -> None:
    """As many requests in each part as its rate asks for, and the same each time."""
    path = tmp_path / "rates"
    path.write_text(text, "utf-8")
    trace = read_trace(str(path))
    counts = [sum(a <= time / SECOND < a + 10 for time in trace.times) for a in (0, 10, 20)]
    assert counts == pytest.approx([200, 300, 150], abs=50)
    assert list(trace.times) == sorted(trace.times)
    assert read_trace(str(path)).times == trace.times
    assert not any((trace.prompt_tokens, trace.output_tokens, trace.lengths, trace.others))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("seconds,rate\n0,10\n", "has two points at least"),
        ("seconds,rate\n0,10\n0,20\n", "increase; 0 stands after 0"),
        ("seconds,rate\n0,10\n5,-1\n", "The rate -1 at 5 s is none"),
        ("seconds,rate\n0,10\nnan,1\n", "increase"),
        ("seconds,rate\n0,10\n5,x\n", "write a CSV with the header seconds,rate"),
        ("seconds,rate\n0,0\n5,0\n", "has no request"),
        ("seconds,rate\n0,1e9\n5,1e9\n", "of at most 20,000,000"),
        ('[{"time_s": 0}, {"time_s": 1}]', "write a CSV with the header seconds,rate"),
        ("[1, 2]", "write a CSV with the header seconds,rate"),
        ("[", "write a CSV with the header seconds,rate"),
        (f'[{{"time_s": 0, "qps": 1{"0" * 400}}}]', "write a CSV with the header seconds,rate"),
        ('[\n{"timestamp": 0, "input_length": 5, "output_length": 6}\n]', "one object of JSON a line"),
        ("seconds,rate\n0,0\n1e300,1e-299\n", "The time 1e\\+300 s .* is too long"),
        ("seconds,rate\n0,1e300\n10,1e300\n", "has 1e\\+301 requests"),
    ],
)
def test_what_is_no_series_of_rates_is_refused(text: str, sentence: str, tmp_path: Path) -> None:
    """In a sentence with its file."""
    path = tmp_path / "rates.csv"
    path.write_text(text, "utf-8")
    with pytest.raises(RequestError, match=sentence) as error:
        read_trace(str(path))
    assert "rates.csv" in str(error.value)


def test_a_window_before_the_first_request_of_a_series_is_refused(tmp_path: Path) -> None:
    """With when that is due."""
    path = tmp_path / "rates.csv"
    path.write_text(RATES["a CSV"], "utf-8")
    trace = read_trace(str(path))
    assert len(trace.until(1.0).times) < len(trace.times)
    with pytest.raises(RequestError, match=r"no request in its first 1e-06 s.* after 0\.\d+ s"):
        trace.until(1e-6)


def test_requests_with_tokens_are_no_series_of_rates(tmp_path: Path) -> None:
    """Whatever else their columns are called."""
    path = tmp_path / "requests.csv"
    path.write_text("seconds,prompt_tokens,output_tokens,rate\n0,5,6,1\n2,7,8,1\n", "utf-8")
    trace = read_trace(str(path))
    assert [*trace.prompt_tokens] == [5, 7]
    assert trace.others == ("rate",)


def test_an_attribute_of_a_span_that_is_no_text_is_passed_over(tmp_path: Path) -> None:
    """As if it were not there."""
    span = a_span(1, {"gen_ai.usage.input_tokens": 5, "gen_ai.usage.output_tokens": 6})
    span["attributes"].append({"key": "gen_ai.operation.name", "value": {"stringValue": ["chat"]}})
    path = tmp_path / "spans.json"
    path.write_text(json.dumps(of_spans(span)))
    assert [*read_trace(str(path)).prompt_tokens] == [5]


def test_rates_between_points_are_linear() -> None:
    """The times of a rising rate have a density that rises: half of them lie after 0.71 of the time."""
    times = arrival_times([(5, 0), (15, 2000)])
    assert len(times) == pytest.approx(10_000, rel=0.05)
    assert times[len(times) // 2] / SECOND == pytest.approx(10 / 2**0.5, rel=0.02)


AGENT = {
    "id": "a", "models": ["m"], "block_size": 64, "hash_id_scope": "local", "tool_tokens": 5,
    "system_tokens": 7,
    "requests": [
        {"t": 1.5, "type": "s", "model": "m", "in": 130, "out": 9, "hash_ids": [1, 2, 3], "ttft": 0.2,
         "api_time": 2.0, "think_time": 0.0, "stop": "tool_use"},
        {"t": 4.0, "type": "subagent", "agent_id": "agent_001", "subagent_type": "Explore",
         "duration_ms": 900, "total_tokens": 160, "tool_use_count": 1, "status": "completed", "models": ["m"],
         "requests": [{"t": 4.25, "type": "n", "model": "m", "in": 70, "out": 3, "hash_ids": [8, 9]},
                      {"t": 0.5, "type": "n", "model": "m", "in": 80, "out": 4, "hash_ids": [8, 10]}]},
        {"t": 6.5, "type": "n", "model": "m", "in": 200, "out": 5, "hash_ids": [1, 2, 3, 4]},
    ],
}  # fmt: skip


@pytest.mark.parametrize("indent", [None, 2], ids=["a line", "several lines"])
def test_the_session_of_an_agent_is_a_trace(indent: int | None, tmp_path: Path) -> None:
    """As Weka has it, with the requests of agents that it started, whose times may count from their start."""
    trace = written(json.dumps(AGENT, indent=indent), tmp_path)

    assert [time / SECOND for time in trace.times] == [0, 2.75, 3, 5]
    assert [*trace.prompt_tokens] == [130, 70, 80, 200]
    assert [*trace.output_tokens] == [9, 3, 4, 5]
    assert (trace.block_tokens, trace.others) == (64, ())
    assert [len(ids) for ids in trace.blocks] == [3, 2, 2, 4]
    assert trace.blocks[3][:3] == trace.blocks[0]
    assert trace.blocks[1][0] == trace.blocks[2][0] not in trace.blocks[0]


@pytest.mark.parametrize(("scope", "alike"), [("local", False), ("global", True)])
def test_sessions_of_agents_share_blocks_where_they_say_so(scope: str, alike: bool, tmp_path: Path) -> None:
    """The ids of a session are its own otherwise."""
    trace = written("\n".join([json.dumps({**AGENT, "hash_id_scope": scope})] * 2), tmp_path)

    assert [time / SECOND for time in trace.times[:3]] == [0, 0, 2.75]
    assert (trace.blocks[0] == trace.blocks[1]) is alike


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"requests": [{"t": 1, "out": 3}]}, "Line 1, request 1 of the trace .*: in is None, no number"),
        ({"requests": [{"in": 1, "out": 3}]}, "Line 1, request 1 of the trace .* is neither seconds nor"),
        ({"requests": [7]}, "Line 1, request 1 of the trace is no object of JSON; write its t, in and out"),
        ({"requests": []}, "has no requests"),
        ({"block_size": 0}, "Line 1 of the trace .*: block_size is 0; a trace has blocks of one size"),
    ],
)
def test_a_session_of_an_agent_that_lacks_something_is_refused(
    change: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    """With the place of the request in its session."""
    with pytest.raises(RequestError, match=problem):
        written(json.dumps({**AGENT, **change}), tmp_path)


def test_sessions_with_blocks_of_several_sizes_are_refused(tmp_path: Path) -> None:
    """Their prompts are made of blocks of one size."""
    lines = [json.dumps({**AGENT, "block_size": size}) for size in (64, 16)]
    with pytest.raises(RequestError, match=r"Line 2 .* block_size is 16 beside 64; a trace has"):
        written("\n".join(lines), tmp_path)


BASETEN = [
    {"timestamp_start_unix_ms": 1_700_000_000_250, "prompt": "b", "input_tokens": 700, "output_tokens": 9,
     "total_hashes": [0, 7], "block_size": 512, "provided_session_id": "s", "duration_e2e_ms": 4},
    {"timestamp_start_unix_ms": 1_700_000_000_000, "prompt": "a", "input_tokens": 512, "output_tokens": 8,
     "total_hashes": [0], "block_size": 512, "provided_session_id": "s", "duration_e2e_ms": 3},
]  # fmt: skip


def check_baseten(trace: Trace) -> None:
    """Check the times, lengths and blocks, and that the texts are known to be unused."""
    assert [*trace.times] == [0, SECOND // 4]
    assert ([*trace.prompt_tokens], [*trace.output_tokens]) == ([512, 700], [8, 9])
    assert (trace.blocks, trace.block_tokens, trace.others) == ([(0,), (0, 7)], 512, ("prompt",))


def test_rows_of_basetens_are_read(tmp_path: Path) -> None:
    """Their times are milliseconds since 1970."""
    check_baseten(written("\n".join(map(json.dumps, BASETEN)), tmp_path))


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_a_table_of_basetens_is_read(suffix: str, tmp_path: Path) -> None:
    """As they export it, and what is no table is refused."""
    pyarrow = pytest.importorskip("pyarrow")
    path = tmp_path / f"trace{suffix}"
    table = pyarrow.Table.from_pylist(BASETEN)
    if suffix == ".parquet":
        from pyarrow import parquet

        parquet.write_table(table, path)
    else:
        with pyarrow.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    check_baseten(read_trace(str(path)))
    path.write_bytes(b"no table")
    with pytest.raises(RequestError, match="is no table that can be read"):
        read_trace(str(path))


def test_a_table_needs_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which the message names."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "trace.parquet").write_bytes(b"PAR1")
    with pytest.raises(MissingExtra, match="pip install pyarrow"):
        read_trace(str(tmp_path / "trace.parquet"))
