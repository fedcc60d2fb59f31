"""Tokens of answers are those that the server counts, or else those of the tokenizer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.engine.data.test_token_prompts import a_tokenizer

from modeldyno.base import plugins
from modeldyno.engine.interfaces.request_target import BrokenStream, Reply
from modeldyno.serving.loadgen.token_counter import TokenCounter

if TYPE_CHECKING:
    from pathlib import Path


def answer(*texts: str, usage: int | None = None, end: bool = True) -> Reply:
    """Build a streamed chat."""
    events = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in texts]
    counts = [] if usage is None else [{"choices": [], "usage": {"completion_tokens": usage}}]
    lines = [*map(json.dumps, [*events, *counts]), *(["[DONE]"] if end else [])]
    body = "".join(f"data: {line}\n\n" for line in lines).encode()
    return Reply(message=0, status=200, head=b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream", body=body)


def test_a_text_without_usage_is_counted_by_the_tokenizer(tmp_path: Path) -> None:
    """Of bytes here: the tokens of a text are its bytes, those of a character cut in two included."""
    pytest.importorskip("tokenizers")
    counter = TokenCounter(plugins.client("openai"), str(a_tokenizer("bytes", tmp_path)))
    assert counter(answer("ab", "c", usage=7)) == 7
    assert counter(answer("ab", "c")) == 3
    assert counter(answer()) == 0
    with pytest.raises(BrokenStream):
        counter(answer("ab", end=False))


def test_without_a_tokenizer_they_are_not_known(tmp_path: Path) -> None:
    """However often it is asked."""
    counter = TokenCounter(plugins.client("openai"), str(tmp_path / "none"))
    assert [counter(answer("ab")), counter(answer("ab")), counter(answer("ab", usage=2))] == [-1, -1, 2]
