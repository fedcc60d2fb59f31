"""Start a server that stays, in a child process: loading may run the model's code.

``python -m modeldyno.runtime.serve_worker``: the order comes as JSON on standard input. The child loads the
model, starts the server as a load does, and has it answer once; then it records the server, hands it over and
ends, so that nothing but the server keeps memory. The answer goes as JSON to standard output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from modeldyno import codec, errors, plugins
from modeldyno.core.load.endpoint_url import format_endpoint
from modeldyno.core.spec.input_spec import BATCH
from modeldyno.environment.process_tree import end_with_parent, start_ticks
from modeldyno.environment.running_servers import ServerRecord, claim
from modeldyno.errors import ModelDynoError, RequestError, RunFailed
from modeldyno.interfaces.session import CanStay
from modeldyno.runtime.engine import answering_session
from modeldyno.runtime.failures import failure_of

if TYPE_CHECKING:
    from modeldyno.core.load.request_target import Endpoint
    from modeldyno.core.spec.job import Job
    from modeldyno.runtime.output_checks import OpenedModel


def start_server(job: Job, name: str, *, numbered: bool, owner: int | None) -> ServerRecord:
    """Start a server for the model of a Job, and leave it running.

    Args:
        job: names the model, and the backend whose server is meant; it has a probe that calls the model.
        name: of the server.
        numbered: whether to append a number to a name that is taken.
        owner: the process with which it ends; None for a server that runs until it is stopped.

    Raises:
        RequestError: the request cannot be carried out, or the name is taken.
        MissingExtra: the engine is not installed.
        RunFailed: the server does not start, or does not answer.
    """
    order = {
        "job": json.loads(codec.encode_job(job)), "name": name, "numbered": numbered, "owner": owner,
    }  # fmt: skip
    with tempfile.TemporaryFile() as printed:
        child = subprocess.Popen(
            [sys.executable, "-m", "modeldyno.runtime.serve_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=printed,
            start_new_session=True,  # Ctrl-C is for us, who end it
        )
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            with child.stdout as output:
                with child.stdin as inputs:
                    inputs.write(json.dumps(order).encode())
                line = output.readline()  # not to its end, which a process that the model left may hold open
            child.wait()
        except BaseException:
            child.kill()  # its server ends with it
            child.wait()
            raise
        if not line.endswith(b"\n"):
            printed.seek(0)
            lines = printed.read().decode(errors="replace").strip().splitlines() or ["no words"]
            raise RunFailed(f"The server could not be started: its process ended with: {lines[-1]}")
    answer = json.loads(line)
    if "error" in answer:
        raise getattr(errors, answer["error"])(answer["message"])
    return ServerRecord(**{**answer, "inputs": tuple(answer["inputs"])})


def main() -> None:
    """Carry out the order read from standard input."""
    end_with_parent()
    order = json.loads(sys.stdin.buffer.read())
    answer = os.dup(1)
    os.dup2(2, 1)  # what the model prints must not mix with the answer
    try:
        reply: dict[str, Any] = asdict(_serve(order))
    except ModelDynoError as error:
        kind = type(error).__name__ if type(error) in _TOLD else RequestError.__name__
        reply = {"error": kind, "message": str(error)}
    except Exception as error:  # noqa: BLE001 - whatever a model, its framework or a server raises
        message = failure_of(error, "serve").message.rstrip(".")
        reply = {"error": RunFailed.__name__, "message": f"The server could not be started: {message}."}
    os.write(answer, json.dumps(reply).encode() + b"\n")


TEXT = "string"
"""The dtype of text, which a client makes by itself."""
_TOLD = (
    errors.MissingExtra,
    errors.TrustRequired,
    errors.Unloadable,
    errors.UnknownName,
    errors.SizesRefused,
    errors.RunFailed,
)
"""Errors that are raised again as what they are."""


def _serve(order: dict[str, Any]) -> ServerRecord:
    job, owner = codec.decode_job(json.dumps(order["job"]).encode()), order["owner"]
    with answering_session(job) as opened:
        session: object = opened.session
        started = session.started_server() if isinstance(session, CanStay) else None
        if started is None:  # of another place, as with server=URL
            raise RequestError(f"The backend '{job.backend}' starts no server for {job.model}.")
        server = ServerRecord(
            name=order["name"],
            model=str(job.model),
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
        assert isinstance(session, CanStay)
        session.hand_over(owner)
    return server


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
    main()
