"""``url:http://host:8000#model@version``: a model on a server that someone else runs.

The server is asked, once each, which protocol it speaks (unless the URL says so: ``#model,protocol=openai``)
and for the model's inputs. Nothing is loaded, unloaded or executed, and redirects are not followed. A server
describes its model's inputs and outputs but not its weights: the digest is of that description.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.clock import monotonic, sleep
from modeldyno.base.errors import RequestError
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.base.stats.units import SECONDS, format_quantity
from modeldyno.engine.interfaces.request_target import ServerInfo, Transport
from modeldyno.models.interface import Executes, Form, Model
from modeldyno.models.loaders import digest
from modeldyno.serving.load import endpoint_url
from modeldyno.serving.loadgen.single_request import send_once
from modeldyno.serving.loadgen.tls import TlsError, missing_tls

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.base.job.model_ref import ModelRef
    from modeldyno.engine.interfaces.request_target import Endpoint, Reply, Target
    from modeldyno.serving.interfaces.client import Client

requires: tuple[str, ...] = ()
executes = Executes.NOTHING
backend = "remote"

PLAIN = "http"
"""Protocol of a server that speaks none of the others, where no model is named."""
_TIMEOUT = 10.0
"""Seconds that a server may take to describe itself."""
_PAUSE = 0.2
"""Seconds between two questions to one that is starting."""
_TRANSPORT_NAMES = {Transport.HTTP: "HTTP", Transport.GRPC: "gRPC"}
_REDIRECTS = range(300, 400)
_BAD_REQUEST = 400
_UNAUTHORISED = {401, 403, 407}
_UNAUTHORISED_GRPC = {7, 16}
_NOT_FOUND = {Transport.HTTP: 404, Transport.GRPC: 5}
"""Status of a missing model."""


def claims(path: Path) -> bool:
    """Claim no path: a URL is not one."""
    del path
    return False


def load(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Ask the server for its protocol and the model's inputs.

    Raises:
        RequestError: the URL is invalid, nothing answers there, or no protocol is recognised.
    """
    del seed, trust
    parsed, transport = endpoint_url.parse_endpoint(ref.locator)
    headers = endpoint_url.parse_headers(os.environ.get(endpoint_url.HEADERS_VARIABLE, ""))
    endpoint, server = _await_protocol(replace(parsed, headers=headers), transport)
    client = plugins.client(endpoint.protocol)
    request = client.described(endpoint)
    reply = None if request is None else _fetch(request)
    try:
        inputs = client.inputs(reply, endpoint)
    except ValueError as error:
        message = str(error)
        if reply is not None and reply.status == _NOT_FOUND[transport]:
            message = endpoint_url.unknown_model(
                endpoint.model, endpoint.version, _list_models(client, endpoint, server)
            )
        raise RequestError(f"{_location(endpoint)}: {message}.") from error
    return Model(
        identity=ModelIdentity(
            name=endpoint.model or f"{endpoint.host}:{endpoint.port}{endpoint.path}",
            digest=_digest(endpoint, reply, inputs),
            framework=", ".join(filter(None, (endpoint.protocol, server.name))),
        ),
        form=Form.REMOTE,
        value=endpoint,
        inputs=inputs,
        takes_requests=client.takes_requests,
        undeclared=not inputs,
    )


