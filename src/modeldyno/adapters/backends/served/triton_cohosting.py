"""Loads further models into a Triton that we started, next to the measured one."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.adapters.backends.served import base, triton_ensembles, triton_knobs
from modeldyno.adapters.backends.served.base import SessionWithStats
from modeldyno.adapters.backends.served.triton_remote import count_instances, read_model_stats
from modeldyno.errors import RequestError
from modeldyno.servers import tcp_ports, triton_config
from modeldyno.servers.admin_client import AdminClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.spec.knob import KnobValue
    from modeldyno.interfaces.loader import Model


@dataclass(slots=True, kw_only=True)
class CohostingSession(SessionWithStats):
    """A session on a Triton that we started; implements `CanHost`, too."""

    native: bool
    """Whether the server has the ONNX Runtime backend."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Packages in the environment of its Python backend, if known."""
    patience: float = 180.0
    """Seconds until a model must be loaded."""

    @contextmanager
    def host(self, model: Model, config: Mapping[str, KnobValue]) -> Iterator[SessionWithStats]:
        """Load another model into the server; unload it on exit.

        Raises:
            RequestError: the model or the knobs cannot be expressed for Triton.
            ServerFailed: the server does not load the model.
        """
        assert self.server is not None
        if self.packages:
            base.need_torch(model.form, "triton", "Triton", self.packages)
        name, repository = triton_ensembles.triton_model_name(model), Path(self.server.folder) / "repository"
        if name == self.endpoint.model:
            raise RequestError(f"The server already has a model '{name}'; give one of them another name.")
        # It may have been loaded before with other knobs.
        shutil.rmtree(repository / name, ignore_errors=True)
        configs = triton_ensembles.write_models(model, repository, config, native=self.native)
        with closing(AdminClient(port=self.server.ports["http"], timeout=self.patience)) as control:
            url_path = f"/v2/repository/models/{name}"
            try:
                control.post(f"{url_path}/load")
            except OSError as error:
                raise self.server.failed(f"does not load {name}: {error}") from error
            try:
                yield SessionWithStats(
                    client=plugins.client(triton_knobs.CLIENTS[str(config["protocol"])]),
                    endpoint=triton_knobs.request_endpoint(
                        config, tcp_ports.LOOPBACK, self.server.ports, name
                    ),
                    control=control,
                    server=self.server,
                    pid=self.pid,
                    regions=self.regions,
                    software={},
                    counters=lambda: read_model_stats(control, configs),
                    instances=count_instances(control, configs),
                    files=tuple(
                        ("config.pbtxt", triton_config.to_pbtxt(config_entry)) for config_entry in configs
                    ),
                    flat=triton_knobs.flat_outputs(configs[0]),
                )
            finally:
                if not self.server.ended():
                    control.post(f"{url_path}/unload")
