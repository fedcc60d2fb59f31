"""Start a server that stays, in a child process: loading may run the model's code.

The child loads the model, starts the server as a load does, and has it answer once; then it records the
server, hands it over and ends, so that nothing but the server is left.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from modeldyno.base import codec, plugins
from modeldyno.base.errors import RequestError, RunFailed
from modeldyno.base.job.input_spec import BATCH
from modeldyno.base.system.process_tree import start_ticks
from modeldyno.engine.environment.running_servers import ServerRecord, claim
from modeldyno.engine.runtime.engine import answering_session
from modeldyno.engine.runtime.order import answer, run_order
from modeldyno.serving.load.endpoint_url import format_endpoint

if TYPE_CHECKING:
    from modeldyno.base.job.job import Job
    from modeldyno.engine.interfaces.request_target import Endpoint
    from modeldyno.engine.runtime.output_checks import OpenedModel
    from modeldyno.engine.runtime.supervised_child import ChildLimits


def start_server(
    job: Job, name: str, *, numbered: bool, owner: int | None, limits: ChildLimits | None = None
) -> ServerRecord:
    """Start a server for the model of a Job, and leave it running.

    Args:
        job: names the model, and the backend whose server is meant; it has a probe that calls the model.
        name: of the server.
        numbered: whether to append a number to a name that is taken.
        owner: the process with which it ends; None for a server that runs until it is stopped.
        limits: what loading it may take.

    Raises:
        RequestError: the request cannot be carried out, or the name is taken.
        MissingExtra: the engine is not installed.
        RunFailed: the server does not start, or does not answer.
    """
    record = run_order(
        "modeldyno.serving.serve_worker",
        {"job": json.loads(codec.encode_job(job)), "name": name, "numbered": numbered, "owner": owner},
        limits=limits,
        leaves_servers=True,
        failed=lambda how: RunFailed(f"The server could not be started: {how}."),
    )
    return ServerRecord(**{**record, "inputs": tuple(record["inputs"])})


TEXT = "string"
"""The dtype of text, which a client makes by itself."""


def _serve(order: dict[str, Any]) -> dict[str, Any]:
    job, owner = codec.decode_job(json.dumps(order["job"]).encode()), order["owner"]
    with answering_session(job) as opened:
        started = opened.session.started_server()
        if started is None:  # of another place, as with server=URL
            raise RequestError(f"The backend '{job.backend}' starts no server for {job.model.argument}.")
        server = ServerRecord(
            name=order["name"],
            model=job.model.argument,
            backend=job.backend,
            device=str(job.config.get("device", "cpu")),
            url=format_endpoint(started.endpoint),
            protocol=started.endpoint.protocol,
            ports=dict(started.ports),
            pid=started.pid,
            ticks=start_ticks(started.pid),
            started=datetime.now(UTC).isoformat(timespec="milliseconds"),
            detached=owner is None,
            log=started.log,
            inputs=_undescribed_inputs(started.endpoint, opened),
        )
        server = claim(server, numbered=order["numbered"])
        opened.session.hand_over(owner)
    return asdict(server)


def _undescribed_inputs(endpoint: Endpoint, opened: OpenedModel) -> tuple[str, ...]:
    """Return the inputs that the model has answered, if its server cannot describe them."""
    if plugins.client(endpoint.protocol).described(endpoint) is not None:
        return ()
    free = {spec.name for spec in opened.model.inputs if spec.shape and spec.shape[0] == BATCH}
    return tuple(
        f"{spec.name}={_shape(spec.shape, free=spec.name in free)}:{spec.dtype}"
        for spec in opened.payload.used
        if spec.shape is not None and spec.dtype and spec.dtype != TEXT and spec.source is None
    )


def _shape(shape: tuple[int | str, ...], *, free: bool) -> str:
    sizes = (BATCH, *shape[1:]) if free else shape
    return "x".join(map(str, sizes)) or "scalar"


if __name__ == "__main__":
    answer(_serve)
