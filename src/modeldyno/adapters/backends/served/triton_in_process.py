"""A Triton within this process: its models are called by threads, without a network between."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from modeldyno.adapters.backends.served import base, triton_ensembles
from modeldyno.adapters.backends.served.triton_remote import sum_model_stats
from modeldyno.core.metrics.doubt import Doubt
from modeldyno.servers import triton, triton_config
from modeldyno.servers.triton_config import Config
from modeldyno.servers.triton_in_process import InProcessTriton, run_in_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from modeldyno.core.load.server_stats import ServerCounters
    from modeldyno.core.spec.knob import KnobValue
    from modeldyno.interfaces.loader import Feed, Model


@dataclass(frozen=True, slots=True, kw_only=True)
class InProcessSession:
    """A model of a server in this process."""

    server: InProcessTriton
    configs: tuple[Config, ...]
    """Of the model, and of those that it is made of."""
    software: Mapping[str, str]
    files: tuple[tuple[str, str], ...]
    pid: int | None
    samples: int | None = None
    """As many in a request as in a payload."""
    doubts: tuple[Doubt, ...] = ()

    def calls(self, feeds: Sequence[Feed]) -> Sequence[Callable[[], Any]]:
        """Return a function for each payload that sends it and returns the outputs by name."""
        return [self.server.prepare(str(self.configs[0]["name"]), feed) for feed in feeds]

    def arrays(self, output: Feed) -> Feed:
        """Return the outputs by name."""
        return output

    def account(self) -> ServerCounters:
        """Read the counters of the model."""
        return sum_model_stats(self.server.statistics, self.configs)


@contextmanager
def open_in_process(model: Model, config: Mapping[str, KnobValue]) -> Iterator[InProcessSession]:
    """Start Triton in this process with the model, and open a session on it.

    Raises:
        RequestError: the model or the knobs cannot be expressed for Triton.
        MissingExtra: Triton is not installed, or without its library.
        RuntimeError: the server does not start.
    """
    program = triton.find_tritonserver(str(config.get("program", "")))
    if program.packages:
        base.need_torch(model.form, "triton", "Triton", program.packages)
    with TemporaryDirectory(prefix="modeldyno-") as folder:
        repository = Path(folder) / "repository"
        configs = triton_ensembles.write_models(model, repository, config, native=program.has("onnxruntime"))
        with run_in_process(program, repository) as server:
            for part in reversed(configs):
                server.load(str(part["name"]))
            yield InProcessSession(
                server=server,
                configs=tuple(configs),
                software={"triton": server.version()},
                files=tuple(("config.pbtxt", triton_config.to_pbtxt(entry)) for entry in configs),
                pid=os.getpid(),
                doubts=triton_ensembles.repository_doubts(model, configs),
            )
