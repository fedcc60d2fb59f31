"""The Open Inference Protocol against what Triton's own client sends, and what real servers answered."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.zoo.protocols import HERE, every, recorded, reply, same, schemas

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.engine.interfaces.request_target import (
    COMPRESSIONS,
    Endpoint,
    Reply,
    ServerInfo,
    compress,
    decompress,
    request_id,
)
from modeldyno.engine.interfaces.server_stats import ServerCounters
from modeldyno.serving.clients import kserve, kserve_grpc, kserve_http, protobuf
from modeldyno.testing.clients import ClientSuite

if TYPE_CHECKING:
    from modeldyno.models.interface import Feed

NET = Endpoint(host="h", port=8000, model="net", version="2")
DTYPES = (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
    "float16", "float32", "float64", "string",
)  # fmt: skip
LOSSLESS = [code for code in DTYPES if code != "string"]
JSON_LENGTH = b"Inference-Header-Content-Length"


class TestHttp(ClientSuite):
    name = "kserve-http"
    answer = recorded("triton http binary")
    description = recorded("triton http described")

    def feed(self, seed: int) -> Feed:
        """A payload."""
        return {"x": np.random.default_rng(seed).random((2, 4), dtype="float32")}


class TestHttpJson(TestHttp):
    answer = recorded("mlserver http json")
    description = recorded("mlserver http described")
    options: ClassVar = {"binary": False}


class TestGrpc(ClientSuite):
    name = "kserve-grpc"
    answer = recorded("kserve grpc raw")
    description = recorded("triton grpc described")

    def feed(self, seed: int) -> Feed:
        """A payload."""
        return {"x": np.random.default_rng(seed).random((2, 4), dtype="float32")}


def given_to_triton() -> dict[str, Any]:
    """Give the arrays that `golden/protocols/generate.py` had Triton's client send."""
    numbers = np.array([[0, 1, 2], [3, 4, 5]])
    text = np.array([["", "a", "zwölf"], ["日本", "x\ny", "end"]], object)
    return {code: text if code == "string" else numbers.astype(code) for code in DTYPES}


def requests() -> dict[str, Any]:
    """Give what it sent."""
    return dict(json.loads((HERE / "triton-requests.json").read_text()))


def split(message: bytes) -> tuple[Any, bytes]:
    """Take the body of a message apart, into its JSON and the raw bytes."""
    head, _, body = message.partition(b"\r\n\r\n")
    fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
    length = int(fields.get(JSON_LENGTH, len(body)))
    return json.loads(body[:length]), body[length:]


