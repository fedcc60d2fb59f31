"""Starts llama.cpp's server for a GGUF file: the one of ``modeldyno engine install llamacpp``, or your own.

Its knobs are options of ``llama-server``, which both take; what is not set is left to the server.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.job.knob import Knob, count_knob
from modeldyno.models.interface import Form
from modeldyno.serving.backends import base, started_generation
from modeldyno.serving.servers import install, tcp_ports
from modeldyno.serving.servers.paths import INSIDE
from modeldyno.serving.servers.server_process import Launch, http_ready

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.models.interface import Model
    from modeldyno.serving.backends.base import ServerSession
    from modeldyno.serving.servers.server_process import Ports

requires: tuple[str, ...] = ()
accepts = frozenset({Form.GGUF})
serves = True
takes_requests = True
inputs = started_generation.inputs

_CONVENTIONAL_PORTS = {"http": 8080}
_STARTUP_TIME = 600.0
_CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
_OPTIONS = {
    "threads": "--threads",
    "threads_batch": "--threads-batch",
    "parallel": "--parallel",
    "context": "--ctx-size",
    "n_batch": "--batch-size",
    "n_ubatch": "--ubatch-size",
    "cache_type_k": "--cache-type-k",
    "cache_type_v": "--cache-type-v",
    "flash_attention": "--flash-attn",
    "gpu_layers": "--n-gpu-layers",
    "draft": "--model-draft",
    "draft_tokens": "--spec-draft-n-max",
}
"""Knob to the option that takes its value."""
_SWITCHES = {"continuous_batching": "--no-cont-batching", "cache_prompt": "--no-cache-prompt"}
"""Knob to the option that switches it off."""

knobs = (
    count_knob(
        "threads", "Threads that generate; as many as there are cores if not set.", aliases=("n_threads",)
    ),
    count_knob(
        "threads_batch",
        "Threads that read prompts and batches; as many as generate if not set.",
        aliases=("n_threads_batch",),
    ),
    count_knob(
        "parallel",
        "Slots: requests that are answered at the same time, each with an equal part of the context.",
        aliases=("n_parallel", "slots"),
    ),
    Knob(
        name="context",
        kind=int,
        low=1,
        high=(1 << 31) - 1,
        sentence="Tokens that all slots hold together; as many as the model was trained with if not set.",
        aliases=("ctx_size", "n_ctx"),
    ),
    Knob(
        name="n_batch",
        kind=int,
        low=1,
        sentence="Most tokens of all slots that are given to one call of the model; 2048 if not set.",
    ),
    Knob(
        name="n_ubatch",
        kind=int,
        low=1,
        sentence="Most tokens of these that are computed at once; 512 if not set.",
    ),
    Knob(name="cache_type_k", choices=_CACHE_TYPES, sentence="Type of the cached keys; f16 if not set."),
    Knob(
        name="cache_type_v",
        choices=_CACHE_TYPES,
        sentence="Type of the cached values; f16 if not set. A quantised one needs flash attention.",
    ),
    Knob(
        name="flash_attention",
        choices=("on", "off", "auto"),
        sentence="Whether to use flash attention; auto if not set.",
        aliases=("flash_attn",),
    ),
    Knob(
        name="gpu_layers",
        kind=int,
        low=0,
        sentence="Layers to keep on a GPU, of a server that was built for one.",
        aliases=("n_gpu_layers",),
    ),
    Knob(
        name="draft",
        sentence="GGUF file of a smaller model with the same tokenizer, whose drafts the model verifies.",
        aliases=("model_draft",),
    ),
    Knob(
        name="draft_tokens",
        kind=int,
        low=1,
        sentence="Most tokens to draft at a time; 3 if not set.",
        aliases=("draft_max",),
    ),
    Knob(
        name="continuous_batching",
        kind=bool,
        sentence="Whether requests join and leave a running batch; true if not set.",
        aliases=("cont_batching",),
    ),
    Knob(
        name="cache_prompt",
        kind=bool,
        sentence="Whether prompts that begin as earlier ones use what is computed of those; true if not set.",
    ),
    Knob(
        name="command",
        sentence="Another server of llama.cpp, such as llama-server with options of your own; ours follow.",
    ),
    *started_generation.REQUEST_KNOBS,
    base.ports_knob(_CONVENTIONAL_PORTS),
    base.knob("env"),
    base.knob("startup_time", sentence="Seconds until the server must be ready; 600 if not set."),
    base.knob("batch_size"),
)


def check(config: Mapping[str, KnobValue]) -> None:
    """Refuse an empty command, a draft that is no file, and lengths or images that are none."""
    started_generation.check_requests(config)
    base.choose_ports(config, _CONVENTIONAL_PORTS)
    base.variables(config)
    if "command" in config and not started_generation.command_words(str(config["command"])):
        raise RequestError("The knob command is empty; set one such as: llama-server")
    if "draft" in config and not Path(str(config["draft"])).is_file():
        raise RequestError(
            f"There is no file '{config['draft']}'; the knob draft takes the path of a GGUF file."
        )
    if "draft_tokens" in config and "draft" not in config:
        raise RequestError("The knob draft_tokens has no effect without draft; set both, or neither.")


def server_options(config: Mapping[str, KnobValue]) -> list[str]:
    """Return the options of ``llama-server`` for the knobs that are set."""
    values = {
        option: str(Path(str(config[name])).absolute() if name == "draft" else config[name])
        for name, option in _OPTIONS.items()
        if name in config
    }
    if "draft" in config:
        values["--spec-type"] = "draft-simple"  # a server that only has the file drafts nothing
    switched_off = [option for name, option in _SWITCHES.items() if config.get(name) is False]
    return [*(word for pair in values.items() for word in pair), *switched_off]


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[ServerSession]:
    """Start the server.

    Raises:
        MissingExtra: no command is given, and the engine is not installed.
        ServerFailed: the server does not start.
    """
    engine = install.require_installed("llamacpp") if "command" not in config else None
    name = base.servable_name(model)

    def command(_folder: Path, ports: Ports) -> list[str]:
        first = (
            [engine.command("python"), str(INSIDE / "llama_server.py")]
            if engine
            else started_generation.command_words(str(config["command"]))
        )
        place = ["--host", tcp_ports.LOOPBACK, "--port", str(ports["http"])]
        which = ["--model", str(Path(model.value).absolute()), "--alias", name, "--metrics"]
        return [*first, *which, *place, *server_options(config)]

    launch = Launch(
        name="llamacpp",
        command=command,
        ports=base.choose_ports(config, _CONVENTIONAL_PORTS),
        ready=lambda ports: http_ready(ports["http"], "/health"),
        environment=base.environment(config, engine.environment if engine else {}),
        patience=base.startup_time(config, _STARTUP_TIME),
        grace=0.0,
    )
    with started_generation.open_session(launch, config, model=name, engine=engine) as session:
        yield session
