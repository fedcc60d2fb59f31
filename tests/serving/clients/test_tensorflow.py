"""TensorFlow Serving's protocols against real schemas, a server with a SavedModel, and KServe's version 1."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
from tests.zoo.protocols import recorded, reply, schemas

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.engine.interfaces.request_target import Endpoint, ServerInfo
from modeldyno.serving.clients import tensorflow, tensorflow_grpc, tensorflow_http
from modeldyno.testing.clients import ClientSuite

if TYPE_CHECKING:
    from modeldyno.models.interface import Feed

NET = Endpoint(host="h", port=8500, model="net", version="3")
TWO = {"x": np.arange(4, dtype="float32").reshape(2, 2), "t": np.array(["a", b"\xff"], object)}
METADATA = {
    "model_spec": {"name": "net", "signature_name": "", "version": "1"},
    "metadata": {
        "signature_def": {
            "signature_def": {
                "serving_default": {
                    "inputs": {
                        "x": {
                            "dtype": "DT_FLOAT",
                            "tensor_shape": {
                                "dim": [{"size": "-1", "name": ""}, {"size": "4", "name": ""}],
                                "unknown_rank": False,
                            },
                            "name": "serving_default_x:0",
                        },
                        "any": {"dtype": "DT_STRING", "tensor_shape": {"dim": [], "unknown_rank": True}},
                    },
                    "outputs": {},
                    "method_name": "tensorflow/serving/predict",
                },
                "second": {"inputs": {}},
            }
        }
    },
}
"""As TensorFlow Serving's documentation shows it."""


class TestHttp(ClientSuite):
    name = "tensorflow-http"
    answer = recorded("kserve v1 row")
    description = reply(METADATA)

    def feed(self, seed: int) -> Feed:
        """A payload."""
        return {
            "x": np.random.default_rng(seed).random((2, 4), dtype="float32"),
            "t": np.array(["a", "b"], object),
        }


class TestHttpColumnar(TestHttp):
    answer = recorded("kserve v1 columnar")
    options: ClassVar = {"format": "columnar", "signature": "serving_default"}


class TestGrpc(ClientSuite):
    name = "tensorflow-grpc"
    answer = recorded("tensorflow grpc predict")
    description = recorded("tensorflow grpc described")

    def feed(self, seed: int) -> Feed:
        """A payload."""
        return {
            "x": np.random.default_rng(seed).random((2, 4), dtype="float32"),
            "t": np.array(["a", "b"], object),
        }


def body(feed: Feed, **options: Any) -> Any:
    """Give the JSON of a request."""
    (message,) = tensorflow_http.target(
        [feed], Endpoint(host="h", port=1, model="net", options=options)
    ).messages
    return json.loads(message.partition(b"\r\n\r\n")[2])


