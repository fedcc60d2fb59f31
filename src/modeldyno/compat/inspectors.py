"""Clients written by users: subclass `BaseModelInspector`, define how to send a request, and measure it.

Data passes four stages, which are timed separately: batch formation, preprocessing, inference (`infer`, the
only one that counts as latency), and postprocessing of the answer.
"""

from __future__ import annotations

import inspect
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from modeldyno.base import plugins
from modeldyno.base.clock import perf_counter
from modeldyno.base.errors import RequestError
from modeldyno.engine.environment.listening import is_here
from modeldyno.engine.environment.running_servers import running_at
from modeldyno.serving.loadgen.single_request import send_once

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy import ndarray

    from modeldyno.engine.interfaces.request_target import Endpoint, Target

STAGES = ("batch_formation", "preprocess", "inference", "postprocess")
_MOST_AT_ONCE = 64
"""Maximum concurrency of an asynchronous inspector."""
_MOST_TIMED_BATCHES = 32
"""Maximum number of batches whose preparation is timed."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A batch that is ready to be sent."""

    sent: Any
    """What `infer` gets."""
    request: Any
    """What `make_request` set as `request`."""


class BaseModelInspector(ABC):
    """Sends batches of one data item to a server; only `infer` must be defined by subclasses.

    Since every batch has the same item, a server may answer from a cache; the Result has a doubt about it. To
    avoid that, override `data_preprocess` to return different data each time.
    """

    def __init__(
        self,
        repeat_data: Any,
        batch_num: int = 1,
        batch_size: int = 1,
        asynchronous: bool | None = None,
        sla: float = 1.0,
        percentile: float = 95,
        model_info: Any = None,
    ) -> None:
        """Store the data; nothing is sent yet.

        Args:
            repeat_data: one raw data item, which every batch repeats.
            batch_num: batches to measure after the warm-up, whose end is detected.
            batch_size: items in a batch.
            asynchronous: send up to `batch_num` batches concurrently, at most 64, rather than one by one.
            sla: seconds within which requests must be answered.
            percentile: percentage of the requests that must be answered within `sla`.
            model_info: information about the model, such as its name.

        Raises:
            RequestError: a number is out of range.
        """
        if batch_num < 1 or batch_size < 1:
            raise RequestError(f"batch_num={batch_num} and batch_size={batch_size} must be at least 1.")
        if not sla > 0 or not 0 < percentile < 100:
            raise RequestError(
                f"sla={sla} must be seconds above 0, and percentile={percentile} between 0 and 100."
            )
        self.raw_data = repeat_data
        self.batch_num = batch_num
        self.batch_size = batch_size
        self.asynchronous = bool(asynchronous)
        self.sla = sla
        self.percentile = percentile
        self.model_info = model_info
        self.processed_data: Any = None
        """One item, as returned by `data_preprocess`."""
        self.server_pid: int | None = None
        """Process of the server, if it runs on this machine and `Profiler` knows which it is."""
        self._current = threading.local()
        self._requests: list[_Prepared] = []
        self._stages: dict[str, list[float]] = {}

    def data_preprocess(self, x: Any) -> Any:
        """Convert a raw item to an item of a batch; by default unchanged.

        A subclass may also take no argument, read `raw_data`, and set `processed_data`.
        """
        return x

    @property
    def request(self) -> Any:
        """What `make_request` set for the batch that this thread sends now; None if it set nothing."""
        return getattr(self._current, "request", None)

    @request.setter
    def request(self, request: Any) -> None:
        self._current.request = request

    def make_request(self, input_batch: list[Any]) -> Any:
        """Convert a batch to the request that `infer` sends; not timed.

        None means that `infer` gets the batch itself, and finds in `request` what was set there.
        """
        return input_batch

    @abstractmethod
    def infer(self, input_batch: Any) -> Any:
        """Send the request of `make_request` and return the answer; may be called by several threads."""

    def data_postprocess(self, output: Any) -> Any:
        """Convert an answer to the output for the user; by default unchanged."""
        return output

    def check_model_status(self) -> bool:
        """Return whether the server has the model ready; called before sending until it returns True."""
        return True

    def set_batch_size(self, batch_size: int) -> None:
        """Change the batch size of further requests."""
        if batch_size < 1:
            raise RequestError(f"batch_size={batch_size} must be at least 1.")
        self.batch_size = batch_size
        self._requests = []

    # -- used by the backend `inspector` --------------------------------------------------------

    def __call__(self) -> Any:
        """Send one request, like a callable model."""
        return self.calls()[0]()

    def calls(self) -> Sequence[Callable[[], Any]]:
        """Return one callable per prepared batch, which sends its request."""
        if not self._requests:
            self._prepare()
        return [self._make_call(request) for request in self._requests]

    @property
    def concurrency(self) -> int:
        """Number of concurrent requests."""
        return min(self.batch_num, _MOST_AT_ONCE) if self.asynchronous else 1

    def stages(self) -> dict[str, list[float]]:
        """Return the seconds of each stage except inference, for each timed batch.

        It sends a few more requests to time postprocessing; failed requests are skipped, and if all fail the
        stage has no times. Errors raised by `data_postprocess` propagate.
        """
        after = []
        for call in self.calls():
            try:
                answer = call()
            except Exception:  # noqa: BLE001, S112 - any error of the client; the load already counts failures
                continue
            begin = perf_counter()
            self.data_postprocess(answer)
            after.append(perf_counter() - begin)
        return {**self._stages, "postprocess": after}

    def _make_call(self, prepared: _Prepared) -> Callable[[], Any]:
        def call() -> Any:
            self._current.request = prepared.request
            return self.infer(prepared.sent)

        return call

    def _prepare(self) -> None:
        """Form and preprocess the batches that are sent repeatedly, and build their requests."""
        formation: list[float] = []
        preprocess: list[float] = []
        for _ in range(min(self.batch_num, _MOST_TIMED_BATCHES)):
            start = perf_counter()
            item = self._preprocess_item()
            preprocessed_at = perf_counter()
            batch = [item] * self.batch_size
            formation.append(perf_counter() - preprocessed_at)
            preprocess.append(preprocessed_at - start)
            self.request = None
            made = self.make_request(batch)
            self._requests.append(_Prepared(batch if made is None else made, self.request))
        self._stages = {"batch_formation": formation, "preprocess": preprocess}

    def _preprocess_item(self) -> Any:
        """Preprocess an item; a subclass takes it as an argument, or reads it from `raw_data`."""
        if inspect.signature(self.data_preprocess).parameters:
            item = self.data_preprocess(self.raw_data)
        else:
            item = self.data_preprocess()  # type: ignore[call-arg]  # as the subclass wrote it
        if item is None:
            item = self.processed_data if self.processed_data is not None else self.raw_data
        self.processed_data = item
        return item


