"""A server that speaks OpenAI's protocol, started by a command: ``transformers serve``, ``vllm serve`` ...

The model is named to the command, which loads it; requests are text. Where the server tells of its work in
the metrics of vLLM, its account is read.
"""

from __future__ import annotations

import os
import shlex
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno import plugins
from modeldyno.adapters.backends import remote
from modeldyno.adapters.backends.served import base
from modeldyno.adapters.backends.served.base import Counted, Session
from modeldyno.core.load.request_target import Endpoint
from modeldyno.core.spec.knob import Knob
from modeldyno.errors import RequestError
from modeldyno.interfaces import Form
from modeldyno.servers import install, prometheus_text, tcp_ports
from modeldyno.servers.server_process import Launch, http_ready

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.core.load.server_stats import Account
    from modeldyno.core.spec.input_spec import InputSpec
    from modeldyno.core.spec.knob import KnobValue
    from modeldyno.interfaces import Model
    from modeldyno.servers.admin_client import Control
    from modeldyno.servers.server_process import Ports, Server

requires: tuple[str, ...] = ()
accepts = frozenset({Form.TORCH})
serves = True

_PROTOCOL = "openai"
_OPTIONS = ("endpoint", "stream", "max_tokens", "temperature", "extra")
"""Knobs that shape a request; they are those of a server that runs already."""
_USUAL = {"http": 8000}
_DEFAULT = "transformers serve {model} --host {host} --port {port}"
_STARTUP = 600.0

knobs = (
    Knob(
        name="command",
        kind=str,
        default=None,
        sentence="What starts the server, with {model}, {host} and {port} in it; else `transformers serve`.",
    ),
    Knob(
        name="model",
        kind=str,
        default=None,
        sentence="What the command calls the model; if not set, its directory.",
    ),
    Knob(
        name="health",
        kind=str,
        default=None,
        sentence="Path that answers 200 when the server is ready; /v1/models if not set.",
    ),
    *(knob for knob in remote.knobs if knob.name in _OPTIONS),
    base.ports_knob(_USUAL),
    base.knob("startup_time", sentence="Seconds until the server must be ready; 600 if not set."),
    base.knob("batch_size"),
)


def check(config: Mapping[str, KnobValue]) -> None:
    """Refuse a command that cannot be told where to listen."""
    base.chosen_ports(config, _USUAL)
    command = _words(str(config.get("command", _DEFAULT)), {"host": "", "port": "", "model": ""})
    if not command:
        raise RequestError(f"The knob command is empty; write such as: {_DEFAULT}")
    if "command" in config and "{port}" not in str(config["command"]):
        raise RequestError(
            f"The knob command lacks {{port}}, so nobody knows where it listens: {config['command']}"
        )


def inputs(model: Model, config: Mapping[str, KnobValue]) -> tuple[InputSpec, ...]:
    """Say what requests are made of, in place of the model's own inputs: text, which the server tokenises."""
    del model, config
    return plugins.client(_PROTOCOL).inputs(None, Endpoint(host=tcp_ports.LOOPBACK, port=0))


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[Session]:  # noqa: A001 - the port's word
    """Start the server.

    Raises:
        RequestError: the model has no name that the command could take.
        MissingExtra: no command is given, and the engine of the default one is not installed.
        ServerFailed: it does not start.
    """
    engine = install.need("openai") if "command" not in config else None
    called = str(config.get("model") or _directory(model))

    def command(_folder: Path, chosen: Ports) -> list[str]:
        words = {"host": tcp_ports.LOOPBACK, "port": str(chosen["http"]), "model": called}
        first, *rest = _words(str(config.get("command", _DEFAULT)), words)
        return [engine.command(first) if engine else first, *rest]

    launch = Launch(
        name="openai",
        command=command,
        ports=base.chosen_ports(config, _USUAL),
        ready=lambda chosen: http_ready(chosen["http"], str(config.get("health", "/v1/models"))),
        environment={**(engine.environment if engine else {}), **_cache()},
        patience=base.startup_time(config, _STARTUP),
    )
    with base.served(launch, "http", partial(_session, config, called, engine)) as session:
        yield session


def _session(
    config: Mapping[str, KnobValue],
    called: str,
    engine: install.Installed | None,
    server: Server,
    beside: Control,
) -> Session:
    parts: dict[str, Any] = {
        "client": plugins.client(_PROTOCOL),
        "endpoint": Endpoint(
            host=tcp_ports.LOOPBACK,
            port=server.ports["http"],
            model=called,
            options={name: config[name] for name in _OPTIONS if name in config},
            protocol=_PROTOCOL,
        ),
        "control": beside,
        "server": server,
        "pid": server.pid,
        "software": _software(engine),
    }
    return Counted(counters=lambda: _account(beside), **parts) if _counts(beside) else Session(**parts)


def _words(command: str, values: Mapping[str, str]) -> list[str]:
    try:
        return [word.format_map(values) for word in shlex.split(command)]
    except (KeyError, ValueError, IndexError) as error:
        raise RequestError(
            f"The knob command cannot be read ({error}); it may hold {{model}}, {{host}} and {{port}}, and a "
            "brace of another meaning is written twice."
        ) from error


def _directory(model: Model) -> str:
    """Find where a model of transformers was loaded from."""
    found = str(getattr(model.value, "name_or_path", "") or "")
    if not found:
        raise RequestError(
            f"It is not known what the server calls '{model.identity.name}'; say it with --set model=NAME."
        )
    return str(Path(found).absolute()) if Path(found).is_dir() else found


def _cache() -> dict[str, str]:
    """Have the cache of models for a server that answers nothing where there is none."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    place = Path(os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME") or usual) / "hub")
    with suppress(OSError):
        place.expanduser().mkdir(parents=True, exist_ok=True)
    return {"HF_HUB_CACHE": str(place.expanduser())}


def _software(engine: install.Installed | None) -> dict[str, str]:
    versions = {} if engine is None else engine.versions
    return {f"server {name}": version for name, version in versions.items()}


def _counts(control: Control) -> bool:
    try:
        return any(
            name.startswith("vllm:") for name in prometheus_text.parse(control.text("GET", "/metrics"))
        )
    except OSError:
        return False


def _account(control: Control) -> Account:
    return prometheus_text.vllm(prometheus_text.parse(control.text("GET", "/metrics")))
