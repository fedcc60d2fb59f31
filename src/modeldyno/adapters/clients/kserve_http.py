"""``kserve-http``: the Open Inference Protocol (version 2) over HTTP, as Triton, MLServer, KServe speak it.

The option ``binary`` (by default true) sends and asks for tensors as raw bytes behind the JSON, an extension
that Triton and KServe have; MLServer needs ``binary=false``, which is tensors as numbers in JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.adapters.clients import kserve, tensors
from modeldyno.adapters.clients import messages as clients_messages
from modeldyno.core.load.request_target import Server, Transport
from modeldyno.errors import RequestError
from modeldyno.servers import triton_stats

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy import ndarray

    from modeldyno.core.load.request_target import Endpoint, Reply, Target
    from modeldyno.core.load.server_stats import Account
    from modeldyno.core.spec.input_spec import InputSpec
    from modeldyno.interfaces import Feed

requires: tuple[str, ...] = ()
transport = Transport.HTTP

NAME = "kserve-http"
JSON_LENGTH = "Inference-Header-Content-Length"
"""Header that says where the JSON ends and the raw bytes begin."""
_BINARY = "binary_tensor_data"
"""The extension's name in a server's metadata."""
_INSTEAD = "take binary=true, if the server can"


def target(feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
    """Make each payload a request for inference.

    Raises:
        RequestError: the protocol cannot carry an input.
    """
    path = clients_messages.model_path(endpoint, "/v2/models/") + "/infer"
    make = _binary if endpoint.options.get("binary", True) else _json
    return clients_messages.http(NAME, endpoint, [make(endpoint, path, feed) for feed in feeds])


def _json(endpoint: Endpoint, path: str, feed: Feed) -> bytes:
    inputs = [
        {**_tensor(name, array), "data": _data(name, array)}
        for name, array in tensors.named(feed, kserve.EXAMPLE).items()
    ]
    return clients_messages.post(
        endpoint, path, clients_messages.written({"inputs": inputs}, instead=_INSTEAD)
    )


def _binary(endpoint: Endpoint, path: str, feed: Feed) -> bytes:
    raw = {name: kserve.to_bytes(name, array) for name, array in tensors.named(feed, kserve.EXAMPLE).items()}
    inputs = [
        {**_tensor(name, array), "parameters": {"binary_data_size": len(raw[name])}}
        for name, array in feed.items()
    ]
    head = clients_messages.written(
        {"inputs": inputs, "parameters": {"binary_data_output": True}}, instead=_INSTEAD
    )
    return clients_messages.post(
        endpoint,
        path,
        b"".join((head, *raw.values())),
        kind=clients_messages.OCTETS,
        headers={JSON_LENGTH: str(len(head))},
    )


def _tensor(name: str, array: ndarray) -> dict[str, Any]:
    return {"name": name, "shape": list(array.shape), "datatype": kserve.datatype(name, array)}


def _data(name: str, array: ndarray) -> Any:
    if tensors.kind(array) == tensors.BFLOAT16:
        raise RequestError(f"The input '{name}' is bfloat16, which has no form in JSON: {_INSTEAD}.")
    return tensors.lists(name, array.reshape(-1))


def arrays(reply: Reply) -> Feed:
    """Read the outputs, from JSON or from the bytes behind it."""
    clients_messages.check(reply)
    length = clients_messages.header(reply, JSON_LENGTH)
    if length and not (length.isdigit() and int(length) <= len(reply.body)):
        raise ValueError(f"the header {JSON_LENGTH} is {length!r} for an answer of {len(reply.body):,} bytes")
    end = int(length) if length else len(reply.body)
    head = clients_messages.parsed(reply.body[:end])
    entries = head.get("outputs") if isinstance(head, dict) else None
    if not isinstance(entries, list) or not entries:
        raise ValueError("the answer has no outputs")
    try:
        return dict(_outputs(entries, memoryview(reply.body)[end:]))
    except (KeyError, TypeError, AttributeError):
        raise ValueError("an output lacks name, datatype, shape or data") from None


def _outputs(entries: list[Any], raw: memoryview) -> Iterator[tuple[str, ndarray]]:
    at = 0
    for entry in entries:
        name, kind, shape = str(entry["name"]), entry["datatype"], [int(size) for size in entry["shape"]]
        size = (entry.get("parameters") or {}).get("binary_data_size")
        if size is None:
            yield name, tensors.from_values(name, entry["data"], kserve.dtype_of(name, kind), shape)
            continue
        if not 0 <= size <= len(raw) - at:
            raise ValueError(f"output '{name}' should have {size:,} bytes, and {len(raw) - at:,} are left")
        yield name, kserve.from_bytes(name, raw[at : at + size], kind, shape)
        at += size
    if at != len(raw):
        raise ValueError(f"{len(raw) - at:,} bytes of the answer belong to no output")


def tokens(reply: Reply) -> int:
    """Tell nothing: the protocol has no tokens."""
    del reply
    return -1


def greeting(endpoint: Endpoint) -> Target:
    """Ask the server what it is."""
    return clients_messages.get(NAME, endpoint, "/v2")


def recognised(reply: Reply) -> Server | None:
    """Read what it is, and whether it takes raw bytes."""
    found = clients_messages.quiet(reply)
    if not isinstance(found.get("name"), str) or "version" not in found:
        return None
    options = {"binary": _BINARY in (found.get("extensions") or ())}
    return Server(name=f"{found['name']} {found['version']}", options=options)


def listing(endpoint: Endpoint) -> Target:
    """Ask for the models that are ready, an extension that Triton and MLServer have."""
    return clients_messages.http(
        NAME, endpoint, [clients_messages.post(endpoint, "/v2/repository/index", b'{"ready":true}')]
    )


def listed(reply: Reply) -> tuple[str, ...]:
    """Read their names; a model has an entry for each of its versions."""
    try:
        found = clients_messages.content(reply)
        return kserve.names(found)
    except (ValueError, TypeError, AttributeError):
        return ()


def described(endpoint: Endpoint) -> Target:
    """Ask for the model's metadata."""
    return clients_messages.get(NAME, endpoint, clients_messages.model_path(endpoint, "/v2/models/"))


def inputs(reply: Reply | None, endpoint: Endpoint) -> tuple[InputSpec, ...]:
    """Read the inputs in the metadata."""
    del endpoint
    if reply is None:
        return ()
    return kserve.declared(clients_messages.table(reply).get("inputs") or ())


def statistics(endpoint: Endpoint) -> Target:
    """Ask for the model's statistics, an extension that Triton has."""
    return clients_messages.get(
        NAME, endpoint, clients_messages.model_path(endpoint, "/v2/models/") + "/stats"
    )


def account(reply: Reply, endpoint: Endpoint) -> Account:
    """Read the statistics."""
    del endpoint
    return triton_stats.account(clients_messages.table(reply))
