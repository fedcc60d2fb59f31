"""Starts an OpenAI-compatible server by a command such as ``transformers serve`` or ``vllm serve``.

The command gets the model's name and loads it; requests are text. If the server exposes metrics that
`servers.generation_metrics` knows, they are read.
"""

from __future__ import annotations

import os
import shlex
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.job.knob import Knob
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
from modeldyno.models.interface import Form
from modeldyno.serving.backends import base, remote
from modeldyno.serving.backends.base import ServerSession, SessionWithStats
from modeldyno.serving.servers import generation_metrics, install, tcp_ports
from modeldyno.serving.servers.server_process import Launch, http_ready

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.base.job.knob import KnobValue
    from modeldyno.engine.interfaces.server_stats import ServerCounters
    from modeldyno.models.interface import Model
    from modeldyno.serving.servers.admin_client import AdminClient
    from modeldyno.serving.servers.server_process import Ports, ServerProcess

requires: tuple[str, ...] = ()
accepts = frozenset({Form.TORCH})
serves = True
takes_requests = True

_PROTOCOL = "openai"
_OPTIONS = ("endpoint", "stream", "max_tokens", "token_limit", "temperature", "extra")
"""Knobs that shape a request; the same as for the backend `remote`."""
_PROMPTS = (PROMPT_TOKENS, OUTPUT_TOKENS, SHARED_PREFIX, PREFIX_CACHE, TOKENIZER, IMAGES, IMAGE_SIZE)
"""Knobs that make the prompts; the same, too."""
_CONVENTIONAL_PORTS = {"http": 8000}
_DEFAULT_COMMAND = "transformers serve {model} --host {host} --port {port}"
_STARTUP_TIME = 600.0

knobs = (
    Knob(
        name="command",
        sentence="Command to start the server, with {model}, {host} and {port}; else `transformers serve`.",
    ),
    Knob(name="model", sentence="Model name to pass to the command; the model's directory if not set."),
    Knob(name="health", sentence="Path that answers 200 when the server is ready; /v1/models if not set."),
    *(knob for knob in remote.knobs if knob.name in {*_OPTIONS, *_PROMPTS}),
    base.ports_knob(_CONVENTIONAL_PORTS),
    base.knob("startup_time", sentence="Seconds until the server must be ready; 600 if not set."),
    base.knob("batch_size"),
)


def check(config: Mapping[str, KnobValue]) -> None:
    """Refuse an empty command, one without a port, and lengths or images that are none."""
    lengths_of_knobs(config)
    images_of_knobs(config)
    base.choose_ports(config, _CONVENTIONAL_PORTS)
    command = _command_words(
        str(config.get("command", _DEFAULT_COMMAND)), {"host": "", "port": "", "model": ""}
    )
    if not command:
        raise RequestError(f"The knob command is empty; set one such as: {_DEFAULT_COMMAND}")
    if "command" in config and "{port}" not in str(config["command"]):
        raise RequestError(
            f"The knob command lacks {{port}}, so the server's port is unknown: {config['command']}"
        )


def inputs(config: Mapping[str, KnobValue]) -> tuple[InputSpec, ...]:
    """Return the inputs of a request, in place of the model's own: text, which the server tokenises."""
    del config
    return plugins.client(_PROTOCOL).inputs(None, Endpoint(host=tcp_ports.LOOPBACK, port=0))


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[ServerSession]:
    """Start the server.

    Raises:
        RequestError: the model has no name to pass to the command.
        MissingExtra: no command is given, and the engine for the default one is not installed.
        ServerFailed: the server does not start.
    """
    engine = install.require_installed("openai") if "command" not in config else None
    model_name = str(config.get("model") or _model_directory(model))

    def command(_folder: Path, ports: Ports) -> list[str]:
        values = {"host": tcp_ports.LOOPBACK, "port": str(ports["http"]), "model": model_name}
        first, *arguments = _command_words(str(config.get("command", _DEFAULT_COMMAND)), values)
        return [engine.command(first) if engine else first, *arguments]

    launch = Launch(
        name="openai",
        command=command,
        ports=base.choose_ports(config, _CONVENTIONAL_PORTS),
        ready=lambda ports: http_ready(ports["http"], str(config.get("health", "/v1/models"))),
        environment={**(engine.environment if engine else {}), **_cache_environment()},
        patience=base.startup_time(config, _STARTUP_TIME),
    )
    with base.open_server_session(launch, "http", partial(_session, config, model_name, engine)) as session:
        yield session


def _session(
    config: Mapping[str, KnobValue],
    model_name: str,
    engine: install.InstalledServer | None,
    server: ServerProcess,
    control: AdminClient,
) -> ServerSession:
    fields: dict[str, Any] = {
        "client": plugins.client(_PROTOCOL),
        "endpoint": Endpoint(
            host=tcp_ports.LOOPBACK,
            port=server.ports["http"],
            model=model_name,
            options={name: config[name] for name in (*_OPTIONS, TOKENIZER) if name in config},
            protocol=_PROTOCOL,
        ),
        "control": control,
        "server": server,
        "pid": server.pid,
        "software": _engine_versions(engine),
    }
    return (
        SessionWithStats(counters=lambda: _read_counters(control), **fields)
        if _has_metrics(control)
        else ServerSession(**fields)
    )


def _command_words(command: str, values: Mapping[str, str]) -> list[str]:
    try:
        return [word.format_map(values) for word in shlex.split(command)]
    except (KeyError, ValueError, IndexError) as error:
        raise RequestError(
            f"The knob command cannot be parsed ({error}); it may contain {{model}}, {{host}} and {{port}}; "
            "double any other brace."
        ) from error


def _model_directory(model: Model) -> str:
    """Return the directory or hub name that a Transformers model was loaded from."""
    name = str(getattr(model.value, "name_or_path", "") or "")
    if not name:
        raise RequestError(
            f"The server's name for '{model.identity.name}' is not known; give it as the knob model."
        )
    return str(Path(name).absolute()) if Path(name).is_dir() else name


def _cache_environment() -> dict[str, str]:
    """Create the Hugging Face cache and return its variable: without a cache the server answers nothing."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    path = Path(os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME") or default) / "hub")
    with suppress(OSError):
        path.expanduser().mkdir(parents=True, exist_ok=True)
    return {"HF_HUB_CACHE": str(path.expanduser())}


def _engine_versions(engine: install.InstalledServer | None) -> dict[str, str]:
    versions = {} if engine is None else engine.versions
    return {f"server {name}": version for name, version in versions.items()}


def _has_metrics(control: AdminClient) -> bool:
    try:
        return bool(generation_metrics.server_of(parse_samples(control.text("GET", "/metrics"))))
    except OSError:
        return False


def _read_counters(control: AdminClient) -> ServerCounters:
    return generation_metrics.read_counters(parse_samples(control.text("GET", "/metrics")))