class TestRequests:
    @pytest.mark.parametrize("code", DTYPES)
    def test_raw_bytes_are_those_of_tritons_client(self, code: str) -> None:
        """With the binary extension, JSON and bytes are what Triton's own client sends."""
        theirs = requests()["binary"][code]
        body, length = bytes.fromhex(theirs["body"]), theirs["json_length"]
        (message,) = kserve_http.target([{"x": given_to_triton()[code]}], NET).messages

        assert message.startswith(b"POST /v2/models/net/versions/2/infer HTTP/1.1\r\n")
        assert split(message) == (json.loads(body[:length]), body[length:])

    @pytest.mark.parametrize("code", [code for code in DTYPES if code != "float16"])
    def test_json_is_that_of_tritons_client(self, code: str) -> None:
        """Without it, the inputs in JSON are those that Triton's own client sends."""
        theirs = json.loads(bytes.fromhex(requests()["json"][code]["body"]))
        plain = Endpoint(host="h", port=1, model="net", options={"binary": False})
        (message,) = kserve_http.target([{"x": given_to_triton()[code]}], plain).messages

        assert split(message) == ({"inputs": theirs["inputs"]}, b"")

    @pytest.mark.parametrize("code", DTYPES)
    def test_grpc_is_that_of_tritons_client(self, code: str) -> None:
        """Over gRPC, the message is byte for byte the one that Triton's own client sends."""
        target = kserve_grpc.target([{"x": given_to_triton()[code]}], NET)

        assert target.method == "/inference.GRPCInferenceService/ModelInfer"
        assert target.messages[0].hex() == requests()["grpc"][code]

    def test_bfloat16_is_the_upper_half_of_float32(self) -> None:
        """Numbers of bfloat16 go as two bytes each, little end first, and come back as float32."""
        ml_dtypes = pytest.importorskip("ml_dtypes")
        array = np.array([1.0, -2.5], ml_dtypes.bfloat16)
        (message,) = kserve_http.target([{"x": array}], NET).messages

        assert split(message)[1] == b"\x80\x3f\x20\xc0"
        assert kserve.from_bytes("y", b"\x80\x3f\x20\xc0", "BF16", [2]).tolist() == [1.0, -2.5]

    def test_big_end_first_is_turned(self) -> None:
        """An array in the byte order of another machine is sent like any other."""
        array = np.array([1, 2], ">i4")

        assert kserve.to_bytes("x", array) == np.array([1, 2], "<i4").tobytes()

    @pytest.mark.parametrize(
        ("array", "options", "message"),
        [
            (np.array([1.0, np.nan]), {"binary": False}, "not finite.*binary=true"),
            (np.array([b"\xff"], object), {"binary": False}, "bytes that are not UTF-8 text"),
            (np.array([{}], object), {}, "holds dict"),
            (np.array(["\ud800"], object), {}, "not valid Unicode"),
        ],
    )
    def test_what_cannot_be_carried_is_refused(self, array: Any, options: Any, message: str) -> None:
        """What JSON, or the protocol, has no form for is refused in a sentence that says what to do."""
        where = Endpoint(host="h", port=1, model="net", options=options)
        with pytest.raises(RequestError, match=message):
            kserve_http.target([{"x": array}], where)

    def test_bfloat16_has_no_json(self) -> None:
        """There is no form of bfloat16 in JSON."""
        ml_dtypes = pytest.importorskip("ml_dtypes")
        plain = Endpoint(host="h", port=1, model="net", options={"binary": False})
        with pytest.raises(RequestError, match=r"bfloat16.*binary=true"):
            kserve_http.target([{"x": np.zeros(2, ml_dtypes.bfloat16)}], plain)

    def test_a_payload_without_inputs_is_refused(self) -> None:
        """A model whose inputs nobody tells needs them from the user."""
        with pytest.raises(RequestError, match="`inputs=name=1x4:float32`"):
            kserve_http.target([{}], NET)

    def test_a_url_without_a_model_is_refused(self) -> None:
        """Inference needs a model's name."""
        with pytest.raises(RequestError, match="names no model"):
            kserve_grpc.target([{"x": np.zeros(1)}], Endpoint(host="h", port=1))

    def test_names_are_quoted_in_paths(self) -> None:
        """A model's name cannot leave its place in the path."""
        (message,) = kserve_http.described(Endpoint(host="h", port=1, model="a/../b c")).messages

        assert message.startswith(b"GET /v2/models/a%2F..%2Fb%20c HTTP/1.1\r\n")

    def test_a_path_before_the_protocols_own(self) -> None:
        """A server behind a prefix is asked below it; gRPC has no such thing."""
        behind = Endpoint(host="h", port=1, model="net", path="/proxy/")

        assert kserve_http.greeting(behind).messages[0].startswith(b"GET /proxy/v2 HTTP/1.1\r\n")
        with pytest.raises(RequestError, match="takes no path"):
            kserve_grpc.greeting(behind)


