"""A line of a file may be a whole request to a language model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base.errors import RequestError
from modeldyno.engine.data import text_requests
from modeldyno.engine.data.text_requests import read_request, read_sessions, read_text_requests
from modeldyno.engine.interfaces.request_target import Endpoint
from modeldyno.serving.clients import openai

if TYPE_CHECKING:
    from pathlib import Path

CHAT = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]


def written(folder: Path, *lines: Any) -> Path:
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


@pytest.mark.parametrize(
    "line",
    [
        "hello",
        {"prompt": "hello"},
        {"text": "hello"},
        {"input": "hello", "id": 4},
        {"text_input": "hello"},
        {"question": "hello"},
        {"prompt": "hello", "prompt_tokens_count": 1},
    ],
)
def test_a_text_alone_is_sent_unchanged(tmp_path: Path, line: Any) -> None:
    """Whatever its field is called."""
    read = read_text_requests(written(tmp_path, line), "prompt", 9)
    assert read is not None
    assert (read.texts, read.unused) == (["hello"], ())
    assert read_request("hello") == {"prompt": "hello"}


@pytest.mark.parametrize(
    "name",
    [
        "max_tokens",
        "max_completion_tokens",
        "output_length",
        "output_tokens",
        "output_tokens_count",
        "expected_output_len",
    ],
)
def test_a_number_of_tokens_is_that_of_its_request(tmp_path: Path, name: str) -> None:
    """By the names that tools have for it."""
    read = read_text_requests(written(tmp_path, {"prompt": "a", name: 12}, {"prompt": "b"}), "prompt", 9)
    assert read is not None
    assert [*map(read_request, read.texts)] == [{"prompt": "a", "max_tokens": 12}, {"prompt": "b"}]


def test_messages_and_settings_go_with_the_request(tmp_path: Path) -> None:
    """A chat of several messages, as a line or as the body of a line of OpenAI's batch files."""
    line = {"messages": CHAT, "temperature": 0.5, "max_tokens": 6, "model": "other"}
    batch = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": line}
    for each in (line, batch):
        read = read_text_requests(written(tmp_path, each), "prompt", 9)
        assert read is not None
        assert read.unused == ()
        (request,) = map(read_request, read.texts)
        assert request == {"messages": CHAT, "temperature": 0.5, "max_tokens": 6}


@pytest.mark.parametrize(
    ("line", "request_fields"),
    [
        (
            {"messages": CHAT, "system": "brief", "stop_sequences": ["."], "instructions": "no"},
            {"messages": CHAT, "system": "brief", "stop_sequences": ["."]},
        ),
        (
            {"input": CHAT, "instructions": "b", "text": {"a": 1}, "max_output_tokens": 5, "system": "no"},
            {"input": CHAT, "instructions": "b", "text": {"a": 1}, "max_tokens": 5},
        ),
        ({"input": "hi", "instructions": "brief"}, {"prompt": "hi", "instructions": "brief"}),
        ({"prompt": "hi", "input": "no", "instructions": "no"}, {"prompt": "hi"}),
        ({"input": ["a", "b"]}, {"input": ["a", "b"]}),
    ],
)  # fmt: skip
def test_a_request_of_another_endpoint_is_one(
    tmp_path: Path, line: dict[str, Any], request_fields: dict[str, Any]
) -> None:
    """Anthropic's messages and OpenAI's responses have fields of their own, which only go with them."""
    read = read_text_requests(written(tmp_path, line), "prompt", 9)
    assert read is not None
    assert [*map(read_request, read.texts)] == [request_fields]
    assert set(read.unused) == {key for key, value in line.items() if value == "no" and key != "input"}


def test_a_session_of_messages_keeps_its_system(tmp_path: Path) -> None:
    """As a field of each of its turns, which is how Anthropic has it."""
    line = {"messages": [CHAT[1], {"role": "assistant", "content": "a"}, CHAT[1]], "system": "brief"}
    read = read_sessions(written(tmp_path, line), "prompt")
    assert read is not None
    assert [read_request(text) for text in read.texts] == [{"messages": [CHAT[1]], "system": "brief"}] * 2
    assert read.unused == ()


def test_a_row_of_a_csv_is_a_request(tmp_path: Path) -> None:
    """Its header names the fields; numbers are numbers, texts stay texts, and empty settings are none."""
    path = tmp_path / "prompts.csv"
    path.write_text(
        "\ufeffprompt,output_tokens_count,temperature,stop,user_id\n"
        '"12, and ""more""",9,0.5,END,7\n"two\nlines",,,,\n',
        "utf-8",
    )
    read = read_text_requests(path, "prompt", 9)

    assert read is not None
    assert [*map(read_request, read.texts)] == [
        {"prompt": '12, and "more"', "max_tokens": 9, "temperature": 0.5, "stop": "END"},
        {"prompt": "two\nlines"},
    ]
    assert read.unused == ("user_id",)


