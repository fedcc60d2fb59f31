"""``--export-configs`` writes a model repository that another Triton can serve as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from modeldyno import plugins
from modeldyno.core.load.request_target import Endpoint
from modeldyno.loadgen.single_request import send_once
from modeldyno.servers import tcp_ports, triton
from modeldyno.servers.server_process import Launch, http_ready, run_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Said(Protocol):
        code: int
        out: str
        err: str


MODEL = str(Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx")


@pytest.mark.engine
def test_another_triton_takes_what_was_written(modeldyno: Callable[..., Said], tmp_path: Path) -> None:
    """A fresh server that gets only the directory loads every entry, and all give the same answer."""
    outcome = modeldyno(
        "sweep", MODEL, "--backend", "triton", "--space", "instances=1,2", "--set", "queue_delay=500",
        "-c", "2", "--strategy", "grid", "--max-trials", "3", "--trial-time", "1s", "--min-time", "0.2s",
        "--export-configs", "out", "--json", "study.json",
    )  # fmt: skip
    assert outcome.code in {0, 5}, outcome.err
    assert "The model is beside each" in outcome.out
    entries = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert "digits_default" in entries
    assert json.loads((tmp_path / "study.json").read_text())

    image = {"image": np.random.default_rng(0).random((3, 1, 8, 8), dtype="float32")}
    with run_server(plain(tmp_path / "out", entries)) as server:
        answers = []
        for name in entries:
            endpoint = Endpoint(host=tcp_ports.LOOPBACK, port=server.ports["http"], model=name)
            client = plugins.client("kserve-http")
            answers.append(client.arrays(send_once(client.target([image], endpoint)))["scores"])
    assert answers[0].shape == (3, 10)
    for answer in answers[1:]:
        np.testing.assert_allclose(answer, answers[0], rtol=1e-5)


def plain(repository: Path, entries: list[str]) -> Launch:
    """Return the start of a tritonserver by a user: on a repository, with all of its models."""
    program = triton.find_tritonserver()

    def command(folder: Path, chosen: dict[str, int]) -> list[str]:
        return [
            program.path, f"--model-repository={repository}", f"--backend-directory={program.backends}",
            f"--backend-config=python,shm-region-prefix-name={folder.name}",
            *(f"--{part}-address={tcp_ports.LOOPBACK}" for part in ("http", "grpc", "metrics")),
            *(f"--{part}-port={chosen[part]}" for part in ("http", "grpc", "metrics")),
        ]  # fmt: skip

    return Launch(
        name="triton",
        command=command,
        ports=dict.fromkeys(("http", "grpc", "metrics"), 0),
        ready=lambda chosen: all(http_ready(chosen["http"], f"/v2/models/{name}/ready") for name in entries),
        environment=program.environment,
        grace=0.0,
    )
