"""A tritonserver that loads a model by reading its configuration, and tells statistics; it infers nothing."""

from __future__ import annotations

import json
import os
import shutil
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FLAGS = dict(word.lstrip("-").partition("=")[::2] for word in sys.argv[1:])
TRACES = [word.partition("triton,file=")[2] for word in sys.argv if "triton,file=" in word]
RECORDED = Path(__file__).parents[2] / "golden" / "triton_trace_http.json"
LOADED = {FLAGS["load-model"]}
STATS = {
    "model_stats": [
        {
            "inference_count": "6",
            "execution_count": 3,
            "inference_stats": {
                "success": {"count": 4, "ns": 9},
                "fail": {"count": 1},
                "queue": {"count": 4, "ns": 2_000_000_000},
                "compute_input": {"ns": 1},
                "compute_infer": {"ns": 500_000_000},
                "compute_output": {"ns": 2_000_000_000},
            },
            "batch_stats": [{"batch_size": 2, "compute_infer": {"count": 3}}],
        }
    ]
}


GROUPS = {"instance_group": [{"count": 1, "kind": "KIND_CPU"}, {"count": 1, "gpus": [0, 1]}]}


class Handler(BaseHTTPRequestHandler):
    """Answers what is asked of a server."""

    def do_GET(self) -> None:
        """Answer."""
        answers: dict[str, Any] = {"/v2": {"name": "triton", "version": "0.0.1"}}
        for name in LOADED:
            answers |= {f"/v2/models/{name}/ready": {}, f"/v2/models/{name}/stats": STATS}
            answers[f"/v2/models/{name}/config"] = GROUPS
        self.send_response(200 if self.path in answers else 404)
        self.end_headers()
        self.wfile.write(json.dumps(answers.get(self.path, {"error": "no such path"})).encode())

    def do_POST(self) -> None:
        """Load or unload a model of the repository."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        *_, name, verb = self.path.split("/")
        if verb == "setting" and TRACES:
            name = next(iter(LOADED))
            if b"OFF" in body:
                shutil.copyfile(RECORDED, f"{TRACES[0]}.0")
        entry = Path(FLAGS["model-repository"]) / name
        known = (entry / "config.pbtxt").exists() and "nonsense" not in (entry / "config.pbtxt").read_text()
        if verb == "load" and known:
            LOADED.add(name)
        elif verb == "unload":
            LOADED.discard(name)
        self.send_response(200 if known else 400)
        self.end_headers()
        self.wfile.write(b"{}" if known else b'{"error": "failed to load: no field named nonsense"}')

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def main() -> None:
    """Refuse what a real one would refuse, and serve."""
    if TRACES and os.environ.get("FAKE_TRITON_TRACES") == "no":
        sys.exit("tritonserver: unrecognized option '--trace-config=mode=triton'")
    folder = Path(FLAGS["model-repository"]) / FLAGS["load-model"]
    config = (folder / "config.pbtxt").read_text()
    if "nonsense" in config:
        sys.exit('Error parsing text-format inference.ModelConfig: has no field named "nonsense".')
    assert (folder / "1" / "model.py").exists()
    assert FLAGS["http-address"] == FLAGS["grpc-address"] == FLAGS["metrics-address"] == "127.0.0.1"
    ThreadingHTTPServer(("127.0.0.1", int(FLAGS["http-port"])), Handler).serve_forever()


main()