@pytest.mark.parametrize("number", [1, 300, 2**31 - 1])
@pytest.mark.parametrize(("first", "last"), [(True, False), (False, True), (True, True)])
class TestSequences:
    @pytest.mark.parametrize("binary", [True, False])
    def test_a_mark_is_parameters_in_json(self, number: int, first: bool, last: bool, binary: bool) -> None:
        """A request with a mark differs by these parameters, and keeps its length and its tensors."""
        where = Endpoint(host="h", port=1, model="net", options={"binary": binary})
        feed = {"x": np.arange(3, dtype="int32")}
        (plain,) = kserve_http.target([feed], where).messages
        target = kserve_http.sequence_target([feed], where)
        (message,), (at,) = target.messages, target.marks
        mark = kserve_http.sequence_mark(number, first=first, last=last)
        body, raw = split(message[:at] + mark + message[at + len(mark) :])

        parameters = {"sequence_id": number, "sequence_start": first, "sequence_end": last}
        expected, expected_raw = split(plain)
        assert body == {**expected, "parameters": {**parameters, **expected.get("parameters", {})}}
        assert raw == expected_raw

    def test_a_mark_is_parameters_of_grpc(self, number: int, first: bool, last: bool) -> None:
        """As google.protobuf reads the message with a mark, which has the length of any other mark."""
        pytest.importorskip("google.protobuf")
        target = kserve_grpc.sequence_target([{"x": np.arange(3, dtype="int32")}], NET)
        (message,), (at,) = target.messages, target.marks
        mark = kserve_grpc.sequence_mark(number, first=first, last=last)
        request = schemas("kserve")["inference.ModelInferRequest"].FromString(message[:at] + mark)

        assert len(message) == at + len(mark)
        assert request.inputs[0].name == "x"
        assert request.parameters["sequence_id"].int64_param == number
        assert request.parameters["sequence_start"].bool_param is first
        assert request.parameters["sequence_end"].bool_param is last


class TestIds:
    SENT = 12_345_678_901_234

    @pytest.mark.parametrize("options", [{"binary": True}, {"binary": False}, {"region": "r"}])
    def test_a_request_over_http_bears_its_id(self, options: dict[str, Any]) -> None:
        """In its place it has the length of any other, and the rest is the plain request."""
        where = Endpoint(host="h", port=1, model="net", options=options)
        feed = {"x": np.arange(3, dtype="int32")}
        (plain,) = kserve_http.target([feed], where).messages
        target = kserve_http.numbered_target([feed], where)
        (message,), (at,) = target.messages, target.marks
        mark = request_id(self.SENT)
        body, raw = split(message[:at] + mark + message[at + len(mark) :])

        expected, expected_raw = split(plain)
        assert target.numbered
        assert body == {**expected, "id": f"{self.SENT:020}"}
        assert raw == expected_raw

    def test_a_request_over_grpc_bears_its_id(self) -> None:
        """As google.protobuf reads it."""
        pytest.importorskip("google.protobuf")
        target = kserve_grpc.numbered_target([{"x": np.arange(3, dtype="int32")}], NET)
        (message,), (at,) = target.messages, target.marks
        mark = request_id(self.SENT)
        whole = message[:at] + mark + message[at + len(mark) :]
        request = schemas("kserve")["inference.ModelInferRequest"].FromString(whole)

        assert target.numbered
        assert int(request.id) == self.SENT
        assert request.inputs[0].name == "x"


