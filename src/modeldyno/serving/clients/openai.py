"""``openai``: OpenAI's completions, chat completions and embeddings, which many servers support.

Options: ``endpoint`` (``completions``, the default; ``chat``; ``embeddings``), ``stream`` (default true: the
answer comes in pieces), ``max_tokens``, ``temperature`` (default 0: the same prompt gives the same text),
``token_limit`` (the field of a request that has ``max_tokens``, for servers that know another one),
and ``extra``, a JSON object added to each request, such as ``{"ignore_eos": true}``; null leaves a field out.
The input ``prompt`` is text: lines of a file, or random words, 128 by default
(``--input prompt=1:string:64..256``). A chat takes one prompt per request; the others take a batch. A line of
a ``.jsonl`` may be a request of its own, with its messages and ``max_tokens``; see
`engine.data.text_requests`.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.input_spec import BATCH, InputSpec
from modeldyno.base.job.prompt_lengths import WORDS_OF_A_PROMPT
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.engine.data import text_requests
from modeldyno.engine.interfaces.request_target import BrokenStream, ServerInfo, Transport
from modeldyno.serving.clients import generated_text, tensors
from modeldyno.serving.clients import messages as clients_messages
from modeldyno.serving.loadgen.event_stream import DONE, StreamEvent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modeldyno.engine.interfaces.request_target import Endpoint, Reply, Target
    from modeldyno.models.interface import Feed

requires: tuple[str, ...] = ()
transport = Transport.HTTP
takes_requests = True

NAME = "openai"
PROMPT = "prompt"
PATHS = {
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
    "embeddings": "/v1/embeddings",
}
"""Option `endpoint` to its path."""
MAX_TOKENS = 64
_LIMIT = "max_tokens"
"""Field of the number of tokens to generate at most, unless the option `token_limit` names another."""
_EVENT_STREAM = "text/event-stream"


# -- requests ------------------------------------------------------------------------------------


def target(feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
    """Turn each payload into a request.

    Raises:
        RequestError: an input is not text, a chat has several prompts, or an option is wrong.
    """
    return _posted(_bodies(feeds, endpoint), endpoint)


def sequence_target(feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
    """Turn each payload into a turn of a chat, to which the history of its session is added as it is sent.

    Raises:
        RequestError: as `target` does, and if requests are no chats of one answer each, or are compressed.
    """
    if _kind(endpoint) != "chat":
        raise RequestError(
            "Sessions of several turns are chats: give endpoint=chat, or leave out `sequence`."
        )
    if endpoint.options.get("compression"):
        raise RequestError(
            "The requests of a session grow while it is sent; leave out compression or `sequence`."
        )
    bodies = _bodies(feeds, endpoint)
    if any(body.get("n", 1) != 1 for body in bodies):
        raise RequestError("A session goes on with one answer; leave out n, or `sequence`.")
    turns = [body.pop("messages") for body in bodies]
    times = tuple(float(body.pop(text_requests.THINK_TIME, -1.0)) for body in bodies)
    posted = _posted([{**body, "messages": turn} for body, turn in zip(bodies, turns, strict=True)], endpoint)
    lengths = [len(clients_messages.encode_json(turn, instead="remove them")) for turn in turns]
    return replace(
        posted,
        marks=tuple(len(message) - size for message, size in zip(posted.messages, lengths, strict=True)),
        turn_ends=tuple(len(message) - len("]}") for message in posted.messages),
        think_times=times if max(times, default=-1.0) >= 0 else (),
    )


def _kind(endpoint: Endpoint) -> str:
    kind = str(endpoint.options.get("endpoint", "completions"))
    if kind not in PATHS:
        raise UnknownName.among("endpoint", kind, PATHS)
    return kind


def _is_streamed(endpoint: Endpoint) -> bool:
    return _kind(endpoint) != "embeddings" and bool(endpoint.options.get("stream", True))


def _bodies(feeds: Sequence[Feed], endpoint: Endpoint) -> list[dict[str, Any]]:
    """Return the fields of each request; a null of `extra` leaves a field out, as in RFC 7396."""
    fixed, extra = _common_fields(endpoint), _extra_fields(endpoint)
    removed = {name for name, value in extra.items() if value is None}
    limit = str(endpoint.options.get("token_limit", _LIMIT))
    bodies = ({**fixed, **_prompt_fields(_kind(endpoint), feed), **extra} for feed in feeds)
    return [
        {limit if name == _LIMIT else name: value for name, value in body.items() if name not in removed}
        for body in bodies
    ]


def _posted(bodies: Sequence[Mapping[str, Any]], endpoint: Endpoint) -> Target:
    kind, stream = _kind(endpoint), _is_streamed(endpoint)
    path = _base_path(endpoint, PATHS[kind])
    headers = {"Accept": _EVENT_STREAM} if stream else {}
    messages = [
        clients_messages.post_request(
            endpoint, path, clients_messages.encode_json(body, instead="remove them"), headers=headers
        )
        for body in bodies
    ]
    return replace(
        clients_messages.http_target(NAME, endpoint, messages, stream=stream, counted=kind != "embeddings"),
        token_limits=tuple(map(_asked_tokens, bodies)),
        tokenizer=str(endpoint.options.get("tokenizer", "")),
    )


def _asked_tokens(body: Mapping[str, Any]) -> int:
    """Return the tokens that a request asks to generate for all of its prompts and choices; 0 if unknown."""
    count = body.get("max_completion_tokens") or body.get("max_tokens")
    prompts, choices = body.get("prompt"), body.get("n", 1)
    if not isinstance(count, int) or not isinstance(choices, int):
        return 0
    return count * choices * (len(prompts) if isinstance(prompts, list) else 1)


def _base_path(endpoint: Endpoint, path: str) -> str:
    """Drop ``/v1`` from the path if the URL already ends in it, as base URLs of this protocol do."""
    return path.removeprefix("/v1") if endpoint.path.rstrip("/").endswith("/v1") else path


def _common_fields(endpoint: Endpoint) -> dict[str, Any]:
    """Return the fields that all requests share."""
    model = {"model": endpoint.model} if endpoint.model else {}
    if _kind(endpoint) == "embeddings":
        return model
    options = {
        "max_tokens": int(endpoint.options.get("max_tokens", MAX_TOKENS)),
        "temperature": float(endpoint.options.get("temperature", 0)),
    }
    usage = {"stream": True, "stream_options": {"include_usage": True}}
    streamed = usage if _is_streamed(endpoint) else {}
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
    if kind == "chat" and len(texts) > 1:
        raise RequestError(f"A chat takes one prompt per request, not {len(texts)}; set batch_size=1.")
    requests = [text_requests.read_request(text) for text in texts]
    prompts = [request.pop("prompt", None) for request in requests]
    fields = requests[0]
    if any(request != fields for request in requests):
        raise RequestError(
            "Prompts that ask for different things, such as their `max_tokens`, cannot share a request; "
            "set batch_size=1."
        )
    if kind == "chat":
        return {"messages": [{"role": "user", "content": prompts[0]}], **fields}
    if "messages" in fields:
        raise RequestError("The data are messages of a chat, which endpoint=chat takes.")
    if kind == "embeddings":
        fields.pop("max_tokens", None)
    return {
        "input" if kind == "embeddings" else "prompt": prompts[0] if len(prompts) == 1 else prompts,
        **fields,
    }


# -- answers -------------------------------------------------------------------------------------


def arrays(reply: Reply) -> Feed:
    """Return ``text``, one per prompt, or ``embedding``, one row per prompt."""
    clients_messages.check_http_status(reply)
    if generated_text.is_streamed(reply):
        _check_stream(reply)
        answers = [clients_messages.parse_json(event.data) for event in generated_text.events(reply)]
    else:
        answers = [clients_messages.parse_json(reply.body)]
        generated_text.raise_on_error(StreamEvent(b"", reply.body))
    try:
        if answers and "data" in answers[0]:
            rows = sorted(answers[0]["data"], key=lambda row: row["index"])
            return {
                "embedding": tensors.from_values(
                    "embedding", [row["embedding"] for row in rows], "float32", None
                )
            }
        texts = _texts(answers)
    except (KeyError, TypeError, AttributeError):
        raise ValueError("the answer has neither choices nor embeddings where they should be") from None
    if not texts:
        raise ValueError("the answer has no choices")
    return {
        "text": tensors.from_values("text", [texts[index] for index in sorted(texts)], tensors.TEXT, None)
    }


def text(reply: Reply) -> str:
    """Return the texts of all choices, one after the other."""
    streamed = generated_text.is_streamed(reply)
    bodies = [event.data for event in generated_text.events(reply)] if streamed else [reply.body]
    return "".join(_texts([clients_messages.parse_json(body) for body in bodies]).values())


def _texts(answers: list[Any]) -> dict[int, str]:
    """Join the pieces of each choice."""
    texts: dict[int, str] = {}
    for answer in answers:
        for choice in answer.get("choices") or ():
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


def assistant_message(reply: Reply) -> bytes:
    """Return the answer as a message of the chat that goes on, without any reasoning; it has one choice.

    Pieces are joined as they are, still escaped: to decode each would take the driver's time from its clock.

    Raises:
        ValueError: the answer has no text.
    """
    text = b"".join(_CONTENT.findall(reply.body)) or json.dumps(_content(reply))[1:-1].encode()
    return b'{"role":"assistant","content":"%b"}' % text


_CONTENT = re.compile(rb'"content"\s*:\s*"((?:[^"\\]|\\.)*)"')
"""A text in its place; that of a thought has another name."""


def _content(reply: Reply) -> str:
    """Return the text of an answer whose content is not plain; empty if it has none, as calls of tools."""
    streamed = generated_text.is_streamed(reply)
    bodies = (event.data for event in generated_text.events(reply)) if streamed else (reply.body,)
    pieces: list[str] = []
    for body in bodies:
        answer = clients_messages.parse_json(body)
        for choice in (answer.get("choices") if isinstance(answer, dict) else None) or ():
            content = (choice.get("delta") or choice.get("message") or {}).get("content") or ""
            parts = content if isinstance(content, list) else [{"text": content}]
            pieces += [str(part.get("text") or "") for part in parts if isinstance(part, dict)]
    return "".join(pieces)


def tokens(reply: Reply) -> int:
    """Return the number of generated tokens that the server reports; pieces are not tokens.

    Raises:
        BrokenStream: the stream reports an error, or is incomplete.
    """
    if generated_text.is_streamed(reply):
        _check_stream(reply)
    return generated_text.generated_tokens(reply)


prompt_tokens = generated_text.prompt_tokens
finish_reason = generated_text.finish_reason
cached_tokens = generated_text.cached_tokens
bearing = generated_text.bears_openai_text
is_reasoning = generated_text.is_reasoning


def _check_stream(reply: Reply) -> None:
    """Raise BrokenStream if a stream reports an error, or has neither its end mark nor a finished choice."""
    if b"error" in reply.body:
        for event in generated_text.events(reply):
            generated_text.raise_on_error(event)
    if not reply.body.rstrip().endswith(DONE) and not generated_text.finish_reason(reply):
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


PROMPT_INPUT = InputSpec(
    name=PROMPT, shape=(BATCH,), dtype="string", low=WORDS_OF_A_PROMPT, high=WORDS_OF_A_PROMPT
)