def test_a_csv_without_a_text_is_another_file(tmp_path: Path) -> None:
    """And one that cannot be read is refused."""
    path = tmp_path / "lines.csv"
    path.write_text("some words,\nand others\n")
    assert read_text_requests(path, "prompt", 9) is None
    path.write_bytes(b"prompt\n\xff\n")
    with pytest.raises(RequestError, match="cannot be read as a CSV"):
        read_text_requests(path, "prompt", 9)


def test_fields_that_are_not_sent_are_named(tmp_path: Path) -> None:
    """Those of traces, and a text beside messages."""
    lines = [{"prompt": "a", "hash_ids": [1]}, {"messages": CHAT, "prompt": "b", "delay": 3, "id": 1}]
    read = read_text_requests(written(tmp_path, *lines), "prompt", 9)
    assert read is not None
    assert read.unused == ("hash_ids", "prompt", "delay")


@pytest.mark.parametrize("line", [{"x": [1]}, 3, {"prompt": 3}, {"messages": []}])
def test_a_line_without_a_text_is_another_file(tmp_path: Path, line: Any) -> None:
    """It is read as the inputs of a model."""
    assert read_text_requests(written(tmp_path, line), "prompt", 9) is None


@pytest.mark.parametrize("length", [0, -1, 1.5, "many", True])
def test_a_number_of_tokens_that_is_none_is_refused(tmp_path: Path, length: Any) -> None:
    """With the line."""
    with pytest.raises(RequestError, match=r"line 1: .* is no number of tokens"):
        read_text_requests(written(tmp_path, {"prompt": "a", "max_tokens": length}), "prompt", 9)


def sent(batches: list[list[str]], **options: Any) -> tuple[list[dict[str, Any]], tuple[int, ...]]:
    feeds = [{"prompt": np.array(texts, dtype=object)} for texts in batches]
    made = openai.target(feeds, Endpoint(host="h", port=1, options=options))
    return [json.loads(message.partition(b"\r\n\r\n")[2]) for message in made.messages], made.token_limits


def test_each_request_asks_for_its_own(tmp_path: Path) -> None:
    """What a line says is for its request, what `max_tokens` says for the others, and `extra` for all."""
    lines = [{"prompt": "a", "max_tokens": 4}, {"messages": CHAT, "output_length": 9}, {"prompt": "c"}]
    read = read_text_requests(written(tmp_path, *lines), "prompt", 9)
    assert read is not None
    bodies, token_limits = sent([[text] for text in read.texts], endpoint="chat", max_tokens=32)
    assert token_limits == (4, 9, 32)
    assert [body["max_tokens"] for body in bodies] == [4, 9, 32]
    assert bodies[1]["messages"] == CHAT
    assert bodies[0]["messages"] == [{"role": "user", "content": "a"}]
    assert sent([[text] for text in read.texts], endpoint="chat", extra='{"max_tokens": 7}')[1] == (7, 7, 7)


def test_what_cannot_be_sent_is_refused(tmp_path: Path) -> None:
    """Messages to a completion, and unlike requests in one batch."""
    read = read_text_requests(
        written(tmp_path, {"messages": CHAT}, {"prompt": "a", "max_tokens": 3}), "prompt", 9
    )
    assert read is not None
    with pytest.raises(RequestError, match="endpoint=chat"):
        sent([read.texts[:1]])
    with pytest.raises(RequestError, match="batch_size=1"):
        sent([["b", read.texts[1]]])
    (body,), token_limits = sent([[read.texts[1], read.texts[1]]])
    assert (body["prompt"], body["max_tokens"], token_limits) == (["a", "a"], 3, (6,))


def turns(path: Path) -> tuple[list[dict[str, Any]], tuple[int, ...], tuple[str, ...]]:
    read = read_sessions(path, "prompt")
    assert read is not None
    return [*map(read_request, read.texts)], read.sessions, read.unused


def user_turn(*texts: str, **fields: Any) -> dict[str, Any]:
    """A turn of a user, with what the system says before it."""
    roles = ("system", "user") if len(texts) > 1 else ("user",)
    return {"messages": [{"role": r, "content": t} for r, t in zip(roles, texts, strict=True)], **fields}


