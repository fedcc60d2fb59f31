"""``plain-json``: POST /predict with ``{"x": [...]}``, which answers with named lists, too."""

from __future__ import annotations

from collections.abc import Sequence

from modeldyno.plugin import (
    Endpoint,
    Feed,
    InputSpec,
    Reply,
    ServerInfo,
    Target,
    Transport,
    encode_json,
    from_values,
    get_target,
    http_target,
    json_object_or_empty,
    no_tokens,
    post_request,
    read_json_object,
    to_lists,
)

requires: tuple[str, ...] = ()
transport = Transport.HTTP

NAME = "plain-json"
tokens = no_tokens


def target(feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
    """Encode each payload as a request."""
    return http_target(NAME, endpoint, [_request(endpoint, feed) for feed in feeds])


def _request(endpoint: Endpoint, feed: Feed) -> bytes:
    lists = {name: to_lists(name, array) for name, array in feed.items()}
    return post_request(endpoint, "/predict", encode_json(lists, instead="finite numbers"))


def arrays(reply: Reply) -> Feed:
    """Decode an answer; ValueError with a short phrase if it is malformed."""
    return {name: from_values(name, values, None, None) for name, values in read_json_object(reply).items()}


def greeting(endpoint: Endpoint) -> Target:
    """Ask the server who it is."""
    return get_target(NAME, endpoint, "/about")


def recognised(reply: Reply) -> ServerInfo | None:
    """Recognise a server that says that it speaks this protocol."""
    about = json_object_or_empty(reply)
    return ServerInfo(name="plain-json") if about.get("protocol") == NAME else None


def described(endpoint: Endpoint) -> None:
    """Return None: the protocol does not describe a model's inputs."""


def inputs(reply: Reply | None, endpoint: Endpoint) -> tuple[InputSpec, ...]:
    """Return nothing: the inputs are unknown, and ``--input`` gives them."""
    return ()