class TestSharedMemory:
    FEEDS: ClassVar[list[Feed]] = [
        {"x": np.arange(2, dtype="int32"), "y": np.array(["ab"], object)},
        {"x": np.arange(2, 4, dtype="int32"), "y": np.array(["c"], object)},
    ]
    SHARED = replace(NET, options={"region": "r"})

    def test_a_region_has_all_inputs_of_all_payloads(self) -> None:
        """One after the other, each as the raw bytes that would be sent."""
        assert kserve_http.memory_content(self.FEEDS) == kserve_grpc.memory_content(self.FEEDS)
        assert kserve_http.memory_content(self.FEEDS) == (
            b"\0\0\0\0\1\0\0\0\2\0\0\0ab\2\0\0\0\3\0\0\0\1\0\0\0c"
        )

    def test_requests_say_where_their_inputs_lie(self) -> None:
        """By the region, the bytes from its beginning, and how many."""
        _, message = kserve_http.target(self.FEEDS, self.SHARED).messages
        body, raw = split(message)

        assert raw == b""
        assert [entry["parameters"] for entry in body["inputs"]] == [
            {"shared_memory_region": "r", "shared_memory_byte_size": 8, "shared_memory_offset": 14},
            {"shared_memory_region": "r", "shared_memory_byte_size": 5, "shared_memory_offset": 22},
        ]

    def test_grpc_says_the_same(self) -> None:
        """As google.protobuf reads it; there are no raw inputs."""
        pytest.importorskip("google.protobuf")
        first, second = kserve_grpc.target(self.FEEDS, self.SHARED).messages
        read = schemas("kserve")["inference.ModelInferRequest"].FromString
        x = read(second).inputs[0].parameters

        assert not read(second).raw_input_contents
        assert x["shared_memory_region"].string_param == "r"
        assert (x["shared_memory_offset"].int64_param, x["shared_memory_byte_size"].int64_param) == (14, 8)
        assert "shared_memory_offset" not in read(first).inputs[0].parameters

    BOTH = replace(SHARED, options={"region": "r", "output_region": "o", "output_sizes": '{"a": 8, "b": 4}'})

    def test_requests_say_where_their_outputs_go(self) -> None:
        """Each message has a place of its own for each output, by both protocols."""
        _, message = kserve_http.target(self.FEEDS, self.BOTH).messages
        body, _ = split(message)
        places = {"a": (12, 8), "b": (20, 4)}

        assert kserve.output_places(self.BOTH, 1) == places
        assert kserve.output_places(self.SHARED, 1) == {}
        assert "parameters" not in body
        assert {
            each["name"]: (
                each["parameters"]["shared_memory_offset"],
                each["parameters"]["shared_memory_byte_size"],
            )
            for each in body["outputs"]
        } == places
        assert {each["parameters"]["shared_memory_region"] for each in body["outputs"]} == {"o"}
        pytest.importorskip("google.protobuf")
        _, second = kserve_grpc.target(self.FEEDS, self.BOTH).messages
        read = schemas("kserve")["inference.ModelInferRequest"].FromString(second)
        assert {
            each.name: tuple(
                each.parameters[f"shared_memory_{key}"].int64_param for key in ("offset", "byte_size")
            )
            for each in read.outputs
        } == places

    def test_outputs_are_read_from_their_place(self) -> None:
        """As the reply gives type and shape, by both protocols; what does not fit is told."""
        memory = memoryview(
            bytes(12) + np.array([5, 6], "int32").tobytes() + np.array([7], "int32").tobytes()
        )
        described = [
            {"name": "a", "datatype": "INT32", "shape": [2]},
            {"name": "b", "datatype": "INT32", "shape": [1]},
        ]
        body = json.dumps({"outputs": described}).encode()
        answers = {
            kserve_http: replace(reply(body), message=1),
            kserve_grpc: replace(
                reply(protobuf.encode(kserve_grpc.RESPONSE, {"outputs": described}), 0), message=1
            ),
        }
        for client, answer in answers.items():
            arrays = client.memory_arrays(answer, self.BOTH, memory)
            assert {name: array.tolist() for name, array in arrays.items()} == {"a": [5, 6], "b": [7]}
        for change, why in (
            ({"name": "c"}, "output 'c' was not asked for in shared memory"),
            ({"shape": [3]}, "output 'a' has 12 bytes, but only 8 were set aside"),
            ({"datatype": "BYTES"}, "output 'a' is text"),
            ({"shape": None}, "an output lacks name, datatype or shape"),
        ):
            body = json.dumps({"outputs": [described[0] | change]}).encode()
            with pytest.raises(ValueError, match=why):
                kserve_http.memory_arrays(reply(body), self.BOTH, memory)

    def test_a_region_is_registered_and_unregistered(self) -> None:
        """By Triton's extension of the protocol; an error is told."""
        (register,) = kserve_http.register_memory(NET, "r", "/key", 9).messages
        (unregister,) = kserve_http.unregister_memory(NET, "r").messages

        assert register.startswith(b"POST /v2/systemsharedmemory/region/r/register HTTP/1.1\r\n")
        assert split(register)[0] == {"key": "/key", "offset": 0, "byte_size": 9}
        assert unregister.startswith(b"POST /v2/systemsharedmemory/region/r/unregister HTTP/1.1\r\n")
        assert kserve_grpc.register_memory(NET, "r", "/key", 9).method.endswith("SystemSharedMemoryRegister")
        with pytest.raises(ValueError, match="answered 400: no such key"):
            kserve_http.check_memory(reply(b'{"error": "no such key"}', 400))
        with pytest.raises(ValueError, match="gRPC status 3"):
            kserve_grpc.check_memory(reply(b"", 3))


