"""Bodies of requests to a language model: how each endpoint has texts, images and the number of tokens.

``completions``, ``chat``, ``embeddings`` and ``responses`` are OpenAI's, ``messages`` is Anthropic's, which
vLLM, SGLang and llama.cpp serve beside them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.engine.data import text_requests
from modeldyno.serving.clients import tensors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.engine.interfaces.request_target import Endpoint
    from modeldyno.models.interface import Feed

MAX_TOKENS = 64
_LIMIT = "max_tokens"
"""The number of tokens to generate at most, before an endpoint's own name of it takes its place."""
_MESSAGES, _INPUT = "messages", "input"
_STREAM = {"stream": True}
_STREAM_WITH_USAGE = {"stream": True, "stream_options": {"include_usage": True}}


def _chat_image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def _responses_image(url: str) -> dict[str, Any]:
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def _messages_image(url: str) -> dict[str, Any]:
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestForm:
    """How an endpoint has its requests."""

    path: str
    asks: str
    """The field of the prompt, or of what was said so far."""
    limits: tuple[str, ...] = (_LIMIT,)
    """Names of the number of tokens to generate, the usual one first; empty: none are generated."""
    takes: tuple[str, ...] = ()
    """Fields of a line of data that are sent in the place of `asks` as they are."""
    several: bool = False
    """Whether a request may have several prompts."""
    text_part: str = "text"
    """Type of a text beside images."""
    image: Callable[[str], dict[str, Any]] | None = None
    """Write an image, given its data URL; None: the endpoint takes none."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Fields of every request."""
    streamed: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a request whose answer is to come in pieces; empty: it comes whole."""
    headers: Mapping[str, str] = field(default_factory=dict)


_EITHER_LIMIT = (_LIMIT, "max_completion_tokens")
FORMS = {
    "completions": RequestForm(
        path="/v1/completions", asks="prompt", limits=_EITHER_LIMIT, several=True, streamed=_STREAM_WITH_USAGE
    ),
    "chat": RequestForm(
        path="/v1/chat/completions",
        asks=_MESSAGES,
        limits=_EITHER_LIMIT,
        takes=(_MESSAGES,),
        image=_chat_image,
        streamed=_STREAM_WITH_USAGE,
    ),
    "embeddings": RequestForm(path="/v1/embeddings", asks=_INPUT, limits=(), takes=(_INPUT,), several=True),
    "responses": RequestForm(
        path="/v1/responses",
        asks=_INPUT,
        limits=("max_output_tokens",),
        takes=(_INPUT, _MESSAGES),
        text_part="input_text",
        image=_responses_image,
        fixed={"store": False},  # a server would otherwise keep each answer of a load
        streamed=_STREAM,
    ),
    "messages": RequestForm(
        path="/v1/messages",
        asks=_MESSAGES,
        takes=(_MESSAGES,),
        image=_messages_image,
        streamed=_STREAM,
        headers={"anthropic-version": "2023-06-01"},
    ),
}
"""Option `endpoint` to the form of its requests."""


def form_of(endpoint: Endpoint) -> RequestForm:
    """Return the form that the option `endpoint` names.

    Raises:
        UnknownName: it names none.
    """
    kind = _kind(endpoint)
    if kind not in FORMS:
        raise UnknownName.among("endpoint", kind, FORMS)
    return FORMS[kind]


def _kind(endpoint: Endpoint) -> str:
    return str(endpoint.options.get("endpoint", "completions"))


def is_streamed(endpoint: Endpoint) -> bool:
    """Return whether answers are asked for in pieces."""
    return bool(form_of(endpoint).streamed) and bool(endpoint.options.get("stream", True))


def request_bodies(feeds: Sequence[Feed], endpoint: Endpoint) -> list[dict[str, Any]]:
    """Return the fields of each request; a null of `extra` leaves a field out, as in RFC 7396.

    Raises:
        RequestError: an input is not text, the endpoint does not take it, or an option is wrong.
    """
    fixed, extra, limit = _common_fields(endpoint), _extra_fields(endpoint), _limit_name(endpoint)
    removed = {name for name, value in extra.items() if value is None}
    bodies = ({**fixed, **_asked_fields(_kind(endpoint), feed), **extra} for feed in feeds)
    return [
        {limit if name == _LIMIT else name: value for name, value in body.items() if name not in removed}
        for body in bodies
    ]


def _limit_name(endpoint: Endpoint) -> str:
    """Return the field of the number of tokens.

    Raises:
        RequestError: the endpoint does not know the name that the option `token_limit` gives.
    """
    limits = form_of(endpoint).limits or _EITHER_LIMIT
    name = str(endpoint.options.get("token_limit", limits[0]))
    if name not in limits:
        raise RequestError(
            f"Requests of endpoint={_kind(endpoint)} have {limits[0]}, not {name}; leave out token_limit."
        )
    return name


def _common_fields(endpoint: Endpoint) -> dict[str, Any]:
    """Return the fields that all requests share."""
    form = form_of(endpoint)
    model = {"model": endpoint.model} if endpoint.model else {}
    if not form.limits:
        return model
    options = {
        _LIMIT: int(endpoint.options.get("max_tokens", MAX_TOKENS)),
        "temperature": float(endpoint.options.get("temperature", 0)),
    }
    return {**model, **options, **form.fixed, **(form.streamed if is_streamed(endpoint) else {})}


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


def _asked_fields(kind: str, feed: Feed) -> dict[str, Any]:
    """Return what a payload asks, and the fields that go with it."""
    form, texts = FORMS[kind], _texts(feed)
    if len(texts) > 1 and not form.several:
        raise RequestError(
            f"endpoint={kind} takes one prompt per request, not {len(texts)}; set batch_size=1."
        )
    requests = [text_requests.read_request(text) for text in texts]
    prompts = [request.pop("prompt", None) for request in requests]
    images = [request.pop(text_requests.IMAGES, ()) for request in requests]
    if any(images) and form.image is None:
        raise RequestError(
            f"Requests of endpoint={kind} have no images; set {_endpoints(lambda form: bool(form.image))}, "
            "or leave out images."
        )
    fields = requests[0]
    if any(request != fields for request in requests):
        raise RequestError(
            "Prompts that ask for different things, such as their `max_tokens`, cannot share a request; "
            "set batch_size=1."
        )
    if not form.limits:
        fields.pop(_LIMIT, None)
    return {form.asks: _question(kind, prompts, fields, images[0]), **fields}


def _texts(feed: Feed) -> list[Any]:
    name, array = tensors.single_input(feed, "This protocol")
    if tensors.dtype_name(array) != tensors.TEXT:
        raise RequestError(f"The input '{name}' is {array.dtype}, but this protocol takes text.")
    texts: list[Any] = tensors.to_lists(name, array.reshape(-1))
    if not texts:
        raise RequestError(f"The input '{name}' is empty; give at least one prompt.")
    return texts


def _endpoints(has: Callable[[RequestForm], bool]) -> str:
    """Write the values of the option `endpoint` whose form is such: ``endpoint=chat or responses``."""
    *names, last = (name for name, form in FORMS.items() if has(form))
    return f"endpoint={', '.join(names)}{' or ' if names else ''}{last}"


def _question(kind: str, prompts: list[Any], fields: dict[str, Any], images: Sequence[str]) -> Any:
    """Return what is asked, as the endpoint has it; what `fields` have of that is taken from them."""
    form = FORMS[kind]
    given = next((name for name in (_MESSAGES, _INPUT) if name in fields), "")
    if given and given not in form.takes:
        raise RequestError(
            f"The data have the field {given}, which requests of endpoint={kind} have not; set "
            f"{_endpoints(lambda form: given in form.takes)}."
        )
    if not given and form.several:
        return prompts[0] if len(prompts) == 1 else prompts
    if not given and form.asks == _INPUT and not images:
        return prompts[0]
    spoken = fields.pop(given) if given else [{"role": "user", "content": prompts[0]}]
    return _with_images(spoken, images, form) if images else spoken


def _with_images(spoken: list[Any], images: Sequence[str], form: RequestForm) -> list[Any]:
    """Put images after the text of the last message, so that requests whose texts begin alike still do."""
    assert form.image is not None
    *earlier, last = spoken
    content = last.get("content") or []
    parts = [{"type": form.text_part, "text": content}] if isinstance(content, str) else content
    return [*earlier, {**last, "content": [*parts, *map(form.image, images)]}]
