"""A line of a file may be a whole request to a language model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base.errors import RequestError
from modeldyno.engine.data.text_requests import read_request, read_text_requests
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
    "line", ["hello", {"prompt": "hello"}, {"text": "hello"}, {"input": "hello", "id": 4}]
)
def test_a_text_alone_is_sent_unchanged(tmp_path: Path, line: Any) -> None:
    """Whatever its field is called."""
    read = read_text_requests(written(tmp_path, line), "prompt", 9)
    assert read is not None
    assert (read.texts, read.unused) == (["hello"], ())
    assert read_request("hello") == {"prompt": "hello"}


@pytest.mark.parametrize(
    "name", ["max_tokens", "max_completion_tokens", "output_length", "output_tokens", "output_tokens_count"]
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