class ServerInspector(BaseModelInspector):
    """Sends arrays to a model on a server, with one of the protocols of `modeldyno plugins`.

    The data item is one sample, without the batch axis: an array, or a mapping from input names to arrays.
    None sends random values of the shapes that the server declares.
    """

    protocol = ""
    """Name of the client, such as ``"kserve-http"``."""

    def __init__(
        self,
        repeat_data: Any = None,
        batch_num: int = 1,
        batch_size: int = 1,
        *more: Any,
        endpoint: Endpoint | None = None,
        **named: Any,
    ) -> None:
        """Store the data and the endpoint; without `endpoint`, `Profiler` sets it.

        Args:
            repeat_data: an array, or a mapping from input names to arrays.
            batch_num: batches to measure.
            batch_size: items in a batch.
            more: the further parameters of `BaseModelInspector`.
            endpoint: host, port and model.
            named: the same by name.
        """
        super().__init__(repeat_data, batch_num, batch_size, *more, **named)
        self.endpoint = endpoint
        self.refused = ""
        """The server's last answer that the model is not ready."""

    def make_request(self, input_batch: list[Any]) -> Target:
        """Stack the items along a new first axis, and build the request."""
        items = [item if isinstance(item, dict) else {self.input_name(): item} for item in input_batch]
        feed = {name: _stacked([item[name] for item in items]) for name in items[0]}
        return plugins.client(self.protocol).target([feed], self._endpoint())

    def infer(self, input_batch: Target) -> dict[str, ndarray]:
        """Send a request, and decode the answer."""
        return plugins.client(self.protocol).arrays(send_once(input_batch))

    def stages(self) -> dict[str, list[float]]:
        """Return the seconds of the stages; without data nothing is prepared here."""
        return {} if self.raw_data is None else super().stages()

    def check_model_status(self) -> bool:
        """Ask the server for the model's status; a protocol without a status request counts as ready.

        A server that does not support the status request is sent an inference request: the model is ready if
        it is answered.
        """
        client = plugins.client(self.protocol)
        question = client.described(self._endpoint()) or client.greeting(self._endpoint())
        if question is None:
            return True
        self.refused = ""
        try:
            status = send_once(question, timeout=_STATUS_TIMEOUT).status
            ready = status in _SUCCESS or (status in _NOT_FOUND and self._answers_request())
        except OSError:
            return False
        if not ready:
            self.refused = f"the server answered {status} for it: check the name, and whether it is loaded."
        return ready

    def _answers_request(self) -> bool:
        """Return whether the model answers a request; without data there is none to send."""
        if self.raw_data is None:
            return False
        try:
            request = self.make_request([self._preprocess_item()] * self.batch_size)
        except ValueError:  # the server describes no model inputs
            return False
        return send_once(request, timeout=_STATUS_TIMEOUT).status in _SUCCESS

    def input_name(self) -> str:
        """Return the server's name of the only input."""
        client, endpoint = plugins.client(self.protocol), self._endpoint()
        question = client.described(endpoint)
        declared = client.inputs(None if question is None else send_once(question), endpoint)
        if declared:
            return declared[0].name
        return next((text.partition("=")[0] for text in self.known_inputs()), "input")

    def known_inputs(self) -> tuple[str, ...]:
        """Return what a server takes that `serve` has started, if it does not describe that itself."""
        endpoint = self._endpoint()
        server = running_at(endpoint.port) if is_here(endpoint.host) else None
        return () if server is None else server.inputs

    def _endpoint(self) -> Endpoint:
        if self.endpoint is None:
            raise RequestError(f"{type(self).__name__} has no endpoint to send to; give endpoint=.")
        return self.endpoint