@pytest.mark.parametrize("name", COMPRESSIONS)
class TestCompression:
    def test_a_body_is_compressed_and_the_head_says_so(self, name: str) -> None:
        """The length of the JSON stays that of the plain one, as Triton reads it."""
        feed = {"x": np.zeros((64, 64))}
        (plain,) = kserve_http.target([feed], NET).messages
        (message,) = kserve_http.target([feed], replace(NET, options={"compression": name})).messages
        head, _, body = message.partition(b"\r\n\r\n")
        plain_head, _, plain_body = plain.partition(b"\r\n\r\n")

        assert decompress(body) == plain_body
        assert f"Content-Encoding: {name}".encode() in head
        assert f"Content-Length: {len(body)}".encode() in head
        assert next(line for line in plain_head.split(b"\r\n") if line.startswith(JSON_LENGTH)) in head

    def test_a_compressed_answer_is_read(self, name: str) -> None:
        """As its head says."""
        plain = recorded("triton http binary")
        head = plain.head + f"\r\nContent-Encoding: {name}".encode()

        same(kserve_http.arrays(replace(plain, head=head, body=compress(plain.body, name))), every())

    def test_messages_of_grpc_are_compressed(self, name: str) -> None:
        """Each as a whole."""
        feed = {"x": np.zeros((64, 64))}
        target = kserve_grpc.target([feed], replace(NET, options={"compression": name}))

        assert target.compression == name
        assert decompress(target.messages[0]) == kserve_grpc.target([feed], NET).messages[0]

    @pytest.mark.parametrize("client", [kserve_http, kserve_grpc])
    def test_sequences_are_not_compressed(self, name: str, client: Any) -> None:
        """Their marks are written while the load runs."""
        with pytest.raises(RequestError, match="leave out compression"):
            client.sequence_target([{"x": np.zeros(1)}], replace(NET, options={"compression": name}))


def test_a_request_of_a_sequence_alone_is_whole() -> None:
    """The first call is a sequence of one request, as it is written."""
    (message,) = kserve_http.sequence_target([{"x": np.zeros(1)}], NET).messages
    parameters = split(message)[0]["parameters"]

    assert (parameters["sequence_start"], parameters["sequence_end"]) == (True, True)


