"""A Triton of ours that has further models beside the one that it was started for."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.adapters.backends.served import base, triton_ensembles, triton_knobs
from modeldyno.adapters.backends.served.base import Counted
from modeldyno.adapters.backends.served.triton_remote import account
from modeldyno.errors import RequestError
from modeldyno.servers import tcp_ports, triton_config
from modeldyno.servers.admin_client import Control

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.spec.knob import KnobValue
    from modeldyno.interfaces import Model


@dataclass(slots=True, kw_only=True)
class Hosting(Counted):
    """A session of a server that we started: what `ports.CanHost` asks for, too."""

    native: bool
    """Whether it has a backend for ONNX Runtime."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Of the environment of its Python backend, where that is known."""
    patience: float = 180.0
    """Seconds until a model must be loaded."""

    @contextmanager
    def host(self, model: Model, config: Mapping[str, KnobValue]) -> Iterator[Counted]:
        """Have it load another model, and unload it in the end.

        Raises:
            RequestError: the model or the knobs cannot be brought into Triton's form.
            ServerFailed: it does not load the model.
        """
        assert self.server is not None
        if self.packages:
            base.need_torch(model, "triton", "Triton", self.packages)
        name, repository = triton_ensembles.name_of(model), Path(self.server.folder) / "repository"
        if name == self.endpoint.model:
            raise RequestError(f"The server has a model '{name}' already; give one of them another name.")
        shutil.rmtree(repository / name, ignore_errors=True)  # it may have been here with other knobs
        entries = triton_ensembles.put(model, repository, config, native=self.native)
        with closing(Control(port=self.server.ports["http"], timeout=self.patience)) as beside:
            place = f"/v2/repository/models/{name}"
            try:
                beside.post(f"{place}/load")
            except OSError as error:
                raise self.server.failed(f"does not load {name}: {error}") from error
            try:
                yield Counted(
                    client=plugins.client(triton_knobs.CLIENTS[str(config["protocol"])]),
                    endpoint=triton_knobs.endpoint(config, tcp_ports.LOOPBACK, self.server.ports, name),
                    control=beside,
                    server=self.server,
                    pid=self.pid,
                    software={},
                    counters=lambda: account(beside, name),
                    files=tuple(("config.pbtxt", triton_config.text(each)) for each in entries),
                    flat=triton_knobs.flat(entries[0]),
                )
            finally:
                if not self.server.ended():
                    beside.post(f"{place}/unload")