class TestRest:
    def test_rows(self) -> None:
        """Several inputs go as an object for each instance; bytes that are no text in base64."""
        assert body(TWO) == {
            "instances": [{"x": [0.0, 1.0], "t": "a"}, {"x": [2.0, 3.0], "t": {"b64": "/w=="}}]
        }

    def test_the_only_input_needs_no_name(self) -> None:
        """A single input goes as the values themselves, in rows and in columns."""
        assert body({"x": TWO["x"]}) == {"instances": [[0.0, 1.0], [2.0, 3.0]]}
        assert body({"x": TWO["x"]}, format="columnar") == {"inputs": [[0.0, 1.0], [2.0, 3.0]]}

    def test_columns_and_signature(self) -> None:
        """In columns each input goes whole; another signature is named."""
        request = body(TWO, format="columnar", signature="second")

        assert request["signature_name"] == "second"
        assert request["inputs"]["x"] == [[0.0, 1.0], [2.0, 3.0]]

    def test_the_path_tells_model_and_version(self) -> None:
        """Predict is asked of a version of the model."""
        (message,) = tensorflow_http.target([TWO], NET).messages

        assert message.startswith(b"POST /v1/models/net/versions/3:predict HTTP/1.1\r\n")

    def test_rows_need_a_common_batch(self) -> None:
        """Inputs without a common first axis cannot go in rows, and the sentence says what can be done."""
        with pytest.raises(RequestError, match=r"x 2x2, s 3.*format=columnar"):
            body({"x": TWO["x"], "s": np.zeros(3)})
        with pytest.raises(RequestError, match="format=columnar"):
            body({"s": np.array(1.0)})

    def test_an_unknown_format(self) -> None:
        """A format that is none gets a suggestion."""
        with pytest.raises(UnknownName, match="did you mean 'row'"):
            body(TWO, format="rows")

    @pytest.mark.parametrize(
        ("answer", "outputs"),
        [
            ({"predictions": [[1, 2], [3, 4]]}, {"output": [[1, 2], [3, 4]]}),
            ({"predictions": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]}, {"a": [1, 2], "b": ["x", "y"]}),
            ({"predictions": [{"b64": "/w=="}]}, {"output": [b"\xff"]}),
            ({"outputs": [[1.5]]}, {"output": [[1.5]]}),
            ({"outputs": {"a": [1], "b": [{"b64": "YQ=="}]}}, {"a": [1], "b": [b"a"]}),
        ],
    )
    def test_answers(self, answer: Any, outputs: Any) -> None:
        """Rows and columns, with and without names, are read alike."""
        arrays = {name: array.tolist() for name, array in tensorflow_http.arrays(reply(answer)).items()}

        assert arrays == outputs

    @pytest.mark.parametrize(
        ("answer", "phrase"),
        [
            ({"error": "Servable not found"}, "Servable not found"),
            ({"predictions": []}, "no predictions"),
            ({"predictions": [{"a": 1}, {"b": 2}]}, "different outputs"),
            ({"predictions": [[1], [1, 2]]}, "other than numbers in rows"),
            ({"predictions": [{"b64": "*"}]}, "not base64"),
            ({}, "neither predictions nor outputs"),
            ([], "not a JSON object"),
        ],
    )
    def test_malformed_answers(self, answer: Any, phrase: str) -> None:
        """What is no prediction is told in a phrase."""
        with pytest.raises(ValueError, match=phrase):
            tensorflow_http.arrays(reply(answer))

    def test_real_answers_of_kserve(self) -> None:
        """An identity model of KServe gives back rows and columns."""
        for form in ("row", "columnar"):
            arrays = tensorflow_http.arrays(recorded(f"kserve v1 {form}"))
            assert arrays["x"].tolist() == [[1, 2, 3, 4], [0.5, 0, 0, -1]]
            assert arrays["t"].tolist() == ["a", "b"]


class TestDescription:
    def test_inputs_of_a_signature(self) -> None:
        """The default signature's inputs are read; an unknown rank leaves the shape open."""
        assert tensorflow_http.inputs(reply(METADATA), NET) == (
            InputSpec(name="any", dtype="string"),
            InputSpec(name="x", shape=("batch", 4), dtype="float32"),
        )

    def test_inputs_of_a_saved_model(self) -> None:
        """The metadata of a real SavedModel over gRPC gives its inputs, each with its dtype."""
        specs = tensorflow_grpc.inputs(recorded("tensorflow grpc described"), NET)

        assert {spec.name: (spec.dtype, spec.shape) for spec in specs} == {
            "b": ("bfloat16", ("batch", 2)),
            "h": ("float16", ("batch", 2)),
            "n": ("int64", ("batch", 2)),
            "t": ("string", ("batch",)),
            "x": ("float32", ("batch", 4)),
        }

    @pytest.mark.parametrize("where", ["http", "grpc"])
    def test_an_unknown_signature(self, where: str) -> None:
        """A signature that the model has not is told with those that it has."""
        named = Endpoint(host="h", port=1, model="net", options={"signature": "third"})
        client, described = {
            "http": (tensorflow_http, reply(METADATA)),
            "grpc": (tensorflow_grpc, recorded("tensorflow grpc described")),
        }[where]
        with pytest.raises(ValueError, match=r"no signature 'third'; it has: .*serving_default"):
            client.inputs(described, named)

    def test_kserve_tells_no_inputs(self) -> None:
        """KServe has no description, which is no error."""
        assert tensorflow_http.inputs(recorded("kserve v1 described"), NET) == ()
        with pytest.raises(ValueError, match="Servable not found"):
            tensorflow_http.inputs(reply({"error": "Servable not found for request: Latest(net)"}, 404), NET)

    def test_dtypes_that_cannot_be_made(self) -> None:
        """An input of a dtype that nobody can feed is told."""
        info = {"inputs": {"x": {"dtype": "DT_VARIANT", "tensor_shape": {}}}}
        with pytest.raises(ValueError, match="DT_VARIANT"):
            tensorflow.signature_inputs({"serving_default": info}, "")

    def test_servers_are_recognised(self) -> None:
        """TensorFlow Serving, KServe, and a server that lacks the model are recognised."""
        ready = {"model_version_status": [{"version": "1", "state": "AVAILABLE"}]}
        unknown = reply({"error": "Could not find any versions of model net"}, 404)

        assert tensorflow_http.recognised(reply(ready)) == ServerInfo(name="tensorflow serving")
        assert tensorflow_http.recognised(unknown) == ServerInfo(name="tensorflow serving")
        assert tensorflow_http.recognised(recorded("kserve v1 greeting")) == ServerInfo(name="kserve")
        assert tensorflow_grpc.recognised(recorded("tensorflow grpc described")) is not None
        assert tensorflow_grpc.recognised(recorded("tensorflow grpc unknown")) is not None
        assert tensorflow_grpc.recognised(recorded("triton grpc unknown")) is None

    def test_without_a_model_there_is_no_greeting(self) -> None:
        """These servers can be asked of a model only."""
        nobody = Endpoint(host="h", port=1)

        assert tensorflow_http.greeting(nobody) is None
        assert tensorflow_grpc.greeting(nobody) is None


