from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from tests.zoo.protocols import recorded

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.models.interface import Executes, Form
from modeldyno.serving.load.endpoint_url import HEADERS_VARIABLE
from modeldyno.serving.loaders import url as loader
from modeldyno.testing.loaders import LoaderSuite, is_one_sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.models.interface import Model

Pages = dict[str, tuple[int, Any]]
"""Path to status, and what is answered as JSON."""
TENSOR = {"name": "x", "datatype": "FP32", "shape": [-1, 4]}
SERVER = (200, {"name": "triton", "version": "2.51.0", "extensions": ["binary_tensor_data"]})
KSERVE: Pages = {
    "/v2": SERVER,
    "/v2/models/net": (200, {"name": "net", "inputs": [TENSOR]}),
    "/v2/models/net/versions/2": (200, {"name": "net", "inputs": [{**TENSOR, "shape": [-1, 5]}]}),
    "/v2/models/mute": (200, {"name": "mute", "inputs": []}),
    "/v2/models/bad": (200, {"name": "bad", "inputs": [{}]}),
}
OPENAI: Pages = {"/v1/models": (200, {"object": "list", "data": [{"id": "tiny"}]})}


class Scripted(ThreadingHTTPServer):
    """Answers with its pages, and records the requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages: Pages = {}
        self.requests: list[tuple[str, dict[str, str]]] = []

    def url(self, rest: str = "") -> str:
        """Return a URL of it."""
        return f"http://127.0.0.1:{self.server_address[1]}{rest}"


class _Handler(BaseHTTPRequestHandler):
    server: Scripted

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def do_GET(self) -> None:
        self.server.requests.append((self.path, dict(self.headers)))
        status, page = self.server.pages.get(self.path, (404, {"error": "no such page"}))
        body = page if isinstance(page, bytes) else json.dumps(page).encode()
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        """Log nothing."""


@pytest.fixture
def server() -> Iterator[Scripted]:
    """A server that speaks KServe's protocol, until its pages are changed."""
    with Scripted() as made:
        made.pages = dict(KSERVE)
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def load(locator: str) -> Model:
    """Load what is at a URL."""
    return loader.load(ModelRef(scheme="url", locator=locator), seed=0, trust=False)


class TestSuite(LoaderSuite):
    scheme = "url"
    forms = frozenset({Form.REMOTE})
    has_weights = False

    @pytest.fixture
    def ref(self, server: Scripted) -> ModelRef:
        """A model on a server."""
        return ModelRef(scheme="url", locator=server.url("#net"))

    @pytest.fixture
    def other(self, server: Scripted) -> ModelRef:
        """Another version of it."""
        return ModelRef(scheme="url", locator=server.url("#net@2"))

    @pytest.fixture
    def damaged(self, server: Scripted) -> ModelRef:
        """One with an invalid description."""
        return ModelRef(scheme="url", locator=server.url("#bad"))


class TestRecognition:
    def test_kserve(self, server: Scripted) -> None:
        """A server of the Open Inference Protocol is recognised, named, and asked for the model's inputs."""
        model = load(server.url("#net"))

        assert model.identity.name == "net"
        assert model.identity.framework == "kserve-http, triton 2.51.0"
        assert model.value.protocol == "kserve-http"
        assert model.value.options == {"binary": True}
        assert model.inputs == (InputSpec(name="x", shape=("batch", 4), dtype="float32"),)
        assert not model.undeclared

    def test_openai(self, server: Scripted) -> None:
        """A server of OpenAI's protocol is recognised, and its only model needs no name."""
        server.pages = dict(OPENAI)
        model = load(server.url())

        assert (model.identity.name, model.value.model) == ("tiny", "tiny")
        assert model.identity.framework == "openai"
        assert [(spec.name, spec.dtype) for spec in model.inputs] == [("prompt", "string")]

    def test_several_models_and_none_named(self, server: Scripted) -> None:
        """Of several models one must be named; the error lists them."""
        server.pages = {"/v1/models": (200, {"data": [{"id": "big"}, {"id": "small"}]})}
        with pytest.raises(RequestError, match=r"2 models.*big, small"):
            load(server.url())

    def test_tensorflow(self, server: Scripted) -> None:
        """A server that reports the state of a model's versions is TensorFlow Serving."""
        ready = {"model_version_status": [{"version": "1", "state": "AVAILABLE"}]}
        server.pages = {
            "/v1/models/net": (200, ready),
            "/v1/models/net/metadata": (404, {"detail": "Not Found"}),
        }
        model = load(server.url("#net"))

        assert model.identity.framework == "tensorflow-http, tensorflow serving"
        assert model.undeclared

    def test_torchserve(self, server: Scripted) -> None:
        """A server that reports its health is TorchServe; it does not declare its models' inputs."""
        server.pages = {"/ping": (200, {"status": "Healthy"})}
        model = load(server.url("#net"))

        assert model.value.protocol == "torchserve"
        assert model.undeclared

    def test_anything_else_is_plain(self, server: Scripted) -> None:
        """Where no protocol is recognised and no model is named, the URL itself is requested."""
        server.pages = {}
        model = load(server.url("/health"))

        assert model.value.protocol == "http"
        assert model.identity.name == server.url("/health").removeprefix("http://")

    def test_a_query_is_plain(self, server: Scripted) -> None:
        """A URL with a query is plain; no protocol is tried below it."""
        assert load(server.url("/search?q=1")).value.protocol == "http"
        assert server.requests == []

    def test_a_model_of_an_unknown_protocol(self, server: Scripted) -> None:
        """Where a model is named and no protocol is recognised, the error says how to name one."""
        server.pages = {}
        with pytest.raises(RequestError, match=r"#net,protocol=.*torchserve"):
            load(server.url("#net"))

    def test_the_url_may_name_the_protocol(self, server: Scripted) -> None:
        """A protocol that is named is used, whatever the server says."""
        assert load(server.url("#net,protocol=torchserve")).value.protocol == "torchserve"
        with pytest.raises(UnknownName, match="did you mean 'openai'"):
            load(server.url("#net,protocol=openia"))
        with pytest.raises(RequestError, match=r"uses grpc.*grpc://"):
            load(server.url("#net,protocol=kserve-grpc"))
        with pytest.raises(RequestError, match="its own paths"):
            load(server.url("/a?b#net,protocol=kserve-http"))

    def test_it_is_asked_no_more_than_needed(self, server: Scripted) -> None:
        """A server is asked what it is and for the model's inputs, and is left unchanged."""
        load(server.url("#net"))

        assert [path for path, _ in server.requests] == ["/v2", "/v2/models/net"]
        assert loader.executes is Executes.NOTHING


