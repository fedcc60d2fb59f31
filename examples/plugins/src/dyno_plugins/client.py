"""``plain-json``: POST /predict with ``{"x": [...]}``, which answers with named lists, too."""

from __future__ import annotations

from collections.abc import Sequence

from modeldyno.plugin import (
    Client,
    Endpoint,
    Feed,
    Reply,
    ServerInfo,
    Target,
    Transport,
    encode_json,
    from_values,
    get_target,
    http_target,
    json_object_or_empty,
    post_request,
    read_json_object,
    to_lists,
)

NAME = "plain-json"


class PlainJsonClient(Client):
    """Encodes inputs as named lists; of the rest a protocol may have, it has a greeting."""

    requires: tuple[str, ...] = ()
    transport = Transport.HTTP

    def target(self, feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
        """Encode each payload as a request."""
        return http_target(NAME, endpoint, [_request(endpoint, feed) for feed in feeds])

    def arrays(self, reply: Reply) -> Feed:
        """Decode an answer; ValueError with a short phrase if it is malformed."""
        return {
            name: from_values(name, values, None, None) for name, values in read_json_object(reply).items()
        }

    def greeting(self, endpoint: Endpoint) -> Target:
        """Ask the server who it is."""
        return get_target(NAME, endpoint, "/about")

    def recognised(self, reply: Reply) -> ServerInfo | None:
        """Recognise a server that says that it speaks this protocol."""
        about = json_object_or_empty(reply)
        return ServerInfo(name="plain-json") if about.get("protocol") == NAME else None


def _request(endpoint: Endpoint, feed: Feed) -> bytes:
    lists = {name: to_lists(name, array) for name, array in feed.items()}
    return post_request(endpoint, "/predict", encode_json(lists, instead="finite numbers"))
