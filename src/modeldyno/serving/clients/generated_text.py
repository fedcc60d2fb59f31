"""Reads streams of generated text, whichever server wrote them.

Servers differ in where an event has its text, where the tokens are counted and how the end is told; the
tables below have what is known. OpenAI's protocol, as vLLM, SGLang, llama.cpp, Ollama and most others speak
it, has one form of each; the others are those of TGI, Triton, Ollama, llama.cpp, SGLang, Anthropic.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.engine.interfaces.request_target import BrokenStream
from modeldyno.serving.clients import messages as clients_messages
from modeldyno.serving.loadgen.event_stream import decode_stream, decoder_of, last_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.engine.interfaces.request_target import Reply
    from modeldyno.serving.loadgen.event_stream import StreamEvent

_TEXT = (
    "text", "content", "reasoning", "reasoning_content", "arguments", "refusal",  # OpenAI, TGI, llama.cpp
    "text_output",  # Triton
    "response", "thinking",  # Ollama
    "partial_json", "delta",  # Anthropic, OpenAI's responses
)  # fmt: skip
"""Names of the fields in which an event has its text."""
_HAS_TEXT = re.compile(rb'"(%b)"\s*:\s*"(?!")' % b"|".join(name.encode() for name in _TEXT))
_REASONING = {b"reasoning", b"reasoning_content", b"thinking"}
_REPEATS = re.compile(
    rb'"type"\s*:\s*"response\.[\w.]*(?:done|completed|incomplete|failed|created|queued|in_progress|added)"'
)
"""Of OpenAI's responses, what repeats the request, or the text that came before."""
_GENERATED: tuple[tuple[str, ...], ...] = (
    ("usage", "completion_tokens"),
    ("x_groq", "usage", "completion_tokens"),
    ("usage", "output_tokens"),  # Anthropic
    ("response", "usage", "output_tokens"),  # OpenAI's responses
    ("eval_count",),  # Ollama
    ("details", "generated_tokens"),  # TGI
    ("meta_info", "completion_tokens"),  # SGLang
    ("tokens_predicted",),  # llama.cpp
    ("timings", "predicted_n"),  # llama.cpp, as OpenAI
    ("usageMetadata", "candidatesTokenCount"),  # Gemini
    ("delta", "usage", "tokens", "output_tokens"),  # Cohere
)
_PROMPT: tuple[tuple[str, ...], ...] = (
    ("usage", "prompt_tokens"),
    ("x_groq", "usage", "prompt_tokens"),
    ("usage", "input_tokens"),
    ("message", "usage", "input_tokens"),
    ("response", "usage", "input_tokens"),
    ("prompt_eval_count",),
    ("meta_info", "prompt_tokens"),
    ("tokens_evaluated",),
    ("timings", "prompt_n"),
)
"""Where an event, or a whole answer, counts the tokens of the generated text, and of the prompt."""
_CACHED: tuple[tuple[str, ...], ...] = (
    ("usage", "prompt_tokens_details", "cached_tokens"),
    ("usage", "prompt_cache_hit_tokens"),  # DeepSeek
    ("usage", "input_tokens_details", "cached_tokens"),  # OpenAI's responses
    ("response", "usage", "input_tokens_details", "cached_tokens"),
    ("usage", "cache_read_input_tokens"),  # Anthropic
    ("message", "usage", "cache_read_input_tokens"),
    ("meta_info", "cached_tokens"),  # SGLang
    ("timings", "cache_n"),  # llama.cpp
)
"""Where it counts those tokens of the prompt that the server had from earlier requests."""
_BESIDE_INPUT = ("cache_read_input_tokens", "cache_creation_input_tokens")
"""Of Anthropic, what ``input_tokens`` leaves out: tokens read from the cache, and those written to it."""
_ASKED: tuple[tuple[str, ...], ...] = (
    ("max_completion_tokens",),
    ("max_tokens",),
    ("max_output_tokens",),
    ("parameters", "max_new_tokens"),  # TGI
    ("sampling_params", "max_new_tokens"),  # SGLang
    ("options", "num_predict"),  # Ollama
    ("n_predict",),  # llama.cpp
)
"""Where a request says how many tokens it asks for."""
_MAY_COUNT = re.compile(
    b"|".join(
        rb'"%b"\s*:\s*\d' % name.encode()
        for name in dict.fromkeys(path[-1] for path in _GENERATED + _PROMPT + _CACHED)
    )
)
_REASON = re.compile(
    rb'"(?:(?:finish|stop|done)_reason"\s*:\s*|incomplete_details"\s*:\s*\{\s*"reason"\s*:\s*)"(\w+)"'
)
_COMPLETED = re.compile(rb'"type"\s*:\s*"response\.(completed)"')
"""The end of OpenAI's responses, which have no reason where nothing cut them short."""


