"""``url:http://host:8000#model@version``: a model on a server that someone else runs.

The server is asked, once each, which protocol it speaks (unless the URL says it: ``#model,protocol=openai``)
and what the model takes. Nothing is loaded, unloaded or executed, and a redirection is not followed. A server
shows its model's inputs and outputs but not its weights: the digest is of that description.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.adapters.loaders import digest
from modeldyno.core.load import endpoint_url
from modeldyno.core.load.request_target import Server, Transport
from modeldyno.core.spec.model_ref import ModelIdentity
from modeldyno.errors import RequestError
from modeldyno.interfaces import Executes, Form, ListsModels, Model
from modeldyno.loadgen.single_request import once

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.core.load.request_target import Endpoint, Reply, Target
    from modeldyno.core.spec.input_spec import InputSpec
    from modeldyno.core.spec.model_ref import ModelRef
    from modeldyno.interfaces import Client

requires: tuple[str, ...] = ()
tools: tuple[str, ...] = ()
executes = Executes.NOTHING
backend = "remote"

PLAIN = "http"
"""The protocol of a server that speaks none of the others, and of which no model is named."""
_TIMEOUT = 10.0
"""Seconds that a server may take to say what it is."""
_SPOKEN = {Transport.HTTP: "HTTP", Transport.GRPC: "gRPC"}
_REDIRECTS = range(300, 400)
_UNAUTHORISED = {401, 403, 407}
_UNAUTHORISED_GRPC = {7, 16}
_ABSENT = {Transport.HTTP: 404, Transport.GRPC: 5}
"""What says that there is no such model."""


def claims(path: Path) -> bool:
    """Claim no path: a URL is none."""
    del path
    return False


def load(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Ask the server what it speaks, and what the model takes.

    Raises:
        RequestError: the URL is none, nothing answers there, or no protocol is recognised.
    """
    del seed, trust
    asked, transport = endpoint_url.parse(ref.locator)
    given = endpoint_url.parse_headers(os.environ.get(endpoint_url.HEADERS_VARIABLE, ""))
    endpoint, server = _settled(replace(asked, headers=given), transport)
    client = plugins.client(endpoint.protocol)
    question = client.described(endpoint)
    reply = None if question is None else _answer(question)
    try:
        inputs = client.inputs(reply, endpoint)
    except ValueError as error:
        said = str(error)
        if reply is not None and reply.status == _ABSENT[transport]:
            said = endpoint_url.unknown_model(
                endpoint.model, endpoint.version, _models(client, endpoint, server)
            )
        raise RequestError(f"{_place(endpoint)}: {said}.") from error
    return Model(
        identity=ModelIdentity(
            name=endpoint.model or f"{endpoint.host}:{endpoint.port}{endpoint.path}",
            digest=_digest(endpoint, reply, inputs),
            framework=", ".join(filter(None, (endpoint.protocol, server.name))),
        ),
        form=Form.REMOTE,
        value=endpoint,
        inputs=inputs,
        undeclared=not inputs,
    )