class TestPredict:
    def test_a_request_is_what_google_reads(self) -> None:
        """A request is read by google.protobuf, over the real schema, as the tensors that were given."""
        pytest.importorskip("google.protobuf")
        (message,) = tensorflow_grpc.target([TWO], NET).messages
        request = schemas("tensorflow")["tensorflow.serving.PredictRequest"].FromString(message)

        assert (request.model_spec.name, request.model_spec.version.value) == ("net", 3)
        assert request.inputs["x"].tensor_content == TWO["x"].tobytes()
        assert [dim.size for dim in request.inputs["x"].tensor_shape.dim] == [2, 2]
        assert list(request.inputs["t"].string_val) == [b"a", b"\xff"]

    def test_outputs_of_a_saved_model(self) -> None:
        """A real model's outputs are read, whichever field they lie in; bfloat16 as float32."""
        arrays = tensorflow_grpc.arrays(recorded("tensorflow grpc predict"))

        assert arrays["y"].tolist() == [[10.0], [-0.5]]
        assert arrays["n"].tolist() == [[2, -4], [6, 8]]
        assert arrays["t"].tolist() == ["A", "ZWO"]
        assert (arrays["h"].dtype.name, arrays["h"].tolist()) == ("float16", [[0.5, -2.0], [3.0, 4.0]])
        assert (arrays["b"].dtype.name, arrays["b"].tolist()) == ("float32", [[0.5, -2.0], [3.0, 4.0]])

    @pytest.mark.parametrize(
        "dtype", [d for d in tensorflow.DTYPES if d not in {"string", "bfloat16", "float16"}]
    )
    def test_typed_values_of_each_dtype(self, dtype: str) -> None:
        """Typed values as google.protobuf writes them are read; the last stands for all that are missing."""
        pytest.importorskip("google.protobuf")
        field = {
            "float32": "float_val", "float64": "double_val", "int64": "int64_val", "bool": "bool_val",
            "uint32": "uint32_val", "uint64": "uint64_val",
        }.get(dtype, "int_val")  # fmt: skip
        message = schemas("tensorflow")["tensorflow.serving.PredictResponse"]()
        tensor = message.outputs["y"]
        tensor.dtype = tensorflow.DTYPES[dtype][1]
        tensor.tensor_shape.dim.add(size=3)
        getattr(tensor, field).extend([0, 1])
        output = tensorflow_grpc.arrays(reply(message.SerializeToString(), 0))["y"]

        assert output.dtype == dtype
        assert output.tolist() == [0, 1, 1]

    def test_a_shape_that_is_out_of_all_proportion(self) -> None:
        """One value is not repeated for a shape that no memory holds."""
        pytest.importorskip("google.protobuf")
        message = schemas("tensorflow")["tensorflow.serving.PredictResponse"]()
        tensor = message.outputs["y"]
        tensor.dtype = 1
        tensor.tensor_shape.dim.add(size=2**40)
        tensor.float_val.append(1.0)
        with pytest.raises(ValueError, match="1 values, but its shape is 1099511627776"):
            tensorflow_grpc.arrays(reply(message.SerializeToString(), 0))

    def test_no_outputs_and_unknown_dtypes(self) -> None:
        """An answer without outputs, or of a dtype without numbers, is told."""
        pytest.importorskip("google.protobuf")
        made = schemas("tensorflow")["tensorflow.serving.PredictResponse"]
        message = made()
        message.outputs["y"].dtype = 20
        for wrong, phrase in ((made(), "no outputs"), (message, "dtype number 20")):
            with pytest.raises(ValueError, match=phrase):
                tensorflow_grpc.arrays(reply(wrong.SerializeToString(), 0))

    def test_a_version_has_to_be_a_number(self) -> None:
        """Versions of this server are numbers."""
        with pytest.raises(RequestError, match="versions are numbers"):
            tensorflow_grpc.described(Endpoint(host="h", port=1, model="net", version="best"))