def text_start(event: bytes) -> int:
    """Return where the text begins that the data of an event holds; 0 if none, as of a role or the usage."""
    field = _HAS_TEXT.search(event)
    if field is None or (b'"response.' in event and _REPEATS.search(event) is not None):
        return 0
    return field.end()


def is_reasoning(event: bytes) -> bool:
    """Return whether the text that the data of an event holds is reasoning, and not the answer itself."""
    if b"reasoning" not in event and b"thinking" not in event:
        return False
    return b'"response.reasoning' in event or {match[1] for match in _HAS_TEXT.finditer(event)} <= _REASONING


def is_streamed(reply: Reply) -> bool:
    """Return whether an answer is a stream of events."""
    return decoder_of(clients_messages.header_value(reply, "content-type").encode("latin-1")) is not None


def events(reply: Reply) -> Iterator[StreamEvent]:
    """Yield the events of a streamed answer."""
    return decode_stream(clients_messages.header_value(reply, "content-type").encode("latin-1"), reply.body)


def raise_on_error(event: StreamEvent) -> None:
    """Raise BrokenStream if an event reports an error."""
    if event.is_error:
        message = clients_messages.error_message(event.data)
        raise BrokenStream(
            RequestOutcome.SERVER_ERROR, f"the server reported an error in the stream: {message}"
        )


def asked_tokens(body: bytes) -> int:
    """Return the tokens that a request in JSON asks to generate at most; 0 if it does not say."""
    try:
        return limit_of(json.loads(body))
    except (ValueError, RecursionError):
        return 0


def limit_of(request: Any) -> int:
    """Return the tokens that a request asks to generate at most; 0 if it does not say."""
    return max(0, _count(request, _ASKED))


def finish_reason(reply: Reply) -> str:
    """Return why the text ended, as the server says, such as ``length`` or ``stop``; empty if it does not."""
    for body in last_parts(reply.body):
        reasons: list[bytes] = _REASON.findall(body) or _COMPLETED.findall(body)
        if reasons:
            return reasons[-1].decode()
    if is_streamed(reply):
        return ""
    answer = clients_messages.json_object_or_empty(reply)
    return str(answer.get("status") or "") if answer.get("object") == "response" else ""


def generated_tokens(reply: Reply) -> int:
    """Return the tokens of the generated text as the server counts them; -1 if it does not."""
    return _last_count(reply, _GENERATED)


def prompt_tokens(reply: Reply) -> int:
    """Return the tokens of the prompt as the server counts them; -1 if it does not."""
    return _last_count(reply, _PROMPT)


def cached_tokens(reply: Reply) -> int:
    """Return how many of these the server had from earlier requests; -1 if it does not say."""
    return _last_count(reply, _CACHED, beside=_PROMPT)


def _last_count(
    reply: Reply, places: Sequence[tuple[str, ...]], beside: Sequence[tuple[str, ...]] = ()
) -> int:
    """Return the last count, as those of several events grow; -1 if an event has one of `beside` without it.

    A driver reads it between two requests, so the whole answer is not decoded for what is not there.
    """
    if not is_streamed(reply):
        return _count(clients_messages.json_object_or_empty(reply), places)
    kind = clients_messages.header_value(reply, "content-type").encode("latin-1")
    for body in last_parts(reply.body):
        for event in reversed([*decode_stream(kind, body)]):
            if not _MAY_COUNT.search(event.data):
                continue
            document = event.json()
            if (count := _count(document, places)) >= 0 or _count(document, beside) >= 0:
                return count
    return -1


def _count(document: Any, places: Sequence[tuple[str, ...]]) -> int:
    for path in places:
        value = document
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if _is_count(value):
            return int(value) + _count_beside(document, path)
    return -1


def _count_beside(document: Any, path: tuple[str, ...]) -> int:
    """Return the tokens that a count of the prompt's leaves out."""
    if path[-1] != "input_tokens":
        return 0
    for name in path[:-1]:
        document = document[name]
    return sum(document[name] for name in _BESIDE_INPUT if _is_count(document.get(name)))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
