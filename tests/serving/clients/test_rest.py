"""TorchServe's REST, plain HTTP, and what all of HTTP has in common."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.zoo.protocols import reply

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.engine.interfaces.request_target import Endpoint, ServerInfo, Tls
from modeldyno.serving.clients import http, tensors, torchserve
from modeldyno.serving.clients import messages as clients_messages
from modeldyno.testing.clients import ClientSuite

if TYPE_CHECKING:
    from modeldyno.models.interface import Feed

NET = Endpoint(host="h", port=8080, model="net")
RAW = Endpoint(host="h", port=8080, model="net", options={"content": "raw"})


class TestTorchServe(ClientSuite):
    name = "torchserve"
    answer = reply({"y": [[1.0], [2.0]]})

    def feed(self, seed: int) -> Feed:
        """A payload."""
        return {"x": np.random.default_rng(seed).random((2, 4), dtype="float32")}


class TestPlain(ClientSuite):
    name = "http"
    answer = reply(b"fine")
    numbers = False

    def feed(self, seed: int) -> Feed:
        """A payload."""
        return {"body": np.array([f"payload {seed}"], object)}


def body(sent: bytes) -> bytes:
    """Give what follows the head."""
    return sent.partition(b"\r\n\r\n")[2]


class TestPredictions:
    def test_json_holds_the_inputs_by_name(self) -> None:
        """By default the body is an object of the inputs, each with the batch first."""
        feed = {"x": np.array([[1, 2], [3, 4]]), "t": np.array(["a", "b"], object)}
        (sent,) = torchserve.target([feed], Endpoint(host="h", port=1, model="net", version="1.0")).messages

        assert sent.startswith(b"POST /predictions/net/1.0 HTTP/1.1\r\n")
        assert json.loads(body(sent)) == {"x": [[1, 2], [3, 4]], "t": ["a", "b"]}

    def test_raw_bytes_of_an_image_or_a_text(self) -> None:
        """With content=raw the body is the bytes of uint8, or one text."""
        image = {"data": np.frombuffer(b"\x89PNG", np.uint8)}
        text = {"data": np.array(["zwölf"], object)}
        sent = torchserve.target([image, text], RAW).messages

        assert [body(each) for each in sent] == [b"\x89PNG", "zwölf".encode()]
        assert b"application/octet-stream" in sent[0]
        assert b"text/plain" in sent[1]

    @pytest.mark.parametrize(
        ("feed", "message"),
        [
            ({"x": np.zeros(2)}, "float64 of 2; set content=json"),
            ({"x": np.array(["a", "b"], object)}, "string of 2"),
            ({"x": np.zeros(1, "uint8"), "y": np.zeros(1, "uint8")}, "one input, not 2: x, y"),
            ({}, "`inputs=data=1x3x224x224`"),
        ],
    )
    def test_what_cannot_go_raw(self, feed: Feed, message: str) -> None:
        """Anything else than one text or bytes is refused."""
        with pytest.raises(RequestError, match=message):
            torchserve.target([feed], RAW)

    @pytest.mark.parametrize(
        ("answer", "outputs"),
        [
            (b'{"y": [[1.5]], "n": 3}', {"y": [[1.5]], "n": 3}),
            (b"[1, 2]", {"output": [1, 2]}),
            (b"7", {"output": 7}),
            (b'["cat", "dog"]', {"output": ["cat", "dog"]}),
            (b"\x00\xff", {"output": [0, 255]}),
        ],
    )
    def test_answers(self, answer: bytes, outputs: Any) -> None:
        """What a handler gives is read as arrays: objects, lists, numbers, text, or else its bytes."""
        arrays = {name: array.tolist() for name, array in torchserve.arrays(reply(answer)).items()}

        assert arrays == outputs

    def test_answers_that_are_no_arrays(self) -> None:
        """Lists that are no rows are told."""
        with pytest.raises(ValueError, match="numbers in rows"):
            torchserve.arrays(reply([{"label": "cat"}, [1]]))

    def test_it_is_recognised_by_its_health(self) -> None:
        """TorchServe is recognised whether it is well or not."""
        for status in ("Healthy", "Unhealthy"):
            assert torchserve.recognised(reply({"status": status})) == ServerInfo(name="torchserve")
        assert torchserve.recognised(reply({"status": "ok"})) is None

    def test_an_unknown_content(self) -> None:
        """A content that is none gets a suggestion."""
        with pytest.raises(UnknownName, match="did you mean 'json'"):
            torchserve.target([], Endpoint(host="h", port=1, model="m", options={"content": "jsn"}))


class TestTemplate:
    def test_without_a_body_it_gets(self) -> None:
        """A payload without inputs is a GET of the whole path, with its query."""
        (sent,) = http.target([{}], Endpoint(host="h", port=80, path="/a/b?c=1&d=2")).messages

        assert sent.startswith(b"GET /a/b?c=1&d=2 HTTP/1.1\r\nHost: h\r\n")
        assert b"Content-" not in sent

    def test_with_a_body_it_posts(self) -> None:
        """A text or bytes is posted, as JSON where nobody says what it is; a header may say."""
        feeds: list[Feed] = [
            {"body": np.array('{"a": 1}', object)},
            {"body": np.frombuffer(b"\xff", "uint8")},
        ]
        typed = Endpoint(host="h", port=1, headers=(("content-type", "image/png"),))
        plain, other = (http.target(feeds, where).messages for where in (Endpoint(host="h", port=1), typed))

        assert plain[0].startswith(b"POST / HTTP/1.1\r\n")
        assert b"Content-Type: application/json\r\n" in plain[0]
        assert [body(sent) for sent in plain] == [b'{"a": 1}', b"\xff"]
        assert b"content-type: image/png\r\n" in other[1]
        assert b"application/json" not in other[1]

    def test_a_method_is_said(self) -> None:
        """A method that takes a body has one, be it empty; one whose answers have no length is refused."""
        put = Endpoint(host="h", port=1, options={"method": "put", "content_type": "text/plain"})

        assert b"Content-Length: 0\r\n" in http.target([{}], put).messages[0]
        with pytest.raises(UnknownName, match="method"):
            http.target([{}], Endpoint(host="h", port=1, options={"method": "HEAD"}))

    def test_other_payloads_are_refused(self) -> None:
        """Numbers are no body."""
        with pytest.raises(RequestError, match="one text, not 2 values of float32"):
            http.target([{"body": np.zeros(2, "float32")}], NET)

    def test_an_answer_is_its_bytes(self) -> None:
        """Nobody knows what an answer means: it is given as it came."""
        assert http.arrays(reply(b"ab"))["body"].tolist() == [97, 98]


class TestMessages:
    @pytest.mark.parametrize(
        ("endpoint", "host"),
        [
            (Endpoint(host="h", port=80), "h"),
            (Endpoint(host="h", port=443), "h:443"),
            (Endpoint(host="h", port=443, tls=Tls()), "h"),
            (Endpoint(host="::1", port=8000), "[::1]:8000"),
        ],
    )
    def test_the_host_is_named_as_it_should(self, endpoint: Endpoint, host: str) -> None:
        """The usual port is left away, and an address of IPv6 is in brackets."""
        assert f"\r\nHost: {host}\r\n".encode() in clients_messages.http_request(endpoint, "GET", "/")

    def test_headers_of_the_user_win(self) -> None:
        """A header that both write is sent once, as the user has it."""
        mine = Endpoint(host="h", port=1, headers=(("host", "virtual"), ("USER-AGENT", "me")))
        sent = clients_messages.http_request(mine, "GET", "/").decode()

        assert sent.count("irtual") == 1
        assert "USER-AGENT: me\r\n" in sent
        assert "modeldyno" not in sent

    @pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "Connection"])
    def test_headers_that_cut_the_message_are_ours(self, name: str) -> None:
        """Nobody else may say how long a message is."""
        with pytest.raises(RequestError, match=name):
            clients_messages.http_request(Endpoint(host="h", port=1, headers=((name, "1"),)), "GET", "/")

    @pytest.mark.parametrize("value", ["\u20ac", "a\x00b"])
    def test_values_that_cannot_be_sent(self, value: str) -> None:
        """A value beyond Latin-1, or with a control character, is refused without being told."""
        with pytest.raises(RequestError, match="X-Key") as caught:
            clients_messages.http_request(Endpoint(host="h", port=1, headers=(("X-Key", value),)), "GET", "/")
        assert value not in str(caught.value)

    @pytest.mark.parametrize("header", [("X Y", "1"), ("grpc-timeout", "1"), ("te", "x"), ("a", "ä")])
    def test_metadata_that_grpc_cannot_carry(self, header: tuple[str, str]) -> None:
        """Names that gRPC keeps for itself, and values that are not ASCII, are refused."""
        with pytest.raises(RequestError, match=r"header .* gRPC"):
            clients_messages.grpc_target("p", Endpoint(host="h", port=1, headers=(header,)), "/a/b", [b""])

    def test_odd_paths_are_quoted(self) -> None:
        """Blanks and letters beyond ASCII in a path are quoted, what is quoted stays."""
        sent = clients_messages.http_request(NET, "GET", "/a b/ü?x=%20")

        assert sent.startswith(b"GET /a%20b/%C3%BC?x=%20 HTTP/1.1\r\n")

    def test_a_redirection_is_told_and_not_followed(self) -> None:
        """The phrase says where the server points to."""
        away = reply(b"", 307, head=b"Location: https://else.example/v2")
        with pytest.raises(ValueError, match=r"redirects \(307\) to https://else.example/v2.*not followed"):
            clients_messages.check_http_status(away)

    @pytest.mark.parametrize(
        ("answer", "message"),
        [
            ({"error": "a."}, "a"),
            ({"error": {"message": "b", "code": 7}}, "b"),
            ({"detail": [{"msg": "c"}]}, '[{"msg": "c"}]'),
            ({"message": "d\n\x1b[31m"}, "d [31m"),
            (b"<p>e</p>", "<p>e</p>"),
            (b"x" * 999, "x" * 200),
        ],
    )
    def test_the_servers_words_are_found(self, answer: Any, message: str) -> None:
        """The message of an error is found in whatever form servers wrap it, and cannot act on a terminal."""
        assert clients_messages.error_message(reply(answer).body) == message

    def test_headers_of_a_reply(self) -> None:
        """A header is found whatever its letters."""
        answer = reply(b"", head=b"Content-Type: a\r\nX-Y:  b ")

        assert clients_messages.header_value(answer, "x-y") == "b"
        assert clients_messages.header_value(answer, "absent") == ""


class TestTensors:
    def test_object_arrays_of_numbers_are_no_text(self) -> None:
        """Elements that are neither text nor bytes are refused by the name of their kind."""
        with pytest.raises(RequestError, match="'x' holds int"):
            tensors.to_elements("x", np.array([1], object))

    def test_a_shape_that_is_none(self) -> None:
        """A declared shape of something else than numbers is told."""
        with pytest.raises(ValueError, match="shape of 'x'"):
            tensors.shape_of("x", ["a"])

    @pytest.mark.parametrize("number", [2**63, 2**64 - 1, 0])
    def test_the_largest_whole_numbers_come_exactly(self, number: int) -> None:
        """Whole numbers beyond int64, beside small ones, lose nothing on their way through JSON."""
        assert tensors.from_values("x", [number, 1], "uint64", None).tolist() == [number, 1]

    @pytest.mark.parametrize("dtype", ["int8", "uint8", "bool"])
    def test_numbers_that_do_not_fit(self, dtype: str) -> None:
        """A number that its dtype cannot hold is no answer of that dtype."""
        with pytest.raises(ValueError, match=dtype):
            tensors.from_values("x", [300], dtype, None)


def test_only_the_beginning_of_a_huge_message_is_read() -> None:
    """An answer of a kilobyte may be a gigabyte when decompressed; its text is quoted in no time."""
    began = time.process_time()
    body = b"0" * (64 << 20)
    assert len(clients_messages.error_message(body)) == 200
    with pytest.raises(ValueError, match="the answer is not JSON: 000"):
        clients_messages.parse_json(body)
    assert time.process_time() - began < 3
