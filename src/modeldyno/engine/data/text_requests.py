"""Reads requests to a language model from JSON lines: what is asked, and how much is to be generated.

A line is a text, or an object with the text or the messages of a chat and, if it likes, with fields of
OpenAI's requests (``max_tokens``, ``temperature``, ``tools`` ...), or is a line of OpenAI's batch files,
whose ``body`` is such an object. Other tools have other names for the number of tokens to generate.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.engine.data import data_files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SUFFIXES = (".jsonl", ".ndjson")
_MARK = "\x1e"
"""Before a request that is more than its text; the separator of records, which is in no text."""
_MESSAGES = "messages"
_TEXTS = ("prompt", "text", "input")
_LENGTHS = (
    "max_tokens", "max_completion_tokens", "output_length", "output_len", "output_tokens",
    "output_tokens_count", "max_new_tokens",
)  # fmt: skip
"""Names of the number of tokens to generate: OpenAI's, AIPerf's and traces', vLLM's, GuideLLM's, TGI's."""
_SENT = frozenset({
    "temperature", "top_p", "top_k", "min_p", "n", "stop", "seed", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "logit_bias", "logprobs", "top_logprobs", "user", "tools", "tool_choice",
    "parallel_tool_calls", "response_format", "min_tokens", "ignore_eos", "suffix", "echo", "best_of",
    "reasoning_effort", "chat_template_kwargs", "dimensions", "encoding_format",
})  # fmt: skip
"""Further fields of a request that are sent as they are."""
_KNOWN = frozenset({_MESSAGES, "id", "model", "stream", "stream_options"})
"""Fields whose loss needs no word: the command says the model, and whether answers are streamed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRequests:
    """The requests of a file."""

    texts: list[str]
    """One for each line: its text, or a request that `read_request` reads."""
    unused: tuple[str, ...] = ()
    """Names of fields that are not sent."""


def read_text_requests(path: Path, name: str, limit: int) -> TextRequests | None:
    """Read up to `limit` requests; None if some line has neither a text nor messages.

    Args:
        path: a file of JSON lines.
        name: of the input that takes the text, which lines may use.
        limit: the most lines that are read.

    Raises:
        RequestError: a line is not JSON, or its number of tokens is none.
    """
    texts, unused = [], dict[str, None]()
    for number, sample in islice(data_files.json_lines(path), limit):
        line = sample
        if isinstance(line, dict) and isinstance(line.get("body"), dict):
            line = line["body"]
        request = line if isinstance(line, str) else _request(line, name, f"{path}, line {number}")
        if request is None:
            return None
        texts.append(request)
        if isinstance(line, dict):
            unused |= dict.fromkeys(key for key in line if not _is_used(key, name, line))
    return TextRequests(texts=texts, unused=tuple(unused))


def _is_used(key: str, name: str, line: Mapping[str, Any]) -> bool:
    if key in {name, *_TEXTS}:
        return not line.get(_MESSAGES)
    return key in _SENT or key in _LENGTHS or key in _KNOWN


def _request(line: Any, name: str, where: str) -> str | None:
    """Return the text of a line, or what `read_request` reads; None if it has neither text nor messages."""
    if not isinstance(line, dict):
        return None
    fields = {key: line[key] for key in line if key in _SENT}
    length = next((line[key] for key in _LENGTHS if line.get(key) is not None), None)
    if length is not None:
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise RequestError(f"{where}: {length!r} is no number of tokens to generate; write 1 or more.")
        fields["max_tokens"] = length
    if isinstance(line.get(_MESSAGES), list) and line[_MESSAGES]:
        return write_request({_MESSAGES: line[_MESSAGES], **fields})
    text = next((line[key] for key in (name, *_TEXTS) if isinstance(line.get(key), str)), None)
    if text is None:
        return None
    return write_request({"prompt": text, **fields}) if fields else text


def write_request(fields: Mapping[str, Any]) -> str:
    """Write what `read_request` reads."""
    return _MARK + json.dumps(fields)


def read_request(text: str) -> dict[str, Any]:
    """Return the fields of a request: ``prompt`` or ``messages``, and those that go with it."""
    if not text.startswith(_MARK):
        return {"prompt": text}
    fields: dict[str, Any] = json.loads(text[len(_MARK) :])
    return fields