class TestAnswers:
    @pytest.mark.parametrize("server", ["triton", "kserve"])
    def test_an_identity_by_raw_bytes(self, server: str) -> None:
        """Every dtype comes back over HTTP with the binary extension as it was sent."""
        same(kserve_http.arrays(recorded(f"{server} http binary")), every())

    @pytest.mark.parametrize("server", ["triton", "mlserver", "kserve"])
    def test_an_identity_by_json(self, server: str) -> None:
        """Every dtype comes back in JSON as it was sent, the largest of uint64 too."""
        sent = {short: array for short, array in every().items() if server == "mlserver" or short != "fp16"}
        same(kserve_http.arrays(recorded(f"{server} http json")), sent)

    @pytest.mark.parametrize("server", ["triton", "mlserver", "kserve"])
    def test_an_identity_by_grpc(self, server: str) -> None:
        """Every dtype comes back over gRPC as it was sent."""
        same(kserve_grpc.arrays(recorded(f"{server} grpc raw")), every())

    @pytest.mark.parametrize("code", [code for code in DTYPES if code != "float16"])
    def test_typed_contents_are_read(self, code: str) -> None:
        """A server that answers in typed contents, as google.protobuf writes them, is read as well."""
        pytest.importorskip("google.protobuf")
        array = given_to_triton()[code]
        message = schemas("kserve")["inference.ModelInferResponse"](model_name="net")
        output = message.outputs.add(name="y", datatype=kserve.DATATYPES[code], shape=[2, 3])
        field = {
            "bool": "bool_contents", "int64": "int64_contents", "uint64": "uint64_contents",
            "float32": "fp32_contents", "float64": "fp64_contents", "string": "bytes_contents",
        }.get(code, "uint_contents" if code.startswith("u") else "int_contents")  # fmt: skip
        flat = array.reshape(-1).tolist()
        getattr(output.contents, field).extend([t.encode() for t in flat] if code == "string" else flat)
        decoded = kserve_grpc.arrays(reply(message.SerializeToString(), 0))["y"]

        assert decoded.dtype == array.dtype
        assert np.array_equal(decoded, array)

    @settings(deadline=None)
    @given(
        st.sampled_from(LOSSLESS).flatmap(
            lambda code: hnp.arrays(code, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
        )
    )
    def test_numbers_round_trip(self, array: Any) -> None:
        """Whatever the shape and the numbers, NaN among them, raw bytes give the same array again."""
        name = kserve.datatype("x", array)
        decoded = kserve.from_bytes("x", kserve.to_bytes("x", array), name, array.shape)

        assert decoded.dtype == array.dtype
        assert np.array_equal(decoded, array, equal_nan=array.dtype.kind == "f")

    @given(st.lists(st.text(st.characters(codec="utf-8"))))
    def test_text_round_trips(self, texts: list[str]) -> None:
        """Text of any length, with any letters, comes back."""
        array = np.array([*texts, ""], object)[:-1]
        decoded = kserve.from_bytes("x", kserve.to_bytes("x", array), "BYTES", array.shape)

        assert decoded.tolist() == texts

    def test_bytes_that_are_no_text_stay_bytes(self) -> None:
        """Where an element is no UTF-8, all are given as bytes."""
        decoded = kserve.from_bytes("x", b"\x01\0\0\0\xff\x01\0\0\0a", "BYTES", [2])

        assert decoded.tolist() == [b"\xff", b"a"]

    @pytest.mark.parametrize(
        ("outputs", "message"),
        [
            ([], "no outputs"),
            (None, "no outputs"),
            ([{"name": "y"}], "lacks name, datatype, shape or data"),
            ([{"name": "y", "datatype": "FP32", "shape": [3], "data": [1, 2]}], "2 values.*shape is 3"),
            ([{"name": "y", "datatype": "FP31", "shape": [1], "data": [1]}], "'FP31'"),
            ([{"name": "y", "datatype": "INT8", "shape": [1], "data": [1.5]}], "other than int8"),
            ([{"name": "y", "datatype": "FP32", "shape": [1], "data": ["a"]}], "other than float32"),
            ([{"name": "y", "datatype": "FP32", "shape": [-1], "data": []}], "shape is -1"),
            (
                [{"name": "y", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4}}],
                "should have 4 bytes",
            ),
        ],
    )
    def test_malformed_answers(self, outputs: Any, message: str) -> None:
        """An answer without what it should have, or of another shape than it says, is told in a phrase."""
        with pytest.raises(ValueError, match=message):
            kserve_http.arrays(reply({"outputs": outputs}))

    def test_bytes_of_no_output(self) -> None:
        """Bytes that are left over are no part of an answer."""
        head = b'{"outputs":[{"name":"y","datatype":"INT8","shape":[1],"parameters":{"binary_data_size":1}}]}'
        answer = reply(head + b"\x01\x02", head=JSON_LENGTH + b": " + str(len(head)).encode())
        with pytest.raises(ValueError, match="1 bytes of the answer belong to no output"):
            kserve_http.arrays(answer)

    @pytest.mark.parametrize("length", [b"x", b"99999", b"-1"])
    def test_a_wrong_length_of_the_json(self, length: bytes) -> None:
        """A length that is none, or beyond the body, is told."""
        with pytest.raises(ValueError, match="Inference-Header-Content-Length"):
            kserve_http.arrays(reply(b"{}", head=b"inference-header-content-length: " + length))

    def test_the_servers_own_words_are_told(self) -> None:
        """What Triton says of a wrong shape is in the phrase."""
        with pytest.raises(ValueError, match=r"400.*Expected \[-1,4\], got \[2,3\]"):
            kserve_http.arrays(recorded("triton http wrong shape"))
        with pytest.raises(ValueError, match=r"gRPC status 5.*unknown model: 'nope'"):
            kserve_grpc.inputs(recorded("triton grpc unknown"), NET)


