"""Clients that a user writes: subclass `BaseModelInspector`, say how to send a request, and have it measured.

Data goes through four stages, each of which is timed by itself: batches are formed, preprocessed, sent
(`infer`, the only one that counts as latency), and what comes back is postprocessed.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from time import perf_counter
from typing import TYPE_CHECKING, Any

from modeldyno import plugins
from modeldyno.errors import RequestError
from modeldyno.loadgen.single_request import once

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy import ndarray

    from modeldyno.core.load.request_target import Endpoint, Target

STAGES = ("batch_formation", "preprocess", "inference", "postprocess")
_MOST_AT_ONCE = 64
"""Requests at once of an asynchronous inspector, however many batches there are."""
_STAGED = 32
"""Batches whose preparation is timed, at most."""


class BaseModelInspector(ABC):
    """Sends batches of one data item to a server; `infer` must be written, the other steps may be.

    The same item in every batch may be answered from a cache, of which the Result says so; a subclass that
    overrides `data_preprocess` to give something else each time avoids that.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the parameters of the class that people know
        self,
        repeat_data: Any,
        batch_num: int = 1,
        batch_size: int = 1,
        asynchronous: bool | None = None,
        sla: float = 1.0,
        percentile: float = 95,
        model_info: Any = None,
    ) -> None:
        """Take the data; nothing is sent yet.

        Args:
            repeat_data: one raw data item, of which every batch is made.
            batch_num: batches to measure, after a warm-up that ends by evidence.
            batch_size: items in a batch.
            asynchronous: send up to `batch_num` batches at once, at most 64, rather than one by one.
            sla: seconds within which the requests are to be answered.
            percentile: per cent of the requests that are to be answered so.
            model_info: what is known of the model, such as its name.

        Raises:
            RequestError: a number is out of its range.
        """
        if batch_num < 1 or batch_size < 1:
            raise RequestError(f"batch_num={batch_num} and batch_size={batch_size} must be at least 1.")
        if not sla > 0 or not 0 < percentile < 100:  # noqa: PLR2004 - per cent
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
        """One item, as `data_preprocess` left it."""
        self._requests: list[Any] = []
        self._stages: dict[str, list[float]] = {}

    def data_preprocess(self, x: Any) -> Any:
        """Turn a raw item into what goes into a batch; by default it is that already.

        A subclass may also take no argument, read `raw_data`, and set `processed_data`.
        """
        return x

    def make_request(self, input_batch: list[Any]) -> Any:
        """Turn a batch into what `infer` sends; not timed. None stands for the batch itself, the default."""
        return input_batch

    @abstractmethod
    def infer(self, input_batch: Any) -> Any:
        """Send what `make_request` made, and return the answer; may be called by several threads."""

    def data_postprocess(self, output: Any) -> Any:
        """Turn an answer into what a user wants; by default it is that already."""
        return output

    def check_model_status(self) -> bool:
        """Say whether the server has the model ready; asked until it has, before anything is sent."""
        return True

    def set_batch_size(self, batch_size: int) -> None:
        """Have other batches from now on."""
        if batch_size < 1:
            raise RequestError(f"batch_size={batch_size} must be at least 1.")
        self.batch_size = batch_size
        self._requests = []

    # -- what the backend `inspector` asks for --------------------------------------------------------

    def __call__(self) -> Any:
        """Send one request, as a callable model does."""
        return self.calls()[0]()

    def calls(self) -> Sequence[Callable[[], Any]]:
        """Give what sends a request each: as many distinct batches as are prepared."""
        if not self._requests:
            self._prepare()
        return [self._sending(request) for request in self._requests]

    @property
    def concurrency(self) -> int:
        """Requests at once."""
        return min(self.batch_num, _MOST_AT_ONCE) if self.asynchronous else 1

    def stages(self) -> dict[str, list[float]]:
        """Give the seconds that each stage but the inference took, of each batch that was looked at.

        The answers of a few more requests are postprocessed for it; one that fails is left out, and where all
        of them fail there are no times of this stage. What `data_postprocess` raises is the caller's to see.
        """
        after = []
        for call in self.calls():
            try:
                answer = call()
            except Exception:  # noqa: BLE001, S112 - whatever a client raises; the load has counted its like
                continue
            begin = perf_counter()
            self.data_postprocess(answer)
            after.append(perf_counter() - begin)
        return {**self._stages, "postprocess": after}

    def _sending(self, request: Any) -> Callable[[], Any]:
        return lambda: self.infer(request)

    def _prepare(self) -> None:
        """Form, preprocess and turn into requests the batches that are sent again and again."""
        formation: list[float] = []
        preprocess: list[float] = []
        for _ in range(min(self.batch_num, _STAGED)):
            begin = perf_counter()
            item = self._preprocessed()
            between = perf_counter()
            batch = [item] * self.batch_size
            formation.append(perf_counter() - between)
            preprocess.append(between - begin)
            request = self.make_request(batch)
            self._requests.append(batch if request is None else request)
        self._stages = {"batch_formation": formation, "preprocess": preprocess}

    def _preprocessed(self) -> Any:
        """Preprocess an item; a subclass may take it as an argument, or read it from `raw_data`."""
        if inspect.signature(self.data_preprocess).parameters:
            found = self.data_preprocess(self.raw_data)
        else:
            found = self.data_preprocess()  # type: ignore[call-arg]  # as the subclass wrote it
        if found is None:
            found = self.processed_data if self.processed_data is not None else self.raw_data
        self.processed_data = found
        return found