def look(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Refuse: a server shows no operators.

    Raises:
        RequestError: always.
    """
    del seed, trust
    raise RequestError(
        f"'{ref.locator}' is a server, which does not show what its model costs; measure it under load: "
        f"modeldyno load {ref.locator}"
    )


# -- which protocol ------------------------------------------------------------------------------


def _settled(endpoint: Endpoint, transport: Transport) -> tuple[Endpoint, Server]:
    """Find the protocol, and take over what the server says of it and of its only model."""
    name, server = _named(endpoint, transport) if endpoint.protocol else _recognised(endpoint, transport)
    if not endpoint.model:
        server = replace(server, models=_models(plugins.client(name), endpoint, server))
    if not endpoint.model and len(server.models) > 1:
        raise RequestError(
            f"{_place(endpoint)} has {len(server.models)} models; write one of them after #: "
            f"{', '.join(server.models[:8])}."
        )
    if "?" in endpoint.path and name != PLAIN:
        raise RequestError(
            f"The protocol {name} has paths of its own; leave ?{endpoint.path.partition('?')[2]} away."
        )
    model = endpoint.model or next(iter(server.models), "")
    options = {**server.options, **endpoint.options}
    return replace(endpoint, protocol=name, model=model, options=options), server


def _named(endpoint: Endpoint, transport: Transport) -> tuple[str, Server]:
    """Take the protocol that the URL names, whatever the server says of itself."""
    name = endpoint.protocol
    client = plugins.client(name)
    if client.transport is not transport:
        raise RequestError(
            f"The protocol {name} goes over {client.transport}, and the URL says {transport}; "
            f"write {_scheme(client.transport, endpoint)}://."
        )
    return name, _greeted(client, endpoint) or Server()


def _recognised(endpoint: Endpoint, transport: Transport) -> tuple[str, Server]:
    """Greet in each protocol until the server answers in one."""
    for name in plugins.names("client"):
        client = plugins.client(name)
        if (
            client.transport is transport
            and "?" not in endpoint.path
            and (found := _greeted(client, endpoint))
        ):
            return name, found
    if transport is Transport.HTTP and not endpoint.model:
        return PLAIN, Server()
    speaking = [name for name in plugins.names("client") if plugins.client(name).transport is transport]
    raise RequestError(
        f"{_place(endpoint)} answers in no protocol that is known here; name one behind the model, "
        f"such as #{endpoint.model or 'model'},protocol={speaking[0]} (of {', '.join(speaking)})."
    )


def _greeted(client: Client, endpoint: Endpoint) -> Server | None:
    question = client.greeting(endpoint)
    return None if question is None else client.recognised(_answer(question))


def _models(client: Client, endpoint: Endpoint, server: Server) -> tuple[str, ...]:
    """Name the models that the server has, where it lists them."""
    if server.models or not isinstance(client, ListsModels):
        return server.models
    try:
        return client.listed(once(client.listing(endpoint), timeout=_TIMEOUT))
    except OSError:
        return ()


def _answer(question: Target) -> Reply:
    """Ask; an answer that points elsewhere, or that wants to know who asks, is the end of it."""
    where = f"{question.host}:{question.port}"
    try:
        reply = once(question, timeout=_TIMEOUT)
    except OSError as error:
        said = error.strerror or error
        raise RequestError(
            f"Nothing of use answers: {said}; check the URL, and whether {_SPOKEN[question.transport]} is "
            "spoken on that port."
        ) from error
    if question.transport is Transport.HTTP and reply.status in _REDIRECTS:
        raise RequestError(
            f"{where} redirects ({reply.status}), which is not followed; give the URL that it points to."
        )
    if reply.status in (_UNAUTHORISED_GRPC if question.transport is Transport.GRPC else _UNAUTHORISED):
        raise RequestError(
            f"{where} wants to know who asks ({reply.status}); send a header by "
            f"{endpoint_url.HEADERS_VARIABLE} or --header, such as 'Authorization: Bearer ...'."
        )
    return reply


def _place(endpoint: Endpoint) -> str:
    return f"{endpoint.host}:{endpoint.port}{endpoint.path}"


def _scheme(transport: Transport, endpoint: Endpoint) -> str:
    return f"{transport}{'s' if endpoint.tls else ''}"


# -- which model ---------------------------------------------------------------------------------


def _digest(endpoint: Endpoint, reply: Reply | None, inputs: tuple[InputSpec, ...]) -> str:
    """Digest how the model is described; one that is not, by where it is."""
    described = _description(reply) if reply else ""
    if not described and not inputs:
        described = _place(endpoint)
    return digest.of_parts((endpoint.protocol, endpoint.model, endpoint.version, described, repr(inputs)))


def _description(reply: Reply) -> str:
    """Give a description in JSON with its keys in order; empty for protobuf, whose maps have no order."""
    try:
        return json.dumps(json.loads(reply.body), sort_keys=True)
    except (ValueError, RecursionError):
        return ""