class TestServer:
    @pytest.mark.parametrize(
        ("who", "name", "binary"),
        [
            ("triton", "triton 2.51.0", True),
            ("mlserver", "mlserver 1.7.1", False),
            ("kserve", "kserve 0.21.0", False),
        ],
    )
    def test_it_is_recognised(self, who: str, name: str, binary: bool) -> None:
        """A server tells its name and version, and over HTTP whether it says that it takes raw bytes."""
        over_http = kserve_http.recognised(recorded(f"{who} http greeting"))

        assert over_http == ServerInfo(name=name, options={"binary": binary})
        assert kserve_grpc.recognised(recorded(f"{who} grpc greeting")) == ServerInfo(name=name)

    def test_the_models_of_a_server(self) -> None:
        """Each is named once, whatever its versions; what is no list of them names none."""
        index = [{"name": "b", "version": "1"}, {"name": "a"}, {"name": "b", "version": "2"}, {}]
        rows = {"models": [{"name": "b"}, {"name": "a"}, {"name": "b"}]}
        encoded = protobuf.encode(kserve_grpc.INDEX, rows)

        assert kserve_http.listed(reply(index)) == ("b", "a")
        assert kserve_http.listed(reply({"error": "no"})) == ()
        assert kserve_http.listed(reply([3])) == ()
        assert kserve_grpc.listed(Reply(message=0, status=0, head=b"", body=encoded)) == ("b", "a")
        assert kserve_grpc.listed(Reply(message=0, status=12, head=b"", body=b"")) == ()
        assert b"POST /v2/repository/index" in kserve_http.listing(NET).messages[0]
        assert kserve_grpc.listing(NET).method.endswith("/RepositoryIndex")

    @pytest.mark.parametrize("transport", ["http", "grpc"])
    def test_inputs_of_the_metadata(self, transport: str) -> None:
        """-1 in the first place is the batch; a model that declares nothing has no inputs."""
        client: Any = kserve_http if transport == "http" else kserve_grpc
        inputs = client.inputs(recorded(f"mlserver {transport} described"), NET)

        assert inputs == (InputSpec(name="x", shape=("batch", 4), dtype="float32"),)
        assert client.inputs(recorded(f"kserve {transport} described"), NET) == ()

    def test_free_dimensions_have_names(self) -> None:
        """Any other free dimension is named for its input and place."""
        metadata = {"name": "n", "inputs": [{"name": "ids", "datatype": "INT64", "shape": [-1, -1, 3]}]}
        (spec,) = kserve_http.inputs(reply(metadata), NET)

        assert spec.shape == ("batch", "ids_dim1", 3)

    @pytest.mark.parametrize("entry", [{}, {"name": "x"}, 7])
    def test_metadata_that_cannot_be_read(self, entry: Any) -> None:
        """An input without name, datatype or shape is told."""
        with pytest.raises(ValueError, match="lacks name, datatype or shape"):
            kserve_http.inputs(reply({"inputs": [entry]}), NET)

    def test_statistics_are_the_same_by_both_ways(self) -> None:
        """Triton's counters of a model, over HTTP and over gRPC, are the same Account."""
        counters = kserve_http.account(recorded("triton http statistics"), NET)

        assert counters == kserve_grpc.account(recorded("triton grpc statistics"), NET)
        assert isinstance(counters, ServerCounters)
        assert counters.requests == 4
        assert counters.samples == 8
        assert counters.batches == {2: 4}
        assert counters.compute is not None
        assert counters.compute > 0

    def test_statistics_that_are_none(self) -> None:
        """A server without statistics answers with something else."""
        with pytest.raises(ValueError, match="404"):
            kserve_http.account(recorded("mlserver http unknown"), NET)
        with pytest.raises(ValueError, match="no statistics"):
            kserve_http.account(reply({"model_stats": [{"name": "x"}]}), NET)