def look(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Raise: a server shows no operators.

    Raises:
        RequestError: always.
    """
    del seed, trust
    raise RequestError(
        f"'{ref.locator}' is a server, which does not expose its model's operators; measure it under load: "
        f"modeldyno load {ref.locator}"
    )


# -- which protocol ------------------------------------------------------------------------------


class _NotReady(RequestError):
    """A server that may still be starting."""


def _await_protocol(endpoint: Endpoint, transport: Transport) -> tuple[Endpoint, ServerInfo]:
    """Resolve the protocol as soon as the server answers, which it may take a while for."""
    deadline = monotonic() + endpoint.wait
    while True:
        try:
            if endpoint.wait:
                _check_listening(endpoint)
            return _resolve_protocol(endpoint, transport)
        except _NotReady as error:
            if monotonic() > deadline:
                if not endpoint.wait:
                    raise
                raise RequestError(
                    f"The server was not ready after {format_quantity(endpoint.wait, SECONDS, 2)}: {error}"
                ) from error
        sleep(_PAUSE)


def _check_listening(endpoint: Endpoint) -> None:
    """Raise if nothing listens yet, which a protocol without a greeting does not find out."""
    try:
        socket.create_connection((endpoint.host, endpoint.port), _TIMEOUT).close()
    except OSError as error:
        raise _NotReady(f"{endpoint.host}:{endpoint.port}: {error.strerror or error}.") from error


def _resolve_protocol(endpoint: Endpoint, transport: Transport) -> tuple[Endpoint, ServerInfo]:
    """Determine the protocol, and add what the server says about itself and its only model."""
    name, server = (
        _named_protocol(endpoint, transport) if endpoint.protocol else _detect_protocol(endpoint, transport)
    )
    if not endpoint.model:
        server = replace(server, models=_list_models(plugins.client(name), endpoint, server))
    if not endpoint.model and len(server.models) > 1:
        raise RequestError(
            f"{_location(endpoint)} has {len(server.models)} models; write one of them after #: "
            f"{', '.join(server.models[:8])}."
        )
    if "?" in endpoint.path and name != PLAIN:
        raise RequestError(
            f"The protocol {name} has its own paths; leave out ?{endpoint.path.partition('?')[2]}."
        )
    model = endpoint.model or next(iter(server.models), "")
    options = {**server.options, **endpoint.options}
    return replace(endpoint, protocol=name, model=model, options=options), server


def _named_protocol(endpoint: Endpoint, transport: Transport) -> tuple[str, ServerInfo]:
    """Use the protocol that the URL names, whatever the server says about itself."""
    name = endpoint.protocol
    client = plugins.client(name)
    if client.transport is not transport:
        raise RequestError(
            f"The protocol {name} uses {client.transport}, but the URL says {transport}; "
            f"write {_scheme(client.transport, endpoint)}://."
        )
    return name, _greet(client, endpoint) or ServerInfo()


def _detect_protocol(endpoint: Endpoint, transport: Transport) -> tuple[str, ServerInfo]:
    """Try each protocol until the server answers in one."""

    def greet(client: Client) -> ServerInfo | None:
        asks = client.transport is transport and "?" not in endpoint.path
        return _greet(client, endpoint) if asks else None

    for name, server in plugins.answers("client", greet):
        if server:
            return name, server
    if transport is Transport.HTTP and not endpoint.model:
        return PLAIN, ServerInfo()
    names = [name for name, client in plugins.usable("client") if client.transport is transport]
    raise _NotReady(
        f"{_location(endpoint)} answers in no known protocol; name one after the model, "
        f"such as #{endpoint.model or 'model'},protocol={names[0]} (of {', '.join(names)})."
    )


def _greet(client: Client, endpoint: Endpoint) -> ServerInfo | None:
    request = client.greeting(endpoint)
    return None if request is None else client.recognised(_fetch(request))


def _list_models(client: Client, endpoint: Endpoint, server: ServerInfo) -> tuple[str, ...]:
    """List the server's models, where it lists them."""
    request = client.listing(endpoint)
    if server.models or request is None:
        return server.models
    try:
        return client.listed(send_once(request, timeout=_TIMEOUT))
    except OSError:
        return ()


def _fetch(request: Target) -> Reply:
    """Send a request; a redirect or a request for credentials is an error."""
    where = f"{request.host}:{request.port}"
    try:
        reply = send_once(request, timeout=_TIMEOUT)
        wants_tls = reply.status == _BAD_REQUEST and b"https" in reply.body.lower()
        if wants_tls and (tls_error := missing_tls(request)) is not None:
            raise tls_error
    except TlsError as error:
        phrase = str(error)
        raise RequestError(f"{phrase[:1].upper()}{phrase[1:]}.") from error
    except OSError as error:
        message = error.strerror or error
        raise _NotReady(
            f"Nothing useful answers: {message}; check the URL, and whether "
            f"{_TRANSPORT_NAMES[request.transport]} is spoken on that port."
        ) from error
    if request.transport is Transport.HTTP and reply.status in _REDIRECTS:
        raise RequestError(
            f"{where} redirects ({reply.status}), which is not followed; give the URL that it points to."
        )
    if reply.status in (_UNAUTHORISED_GRPC if request.transport is Transport.GRPC else _UNAUTHORISED):
        raise RequestError(
            f"{where} requires authentication ({reply.status}); send a header by "
            f"{endpoint_url.HEADERS_VARIABLE} or `headers`, such as 'Authorization: Bearer ...'."
        )
    return reply


def _location(endpoint: Endpoint) -> str:
    return f"{endpoint.host}:{endpoint.port}{endpoint.path}"


def _scheme(transport: Transport, endpoint: Endpoint) -> str:
    return f"{transport}{'s' if endpoint.tls else ''}"


# -- which model ---------------------------------------------------------------------------------


def _digest(endpoint: Endpoint, reply: Reply | None, inputs: tuple[InputSpec, ...]) -> str:
    """Digest the model's description, or its location where there is none."""
    description = _description(reply) if reply else ""
    if not description and not inputs:
        description = _location(endpoint)
    return digest.digest_parts(
        (endpoint.protocol, endpoint.model, endpoint.version, description, repr(inputs))
    )


def _description(reply: Reply) -> str:
    """Return a JSON description with sorted keys; empty for protobuf, whose maps have no order."""
    try:
        return json.dumps(json.loads(reply.body), sort_keys=True)
    except (ValueError, RecursionError):
        return ""