@pytest.mark.parametrize(
    ("line", "requests"),
    [
        (
            {
                "session_id": "chat_1",
                "turns": [
                    {"role": "system", "text": "be brief"},
                    {"text": "hi", "output_length": 5},
                    {"text": "and", "delay": 250, "temperature": 0.5},
                    "more",
                ],
            },
            [
                user_turn("be brief", "hi", max_tokens=5),
                user_turn("and", temperature=0.5, think_time=0.25),
                user_turn("more"),
            ],
        ),
        (
            {
                "id": "x",
                "conversations": [
                    {"from": "gpt", "value": "hello"},
                    {"from": "human", "value": "hi"},
                    {"from": "gpt", "value": "hello again"},
                    {"from": "user", "value": "and"},
                    {"from": "bing", "value": "yes"},
                ],
            },
            [user_turn("hi"), user_turn("and")],
        ),
        (
            {
                "messages": [
                    {"role": "system", "content": "be brief"},
                    {"role": "user", "content": "hi"},
                    {"role": "assistant", "content": "hello"},
                    {"role": "user", "content": "and"},
                ],
                "max_tokens": 7,
            },
            [user_turn("be brief", "hi", max_tokens=7), user_turn("and", max_tokens=7)],
        ),
        ({"prompt": "hi"}, [{"prompt": "hi"}]),
        ("hi", [{"prompt": "hi"}]),
    ],
    ids=["aiperf", "sharegpt", "messages", "prompt", "text"],
)
def test_a_line_is_a_session(tmp_path: Path, line: Any, requests: list[dict[str, Any]]) -> None:
    """Without the answers: the server gives its own."""
    assert turns(written(tmp_path, line)) == (requests, (len(requests),), ())


def test_a_file_has_many_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole ones, until there are enough turns; what is not sent is named."""
    lines = [{"turns": ["a", {"text": "b", "image": "x"}], "timestamp": 3}, {"turns": ["c"]}, "d", "e"]
    assert turns(written(tmp_path, *lines))[1:] == ((2, 1, 1, 1), ("timestamp", "image"))
    monkeypatch.setattr(text_requests, "MOST_TURNS", 3)
    assert turns(written(tmp_path, *lines))[1] == (2, 1)
    counted = {"turns": 1, "messages": [{"role": "user", "content": "a"}]}
    assert turns(written(tmp_path, counted))[1] == (1,)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"messages": [{"role": "user", "content": "a"}, {"role": "tool", "content": "b"}]}, "not of 'tool'"),
        ({"conversations": [{"from": "gpt", "value": "a"}]}, "no user says anything"),
        ({"conversations": ["a"]}, "write its from and its value"),
        ({"turns": [3]}, "write its text"),
        ({"turns": [{"image": "x"}]}, "a turn of its session has no text"),
        ({"turns": [{"text": "a", "delay": -1}]}, "-1 is no delay"),
        ({"turns": [{"text": "a", "delay": True}]}, "True is no delay"),
        ({"turns": [{"text": "a", "output_length": 0}]}, "0 is no number of tokens"),
    ],
)
def test_a_session_that_cannot_be_sent_is_refused(tmp_path: Path, line: Any, message: str) -> None:
    """With its line."""
    with pytest.raises(RequestError, match=f"line 1: .*{message}"):
        read_sessions(written(tmp_path, line), "prompt")


@pytest.mark.parametrize("line", [3, {"x": [1]}])
def test_other_lines_are_no_sessions(tmp_path: Path, line: Any) -> None:
    """They are read as the inputs of a model."""
    assert read_sessions(written(tmp_path, line), "prompt") is None


@pytest.mark.parametrize("line", [{"turns": ["a"]}, {"conversations": [{"from": "human", "value": "a"}]}])
def test_a_session_is_not_sent_as_a_single_request(tmp_path: Path, line: Any) -> None:
    """How it is sent is said."""
    with pytest.raises(RequestError, match=r"line 1 is a session of several turns; .*`sequence=data`"):
        read_text_requests(written(tmp_path, line), "prompt", 9)


def test_a_list_of_sessions_is_read(tmp_path: Path) -> None:
    """As ShareGPT and vLLM's bench of several turns have them, in one JSON document."""
    path = tmp_path / "sessions.json"
    path.write_text(json.dumps([{"turns": ["a", "b"]}, {"messages": CHAT}]), "utf-8")
    assert turns(path)[1] == (2, 1)
    for text, message in (
        ("{}", "is no list of sessions"),
        ("[", "is not JSON"),
        ('[{"turns": [1]}]', "session 1"),
    ):
        path.write_text(text, "utf-8")
        with pytest.raises(RequestError, match=message):
            read_sessions(path, "prompt")
    with pytest.raises(RequestError, match="cannot be read"):
        read_sessions(tmp_path / "none.json", "prompt")
