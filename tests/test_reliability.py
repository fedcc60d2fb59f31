"""Threats that are tried in numbers: what each row of docs/explanation/reliability.md asks for."""

from __future__ import annotations

import hashlib
import json
import random
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
from tests.support import faulty_models
from tests.support import tiny_onnx as models

from modeldyno.base import codec, plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.job.load_spec import Load
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.result.result import Failure, FailureKind
from modeldyno.dashboard.server import HOST
from modeldyno.engine.backends.python import PythonSession
from modeldyno.engine.data.batches import Payload
from modeldyno.engine.runtime.events import RunStage
from modeldyno.engine.runtime.output_checks import check_outputs
from modeldyno.engine.runtime.session_setup import first_call
from modeldyno.models.loaders import onnx
from modeldyno.serving.loaders import url
from modeldyno.serving.servers.tcp_ports import LOOPBACK
from modeldyno.testing.fakes import a_model
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[1]


# --- broken models ----------------------------------------------------------------------------------------


def broken(number: int) -> tuple[str, Callable[[], Any]]:
    """Give a way to be broken, and a model that is so: in one place or all, in all calls or some of them."""
    draw = np.random.default_rng(number)
    place, size = draw.integers(64), 64
    share = (1.0, 0.5, 0.2, 0.15)[number // 5 % 4]  # of the calls

    def failing(value: float) -> Callable[[], Any]:
        def call() -> Any:
            output = np.ones(size)
            if draw.random() < share:
                output[place if number % 2 else slice(None)] = value
            return {"y": output} if number % 3 else [output, np.ones(2)]

        return call

    def all_low() -> Any:
        return np.full(size, -np.inf)

    def shapes() -> Any:
        return np.ones(size + (int(draw.integers(1, 9)) if draw.random() < share else 0))

    def noise() -> Any:
        return np.ones(size) + (draw.random(size) if draw.random() < share else 0)

    kinds = {
        "nan": failing(np.nan), "infinite": failing(np.inf), "minus infinity": all_low, "shapes": shapes,
        "random": noise,
    }  # fmt: skip
    return list(kinds.items())[number % 5]


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_of_100_broken_models_100_are_flagged(first: int) -> None:
    """What is not finite fails; shapes and values that vary for equal inputs are doubted."""
    flagged = {
        "nan": FailureKind.INVALID_OUTPUT, "infinite": FailureKind.INVALID_OUTPUT,
        "minus infinity": FailureKind.INVALID_OUTPUT, "shapes": "shapes-vary", "random": "nondeterministic",
    }  # fmt: skip
    for number in range(first, first + 20):
        kind, model = broken(number)
        stage = RunStage(watch=lambda _event: None)
        payload = Payload(feeds=({},), samples=1, used=())
        opened = first_call(PythonSession(model), payload, a_model(), stage, Load())
        events = [*opened.events, *check_outputs(opened, "last call", stage)]
        kinds = {event.kind for event in events if isinstance(event, Failure)}
        codes = {event.code for event in events if isinstance(event, Doubt)}

        assert flagged[kind] in kinds | codes, (number, kind)


# --- paths that lead elsewhere ----------------------------------------------------------------------------


def paths(count: int) -> Iterator[str]:
    """Give paths that lead out of a directory, or would in another system or after another decoding."""
    draw = random.Random(0)
    ups = ["..", "../", "..\\", "....//", "%2e%2e/", "..%2f", "..%c0%af", ".\u2215..", "linked", "below/.."]
    goals = ["secret.bin", "etc/passwd", "/secret.bin", "C:\\secret.bin", "secret.bin\0.bin", "~/secret.bin"]
    taken: set[str] = set()
    while len(taken) < count:
        steps = [draw.choice(ups) for _ in range(draw.randint(1, 8))]
        path = draw.choice(["", "/", "./", "below/", "file://", "//"]) + draw.choice(["/", ""]).join(steps)
        path += draw.choice(["/", ""]) + draw.choice(goals)
        if path not in taken:
            taken.add(path)
            yield path


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_of_many_paths_none_leads_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """A location of external data is refused in one sentence; no file outside of the directory is opened."""
    pytest.importorskip("onnx")
    home = tmp_path / "a" / "b" / "c" / "home"
    (home / "below").mkdir(parents=True)
    for folder in (tmp_path, *home.parents[:3], home.parent):
        (folder / "secret.bin").write_bytes(bytes(4096))
    (home / "linked").symlink_to(tmp_path)
    good = models.external(home)
    # pytest reads by Path.open what is imported here.
    onnx.load(ModelRef(scheme="onnx", locator=str(good)), seed=0, trust=False)
    opened: set[Path] = set()
    genuine = Path.open

    def spy(self: Path, *args: Any, **named: Any) -> Any:
        opened.add(self.resolve())
        return genuine(self, *args, **named)

    monkeypatch.setattr(Path, "open", spy)
    tried = list(paths(count))
    for location in tried:
        path = models.external(home, location="placeholder.bin")
        path.write_bytes(_located(path.read_bytes(), location))
        with pytest.raises(RequestError) as caught:
            onnx.load(ModelRef(scheme="onnx", locator=str(path)), seed=0, trust=False)
        assert "\n" not in str(caught.value)

    assert len(tried) == count
    assert all(home in file.parents for file in opened)


def _located(content: bytes, location: str) -> bytes:
    import onnx as package

    model = package.ModelProto.FromString(content)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    return bytes(model.SerializeToString())


# --- requests to other addresses --------------------------------------------------------------------------


class _Redirecting(BaseHTTPRequestHandler):
    location: ClassVar[str] = ""

    def do_GET(self) -> None:
        self.send_response((301, 302, 303, 307, 308)[len(self.location) % 5])
        self.send_header("Location", self.location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        """Say nothing."""


def targets() -> list[str]:
    """Give a hundred addresses that a server might send a client to: of metadata, and within its network."""
    hosts = [
        "169.254.169.254", "[fd00:ec2::254]", "metadata.google.internal", "100.100.100.200", "168.63.129.16",
        "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "[::ffff:169.254.169.254]",
        "169.254.169.254.nip.io",
        "127.0.0.1", "localhost", "[::1]", "0.0.0.0", "0", "127.1", "10.0.0.1", "192.168.0.1", "172.16.0.1",
        "metadata",
    ]  # fmt: skip
    ways = ["http://{}/latest/meta-data/", "https://{}:8443/", "http://{}:1/", "//{}/", "http://u:p@{}:80/v2"]
    return [way.format(host) for host in hosts for way in ways]


def test_of_100_redirections_none_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only connections are those to the server that was asked for."""
    connected: list[Any] = []
    genuine = socket.socket.connect

    def spy(self: socket.socket, address: Any) -> None:
        connected.append(address)
        genuine(self, address)

    monkeypatch.setattr(socket.socket, "connect", spy)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # nor is a proxy asked
    tried = targets()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Redirecting) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        for target in tried:
            monkeypatch.setattr(_Redirecting, "location", target)
            with pytest.raises(RequestError, match=r"redirects .*not followed"):
                url.load(
                    ModelRef(scheme="url", locator=f"http://127.0.0.1:{server.server_port}#net"),
                    seed=0, trust=False,
                )  # fmt: skip
        server.shutdown()

    assert len(set(tried)) == 100
    assert set(connected) == {("127.0.0.1", server.server_port)}


# --- secrets ----------------------------------------------------------------------------------------------


CRASHING = f"call:{faulty_models.__file__}:segfault"


def test_of_200_secrets_none_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Headers and variables of the environment are in no document, page, store or line that is printed."""
    from modeldyno.cli import main

    draw = random.Random(0)
    secrets = [f"sk-{draw.randbytes(12).hex()}" for _ in range(200)]
    for number, secret in enumerate(secrets[:100]):
        monkeypatch.setenv(f"SERVICE_{number}_PASSWORD", secret)
    monkeypatch.setenv(
        "MODELDYNO_HEADERS", "\n".join(f"X-Key-{n}: {s}" for n, s in enumerate(secrets[100:150]))
    )
    headers = [f"--header=X-More-{n}: {s}" for n, s in enumerate(secrets[150:])]
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")
    monkeypatch.chdir(tmp_path)
    with serve_in_subprocess("--service", "constant:0.002") as server:
        address = f"http://127.0.0.1:{server.port}#echo"
        short = ("--input", "x=1x4", "--max-time", "1.5s", "--min-time", "0.3s", "--duration", "0.5s")
        for arguments in (
            ("load", address, *short, "--json", "load.json"),
            ("load", address, *short, *headers, "--json", "more.json"),
            ("load", f"{address}-is-not-there", *short, *headers, "--json", "failed.json"),
            ("profile", CRASHING, "--max-time", "1s", "--json", "crash.json"),
            ("report", "load.json", "-o", "load.md"),
            ("report", "load.json", "-o", "load.html"),
            ("report", "load.json", "-o", "load.csv"),
        ):
            with pytest.raises(SystemExit):
                main(arguments)
    output = "".join(capfd.readouterr())
    with plugins.store() as store:
        kept = b"\n".join(codec.encode(store.get(entry.id)) for entry in store.find())
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}

    assert kept.count(b"measurements") >= 3
    assert {"load.json", "load.html", "more.json", "crash.json", "load.md", "load.csv"} <= files.keys()
    for secret in secrets:
        assert secret not in output
        assert secret.encode() not in kept
        assert [name for name, content in files.items() if secret.encode() in content] == []


# --- what listens -----------------------------------------------------------------------------------------

LISTENING = re.compile(r"\.bind\(.|\bcreate_server\(|asyncio\.start_server\(|HTTPServer\(|\bsocketserver\b")


def test_only_the_dashboard_waits_for_requests() -> None:
    """On this machine only, unless it asks for a token.

    The rest is a look for free ports, what the client is measured with for a second, and tests.
    """
    source = ROOT / "src" / "modeldyno"
    lines = {
        str(path.relative_to(source)): [line.strip() for line in text.splitlines() if LISTENING.search(line)]
        for path in sorted(source.rglob("*.py"))
        if LISTENING.search(text := path.read_text(encoding="utf-8"))
    }

    assert lines == {
        "dashboard/server.py": ["return socket.create_server((host, port), family=family)"],
        "serving/loadgen/calibration_server.py": [
            "listening = socket.create_server((_HOST, 0), backlog=_BACKLOG)"
        ],
        "serving/servers/tcp_ports.py": ["probe.bind((LOOPBACK, port))"],
        "testing/endless_answers.py": ['with socket.create_server(("127.0.0.1", 0)) as listening:'],
        "testing/server.py": ["listening = await loop.create_server("],
    }
    assert LOOPBACK == HOST == "127.0.0.1"


# --- the page that lists them -----------------------------------------------------------------------------


def test_every_test_that_the_page_names_is_there() -> None:
    """The table of threats names tests that exist, each in its file."""
    page = (ROOT / "docs" / "explanation" / "reliability.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:tests|bench)/[\w/]+\.py)(?:::(\w+))?`", page)

    assert len(named) > 25
    for file, test in named:
        text = (ROOT / file).read_text(encoding="utf-8")
        assert not test or re.search(rf"def {test}\(|class {test}\b", text), f"{file}::{test}"


def test_every_row_of_the_page_says_how_it_is_repeated() -> None:
    """One table has each threat once, with a number, a test, and a command where `make test` does not do."""
    page = (ROOT / "docs" / "explanation" / "reliability.md").read_text(encoding="utf-8")
    goals = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    rows = [line.strip("|").split("|") for line in page.splitlines() if re.match(r"\| \d", line)]

    assert [int(number) for number, *_ in rows] == [*range(1, len(rows) + 1)]
    assert len({threat for _, threat, *_ in rows}) == len(rows)
    assert len(re.findall(r"(?:^\| \d.*\n)+", page, re.MULTILINE)) == 1
    for _, threat, _, test, full in rows:
        assert re.search(r"`(?:tests|bench)/", test), threat
        assert not full.strip() or set(re.findall(r"`make ([a-z-]+)`", full)) & set(goals), threat


# --- what comes from elsewhere ------------------------------------------------------------------------------


def test_scripts_from_elsewhere_are_locked_by_their_digests() -> None:
    """A script of ours can be read, others have a recorded digest; so has each package of npm."""
    scripts = [*(ROOT / "src").rglob("*.js"), *(ROOT / "src").rglob("*.wasm")]
    foreign = [path for path in scripts if max(map(len, path.read_bytes().splitlines())) > 2000]
    assert [path.name for path in foreign] == ["echarts.js"]
    for path in foreign:
        recorded = path.with_suffix(".sha256").read_text().split()[0]
        assert hashlib.sha256(path.read_bytes()).hexdigest() == recorded
    packages = json.loads((ROOT / "tools" / "charts" / "package-lock.json").read_text())["packages"]
    ours, *others = packages.values()
    assert set(ours) <= {"name", "license", "dependencies", "devDependencies"}
    assert len(others) > 3
    assert all(package["integrity"].startswith("sha512-") for package in others)