class TestTrouble:
    def test_nothing_answers(self, server: Scripted) -> None:
        """A port without a server is reported with the system's message."""
        port = server.server_address[1]
        server.shutdown()
        server.server_close()
        with pytest.raises(RequestError, match=f"127.0.0.1:{port}.*refused.*check the URL"):
            load(f"http://127.0.0.1:{port}#net")

    def test_an_unknown_model(self, server: Scripted) -> None:
        """The error lists the models, where the server lists them."""
        with pytest.raises(RequestError, match=r"has no model 'nope'; check the name after #\."):
            load(server.url("#nope"))
        index = [{"name": name, "version": str(v), "state": "READY"} for name in ("net", "b") for v in (1, 2)]
        server.pages["/v2/repository/index"] = (200, index)
        with pytest.raises(RequestError, match=r"has no model 'net' of version 7; .* \(it has: net, b\)\."):
            load(server.url("#net@7"))

    def test_the_only_model_needs_no_name(self, server: Scripted) -> None:
        """A server that lists its models is asked for them where the URL names none."""
        server.pages["/v2/repository/index"] = (200, [{"name": "net"}])
        assert load(server.url()).value.model == "net"
        server.pages["/v2/repository/index"] = (200, [{"name": "net"}, {"name": "b"}])
        with pytest.raises(RequestError, match=r"2 models.*net, b"):
            load(server.url())

    def test_a_redirection_is_not_followed(self, server: Scripted) -> None:
        """A redirect is not followed."""
        server.pages = {"/v2": (307, {})}
        with pytest.raises(RequestError, match=r"redirects \(307\).*not followed"):
            load(server.url("#net"))

    @pytest.mark.parametrize("status", [401, 403])
    def test_a_server_that_wants_to_know_who_asks(self, server: Scripted, status: int) -> None:
        """The error says how to send a header."""
        server.pages = {"/v2": (status, {})}
        with pytest.raises(RequestError, match=f"{HEADERS_VARIABLE} or `headers`"):
            load(server.url("#net"))

    def test_what_it_costs_is_not_shown(self, server: Scripted) -> None:
        """A server cannot be inspected, only measured."""
        with pytest.raises(RequestError, match="modeldyno load") as caught:
            loader.look(ModelRef(scheme="url", locator=server.url("#net")), seed=0, trust=False)
        assert is_one_sentence(str(caught.value))
        assert server.requests == []


class TestIdentity:
    def test_headers_come_from_the_environment(
        self, server: Scripted, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Headers are sent with every request, and are not part of the digest."""
        plain = load(server.url("#net")).identity
        monkeypatch.setenv(HEADERS_VARIABLE, "Authorization: Bearer s3cr3t\nX-Team: a")
        server.requests.clear()
        model = load(server.url("#net"))

        assert all(headers["Authorization"] == "Bearer s3cr3t" for _, headers in server.requests)
        assert model.value.headers == (("Authorization", "Bearer s3cr3t"), ("X-Team", "a"))
        assert model.identity == plain

    def test_the_order_of_keys_is_no_difference(self, server: Scripted) -> None:
        """A description with keys in another order has the same digest."""
        first = load(server.url("#net")).identity
        server.pages["/v2/models/net"] = (200, dict(reversed(KSERVE["/v2/models/net"][1].items())))

        assert load(server.url("#net")).identity == first

    def test_what_is_not_described_is_known_by_its_place(self, server: Scripted) -> None:
        """Plain URLs differ by their paths."""
        server.pages = {}
        digests = {load(server.url(path)).identity.digest for path in ("/a", "/b")}

        assert len(digests) == 2

    def test_a_description_in_protobuf_is_digested_by_its_inputs(self) -> None:
        """Maps of protobuf have no order: the digest uses the inputs instead of the description."""
        described = recorded("tensorflow grpc described")
        inputs = plugins.client("tensorflow-grpc").inputs(described, _endpoint())
        turned = loader._digest(_endpoint(), None, inputs)

        assert loader._digest(_endpoint(), described, inputs) == turned
        assert loader._digest(_endpoint(), described, inputs[1:]) != turned


def _endpoint() -> Any:
    from modeldyno.engine.interfaces.request_target import Endpoint

    return Endpoint(host="h", port=1, model="net", protocol="tensorflow-grpc")
