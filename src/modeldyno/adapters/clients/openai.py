"""``openai``: OpenAI's completions, chat completions and embeddings, which many servers support.

Options: ``endpoint`` (``completions``, the default; ``chat``; ``embeddings``), ``stream`` (default true: the
answer comes in pieces), ``max_tokens``, ``temperature`` (default 0: the same prompt gives the same text),
and ``extra``, a JSON object added to each request, such as ``{"ignore_eos": true}``.
The input ``prompt`` is text: lines of a file, or random words, 128 by default
(``--input prompt=1:string:64..256``). A chat takes one prompt per request; the others take a batch.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from modeldyno.adapters.clients import messages as clients_messages
from modeldyno.adapters.clients import tensors
from modeldyno.core.load.request_log import RequestOutcome
from modeldyno.core.load.request_target import BrokenStream, ServerInfo, Transport
from modeldyno.core.spec.input_spec import BATCH, InputSpec
from modeldyno.errors import RequestError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.load.request_target import Endpoint, Reply, Target
    from modeldyno.interfaces.loader import Feed

requires: tuple[str, ...] = ()
transport = Transport.HTTP

NAME = "openai"
PROMPT = "prompt"
PATHS = {
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
    "embeddings": "/v1/embeddings",
}
"""Option `endpoint` to its path."""
MAX_TOKENS = 64
_DATA, _DONE = b"data:", b"[DONE]"
_FINISHED = re.compile(rb'"finish_reason":\s*"')
_HAS_TEXT = re.compile(rb'"(?:text|content|reasoning|reasoning_content|arguments)":\s*"(?!")')
_EVENT_STREAM = "text/event-stream"


# -- requests ------------------------------------------------------------------------------------


def target(feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
    """Turn each payload into a request.

    Raises:
        RequestError: an input is not text, a chat has several prompts, or an option is wrong.
    """
    kind = str(endpoint.options.get("endpoint", "completions"))
    if kind not in PATHS:
        raise UnknownName.among("endpoint", kind, PATHS)
    stream = kind != "embeddings" and bool(endpoint.options.get("stream", True))
    fixed = {**_common_fields(endpoint, kind, stream=stream), **_extra_fields(endpoint)}
    bodies = ({**_prompt_fields(kind, feed), **fixed} for feed in feeds)
    path = _base_path(endpoint, PATHS[kind])
    headers = {"Accept": _EVENT_STREAM} if stream else {}
    messages = [
        clients_messages.post_request(
            endpoint, path, clients_messages.encode_json(body, instead="remove them"), headers=headers
        )
        for body in bodies
    ]
    return clients_messages.http_target(NAME, endpoint, messages, stream=stream, counted=kind != "embeddings")


def _base_path(endpoint: Endpoint, path: str) -> str:
    """Drop ``/v1`` from the path if the URL already ends in it, as base URLs of this protocol do."""
    return path.removeprefix("/v1") if endpoint.path.rstrip("/").endswith("/v1") else path


def _common_fields(endpoint: Endpoint, kind: str, *, stream: bool) -> dict[str, Any]:
    """Return the fields that all requests share."""
    model = {"model": endpoint.model} if endpoint.model else {}
    if kind == "embeddings":
        return model
    options = {
        "max_tokens": int(endpoint.options.get("max_tokens", MAX_TOKENS)),
        "temperature": float(endpoint.options.get("temperature", 0)),
    }
    streamed = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    return {**model, **options, **streamed}


def _extra_fields(endpoint: Endpoint) -> dict[str, Any]:
    text = str(endpoint.options.get("extra") or "{}")
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise RequestError(f'extra={text} is not a JSON object; write for example {{"ignore_eos": true}}.')
    if "stream" in fields:
        raise RequestError("extra cannot set stream; use the knob stream.")
    return fields


def _prompt_fields(kind: str, feed: Feed) -> dict[str, Any]:
    name, array = tensors.single_input(feed, "This protocol")
    if tensors.dtype_name(array) != tensors.TEXT:
        raise RequestError(f"The input '{name}' is {array.dtype}, but this protocol takes text.")
    texts = tensors.to_lists(name, array.reshape(-1))
    if not texts:
        raise RequestError(f"The input '{name}' is empty; give at least one prompt.")
    if kind == "chat":
        if len(texts) > 1:
            raise RequestError(f"A chat takes one prompt per request, not {len(texts)}; set batch_size=1.")
        return {"messages": [{"role": "user", "content": texts[0]}]}
    return {"input" if kind == "embeddings" else "prompt": texts[0] if len(texts) == 1 else texts}


# -- answers -------------------------------------------------------------------------------------


def arrays(reply: Reply) -> Feed:
    """Return ``text``, one per prompt, or ``embedding``, one row per prompt."""
    clients_messages.check_http_status(reply)
    events = list(_events(reply.body)) if _is_streamed(reply) else [clients_messages.parse_json(reply.body)]
    for event in events:
        _raise_on_error(event)
    if _is_streamed(reply):
        _raise_if_cut(reply)
    try:
        if events and "data" in events[0]:
            rows = sorted(events[0]["data"], key=lambda row: row["index"])
            return {
                "embedding": tensors.from_values(
                    "embedding", [row["embedding"] for row in rows], "float32", None
                )
            }
        texts = _texts(events)
    except (KeyError, TypeError, AttributeError):
        raise ValueError("the answer has neither choices nor embeddings where they should be") from None
    if not texts:
        raise ValueError("the answer has no choices")
    return {
        "text": tensors.from_values("text", [texts[index] for index in sorted(texts)], tensors.TEXT, None)
    }


def _texts(events: list[Any]) -> dict[int, str]:
    """Join the pieces of each choice."""
    texts: dict[int, str] = {}
    for event in events:
        for choice in event.get("choices") or ():
            index = int(choice.get("index", 0))
            texts[index] = texts.get(index, "") + _text_of(choice)
    return texts


def _text_of(choice: dict[str, Any]) -> str:
    """Return the text of a completion, a chat, or a piece of one; reasoning counts as text."""
    message = choice.get("delta") or choice.get("message")
    if message is None:
        return str(choice.get("text") or "")
    reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
    return f"{reasoning}{message.get('content') or ''}"


def tokens(reply: Reply) -> int:
    """Return the number of generated tokens that the server reports; pieces are not tokens.

    Raises:
        BrokenStream: the stream reports an error, or is incomplete.
        ValueError: an event is not JSON.
    """
    if _is_streamed(reply):
        if b'"error"' in reply.body:
            for event in _events(reply.body):
                _raise_on_error(event)
        _raise_if_cut(reply)
    return _usage(reply, "completion_tokens")


def prompt_tokens(reply: Reply) -> int:
    """Return the number of prompt tokens that the server reports; -1 if unknown."""
    try:
        return _usage(reply, "prompt_tokens")
    except ValueError:
        return -1


def _usage(reply: Reply, name: str) -> int:
    """Return a number from the usage; it comes last, so search from the end of the stream."""
    if not _is_streamed(reply):
        return _usage_count(clients_messages.json_object_or_empty(reply), name)
    for line in reversed(reply.body.splitlines()):
        if line.startswith(_DATA) and b'"usage"' in line:
            count = _usage_count(clients_messages.parse_json(line[len(_DATA) :]), name)
            if count >= 0:
                return count
    return -1


def bearing(event: bytes) -> bool:
    """Return whether an event holds text: the first of a chat often has only the role, the last the usage."""
    return _HAS_TEXT.search(event) is not None


def _usage_count(reply: Any, name: str) -> int:
    usage = reply.get("usage") if isinstance(reply, dict) else None
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if isinstance(count, int) and count >= 0 else -1


def _is_streamed(reply: Reply) -> bool:
    return clients_messages.header_value(reply, "content-type").lower().startswith(_EVENT_STREAM)


def _events(body: bytes) -> Iterator[Any]:
    """Yield the data of each event of a stream, as JSON."""
    for line in body.splitlines():
        data = line[len(_DATA) :].strip() if line.startswith(_DATA) else b""
        if data and data != _DONE:
            yield clients_messages.parse_json(data)


def _raise_on_error(event: Any) -> None:
    if isinstance(event, dict) and event.get("error"):
        message = clients_messages.error_message(json.dumps(event).encode())
        raise BrokenStream(
            RequestOutcome.SERVER_ERROR, f"the server reported an error in the stream: {message}"
        )


def _raise_if_cut(reply: Reply) -> None:
    if not reply.body.rstrip().endswith(_DONE) and not _FINISHED.search(reply.body):
        raise BrokenStream(
            RequestOutcome.TRUNCATED, "the stream ends without [DONE], and no choice has finished"
        )


# -- the server ----------------------------------------------------------------------------------


def greeting(endpoint: Endpoint) -> Target:
    """Return the request for the list of models."""
    return clients_messages.get_target(NAME, endpoint, _base_path(endpoint, "/v1/models"))


def recognised(reply: Reply) -> ServerInfo | None:
    """Return the server's models; None if the reply is not a list of models."""
    listing = clients_messages.json_object_or_empty(reply)
    if not isinstance(listing.get("data"), list):
        return None
    models = [entry.get("id") for entry in listing["data"] if isinstance(entry, dict)]
    return ServerInfo(models=tuple(name for name in models if isinstance(name, str)))


def described(endpoint: Endpoint) -> None:
    """Return None: the input is always text."""
    del endpoint


def inputs(reply: Reply | None, endpoint: Endpoint) -> tuple[InputSpec, ...]:
    """Return the prompt; the reply is not needed."""
    del reply, endpoint
    return (PROMPT_INPUT,)


WORDS = 128
"""Default length of a random prompt."""
PROMPT_INPUT = InputSpec(name=PROMPT, shape=(BATCH,), dtype="string", low=WORDS, high=WORDS)