_SUCCESS = frozenset({0, 200})
"""gRPC and HTTP statuses of success."""
_NOT_FOUND = frozenset({12, 404, 405, 501})
"""gRPC and HTTP statuses for an unknown model or an unsupported status request."""
_STATUS_TIMEOUT = 5.0
"""Timeout of the status request in seconds."""


class TritonInspector(ServerInspector):
    """For Triton, MLServer and other servers of the Open Inference Protocol, over HTTP."""

    protocol = "kserve-http"


class TritonGrpcInspector(ServerInspector):
    """For Triton and other servers of the Open Inference Protocol, over gRPC."""

    protocol = "kserve-grpc"


class TorchServeInspector(ServerInspector):
    """For TorchServe."""

    protocol = "torchserve"


class TensorFlowInspector(ServerInspector):
    """For TensorFlow Serving over HTTP."""

    protocol = "tensorflow-http"


class TensorFlowGrpcInspector(ServerInspector):
    """For TensorFlow Serving over gRPC."""

    protocol = "tensorflow-grpc"


class OpenAIInspector(ServerInspector):
    """For servers with OpenAI's completions API; the data item is the prompt."""

    protocol = "openai"

    def input_name(self) -> str:
        """Return the name of the prompt."""
        return "prompt"


CVTorchClient = TorchServeInspector
CVTFSClient = TensorFlowInspector
CVONNXClient = CVTRTClient = TritonInspector
"""The names that ModelCI gives these clients."""


def _stacked(items: list[Any]) -> ndarray:
    import numpy as np  # slow at start-up

    return np.stack([np.asarray(item) for item in items])


ENGINES: dict[str, tuple[type[ServerInspector], str]] = {
    "tfs": (TensorFlowInspector, "tfs"),
    "tensorflow": (TensorFlowInspector, "tfs"),
    "torchscript": (TorchServeInspector, "torchscript"),
    "pytorch": (TorchServeInspector, "torchscript"),
    "torchserve": (TorchServeInspector, "torchscript"),
    "onnx": (TritonInspector, "onnx"),
    "trt": (TritonInspector, "trt"),
    "triton": (TritonInspector, "trt"),
    "mlserver": (TritonInspector, "onnx"),
    "openai": (OpenAIInspector, "onnx"),
}
"""Serving engine in lower case to its inspector and its row in the table of conventional ports."""
