"""Servers of language models that a backend starts and that speak OpenAI's protocol: knobs and session.

Requests are text. If the server exposes metrics that `servers.generation_metrics` knows, they are read.
"""

from __future__ import annotations

import shlex
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.job.prompt_images import IMAGE_SIZE, IMAGES, images_of_knobs
from modeldyno.base.job.prompt_lengths import (
    OUTPUT_TOKENS,
    PREFIX_CACHE,
    PROMPT_TOKENS,
    SHARED_PREFIX,
    TOKENIZER,
    lengths_of_knobs,
)
from modeldyno.base.system.prometheus_samples import parse_samples
from modeldyno.engine.interfaces.request_target import Endpoint
from modeldyno.serving.backends import base
from modeldyno.serving.backends.base import ServerSession, SessionWithStats
from modeldyno.serving.backends.request_knobs import PROTOCOL_KNOBS
from modeldyno.serving.servers import generation_metrics, tcp_ports

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.base.job.knob import KnobValue
    from modeldyno.engine.interfaces.server_stats import ServerCounters
    from modeldyno.serving.servers.admin_client import AdminClient
    from modeldyno.serving.servers.install import InstalledServer
    from modeldyno.serving.servers.server_process import Launch, ServerProcess

PROTOCOL = "openai"
_OPTIONS = ("endpoint", "stream", "max_tokens", "token_limit", "temperature", "extra")
"""Knobs that shape a request; the same as for the backend `remote`."""
_PROMPTS = (PROMPT_TOKENS, OUTPUT_TOKENS, SHARED_PREFIX, PREFIX_CACHE, TOKENIZER, IMAGES, IMAGE_SIZE)
"""Knobs that make the prompts; the same, too."""
REQUEST_KNOBS = tuple(
    knob for group in PROTOCOL_KNOBS.values() for knob in group if knob.name in {*_OPTIONS, *_PROMPTS}
)


def check_requests(config: Mapping[str, KnobValue]) -> None:
    """Refuse lengths of prompts and images that are none."""
    lengths_of_knobs(config)
    images_of_knobs(config)


def inputs(config: Mapping[str, KnobValue]) -> tuple[InputSpec, ...]:
    """Return the inputs of a request, in place of the model's own: text, which the server tokenises."""
    del config
    return plugins.client(PROTOCOL).inputs(None, Endpoint(host=tcp_ports.LOOPBACK, port=0))


def command_words(command: str, **values: str) -> list[str]:
    """Split the knob command into words, with these placeholders filled in.

    Raises:
        RequestError: it is no command, or has another placeholder.
    """
    try:
        return [word.format_map(values) for word in shlex.split(command)]
    except (KeyError, ValueError, IndexError) as error:
        names = [f"{{{name}}}" for name in values]
        listed = f"{', '.join(names[:-1])} and {names[-1]}" if names else "no placeholder"
        raise RequestError(
            f"The knob command cannot be parsed ({error}); it may contain {listed}; double any other brace."
        ) from error


@contextmanager
def open_session(
    launch: Launch, config: Mapping[str, KnobValue], *, model: str, engine: InstalledServer | None
) -> Iterator[ServerSession]:
    """Run a server whose interface is its port ``http``, and open a session on it.

    Args:
        launch: how to start it.
        config: the knobs.
        model: its name in requests.
        engine: what was installed for it; None for a server of the user's own.

    Raises:
        ServerFailed: it does not start.
    """
    with base.open_server_session(launch, "http", partial(_session, config, model, engine)) as session:
        yield session


def _session(
    config: Mapping[str, KnobValue],
    model: str,
    engine: InstalledServer | None,
    server: ServerProcess,
    control: AdminClient,
) -> ServerSession:
    fields: dict[str, Any] = {
        "client": plugins.client(PROTOCOL),
        "endpoint": Endpoint(
            host=tcp_ports.LOOPBACK,
            port=server.ports["http"],
            model=model,
            options={name: config[name] for name in (*_OPTIONS, TOKENIZER) if name in config},
            protocol=PROTOCOL,
        ),
        "control": control,
        "server": server,
        "pid": server.pid,
        "software": {
            f"server {name}": number for name, number in (engine.versions if engine else {}).items()
        },
    }
    return (
        SessionWithStats(counters=lambda: _read_counters(control), **fields)
        if _has_metrics(control)
        else ServerSession(**fields)
    )


def _has_metrics(control: AdminClient) -> bool:
    try:
        return bool(generation_metrics.server_of(parse_samples(control.text("GET", "/metrics"))))
    except OSError:
        return False


def _read_counters(control: AdminClient) -> ServerCounters:
    return generation_metrics.read_counters(parse_samples(control.text("GET", "/metrics")))
