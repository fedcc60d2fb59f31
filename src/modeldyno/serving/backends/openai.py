"""Starts an OpenAI-compatible server by a command such as ``transformers serve`` or ``vllm serve``.

The command gets the model's name and loads it.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.job.knob import Knob
from modeldyno.models.interface import Form
from modeldyno.serving.backends import base, started_generation
from modeldyno.serving.servers import install, tcp_ports
from modeldyno.serving.servers.server_process import Launch, http_ready

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.models.interface import Model
    from modeldyno.serving.backends.base import ServerSession
    from modeldyno.serving.servers.server_process import Ports

requires: tuple[str, ...] = ()
accepts = frozenset({Form.TORCH})
serves = True
takes_requests = True
inputs = started_generation.inputs

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
    *started_generation.REQUEST_KNOBS,
    base.ports_knob(_CONVENTIONAL_PORTS),
    base.knob("startup_time", sentence="Seconds until the server must be ready; 600 if not set."),
    base.knob("batch_size"),
)


def check(config: Mapping[str, KnobValue]) -> None:
    """Refuse an empty command, one without a port, and lengths or images that are none."""
    started_generation.check_requests(config)
    base.choose_ports(config, _CONVENTIONAL_PORTS)
    if not _command_words(config, model="", port=""):
        raise RequestError(f"The knob command is empty; set one such as: {_DEFAULT_COMMAND}")
    if "command" in config and "{port}" not in str(config["command"]):
        raise RequestError(
            f"The knob command lacks {{port}}, so the server's port is unknown: {config['command']}"
        )


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
        first, *arguments = _command_words(config, model=model_name, port=str(ports["http"]))
        return [engine.command(first) if engine else first, *arguments]

    launch = Launch(
        name="openai",
        command=command,
        ports=base.choose_ports(config, _CONVENTIONAL_PORTS),
        ready=lambda ports: http_ready(ports["http"], str(config.get("health", "/v1/models"))),
        environment={**(engine.environment if engine else {}), **_cache_environment()},
        patience=base.startup_time(config, _STARTUP_TIME),
    )
    with started_generation.open_session(launch, config, model=model_name, engine=engine) as session:
        yield session


def _command_words(config: Mapping[str, KnobValue], *, model: str, port: str) -> list[str]:
    command = str(config.get("command", _DEFAULT_COMMAND))
    return started_generation.command_words(command, model=model, host=tcp_ports.LOOPBACK, port=port)


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