class ServerInspector(BaseModelInspector):
    """Sends arrays to a model on a server, by one of the protocols of `modeldyno plugins`.

    The data item is an array, or arrays by input name, of one sample: without the axis of the batch.
    """

    protocol = ""
    """Name of the client, such as ``"kserve-http"``."""

    def __init__(self, repeat_data: Any, endpoint: Endpoint | None = None, **more: Any) -> None:
        """Take the data and where to send it; without `endpoint`, `Profiler` says where.

        Args:
            repeat_data: an array, or a mapping from input names to arrays.
            endpoint: host, port and model.
            more: as for `BaseModelInspector`.
        """
        super().__init__(repeat_data, **more)
        self.endpoint = endpoint
        self.refused = ""
        """What the server said when it was last asked for the model and answered that it is not ready."""

    def make_request(self, input_batch: list[Any]) -> Target:
        """Stack the items along a first axis, and write the request."""
        items = [item if isinstance(item, dict) else {self.input_name(): item} for item in input_batch]
        feed = {name: _stacked([item[name] for item in items]) for name in items[0]}
        return plugins.client(self.protocol).target([feed], self._endpoint())

    def infer(self, input_batch: Target) -> dict[str, ndarray]:
        """Send it, and read the answer."""
        return plugins.client(self.protocol).arrays(once(input_batch))

    def check_model_status(self) -> bool:
        """Ask the server by its protocol; one that has no question for it is taken to be ready.

        A server that does not know the question is sent a request: the model is ready if it is answered.
        """
        client = plugins.client(self.protocol)
        question = client.described(self._endpoint()) or client.greeting(self._endpoint())
        if question is None:
            return True
        self.refused = ""
        try:
            status = once(question, timeout=_ASKED).status
            ready = status in _READY or (status in _NO_SUCH_PAGE and self._answered())
        except OSError:
            return False
        if not ready:
            self.refused = f"the server answered {status} for it: check the name, and whether it is loaded."
        return ready

    def _answered(self) -> bool:
        """Say whether the model answers a request."""
        try:
            request = self.make_request([self._preprocessed()] * self.batch_size)
        except ValueError:  # it says of no model what its inputs are
            return False
        return once(request, timeout=_ASKED).status in _READY

    def input_name(self) -> str:
        """Name the only input, as the server calls it."""
        client, endpoint = plugins.client(self.protocol), self._endpoint()
        question = client.described(endpoint)
        declared = client.inputs(None if question is None else once(question), endpoint)
        return declared[0].name if declared else "input"

    def _endpoint(self) -> Endpoint:
        if self.endpoint is None:
            raise RequestError(f"{type(self).__name__} does not know where to send to; give endpoint=.")
        return self.endpoint


_READY = frozenset({0, 200})
"""Status of gRPC and of HTTP that says that all is well."""
_NO_SUCH_PAGE = frozenset({12, 404, 405, 501})
"""Status of gRPC and of HTTP of what a server does not know, be it the question or the model."""
_ASKED = 5.0
"""Seconds that a server may take to say whether it is ready."""


class TritonInspector(ServerInspector):
    """For Triton, MLServer, and whatever else speaks the Open Inference Protocol over HTTP."""

    protocol = "kserve-http"


class TritonGrpcInspector(ServerInspector):
    """The same over gRPC."""

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
    """For servers that complete text as OpenAI's do; the data item is the prompt."""

    protocol = "openai"

    def input_name(self) -> str:
        """Name the text."""
        return "prompt"


def _stacked(items: list[Any]) -> ndarray:
    import numpy as np  # noqa: PLC0415 - dear at start-up

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
"""What serves, in lower case, to its inspector and to its place in the table of conventional ports."""
