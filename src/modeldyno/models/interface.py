"""What a loader gives: models, and how they are traced."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.model_ref import ModelIdentity, ModelRef
from modeldyno.base.job.static_options import Mode
from modeldyno.base.metrics.doubt import Doubt

if TYPE_CHECKING:
    from numpy import ndarray

    from modeldyno.models.static.graph import Graph
    from modeldyno.models.static.weights import Weight


Feed = dict[str, "ndarray"]


ExpectedOutputs = Mapping[str, tuple[list[Any] | bytes, ...]]
"""Output name to its flat values, or its bytes, for each sample of a payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStreams:
    """What a file of requests says beside the payloads."""

    lengths: tuple[int, ...]
    """Number of payloads of each stream, one after the other."""
    expected: tuple[ExpectedOutputs, ...] = ()
    """The answer to each payload; empty if not given."""
    shared: tuple[int, ...] = ()
    """Tokens with which each prompt is to begin as an earlier one does; empty: none is."""
    of_trace: bool = False
    """Whether they are the requests of a trace, each to be sent once, in this order."""


"""Input name to array; the first axis of each is the batch."""


class Executes(StrEnum):
    """Which code loading a model executes."""

    NOTHING = "nothing"
    """Data only; safe to read anywhere."""
    NAMED = "the code that the user names"
    """`torch:` and `call:` run the referenced code, in the child process."""
    PICKLE = "pickles"
    """Loading may run code from the file: only in the child process, only with `trust`."""


class Form:
    """The forms of a loaded model; a backend declares which it accepts."""

    ONNX = "onnx"
    """`value` is the Path of an ONNX file."""
    TORCH = "torch"
    """`value` is a torch.nn.Module or ScriptModule in eval mode."""
    CALLABLE = "callable"
    """`value` is a Python callable that takes the inputs by keyword, or by position where it must."""
    TENSORFLOW = "tensorflow"
    """`value` is a function that takes tensors of TensorFlow by keyword, and returns tensors."""
    TFLITE = "tflite"
    """`value` is the Path of a .tflite file."""
    OPENVINO = "openvino"
    """`value` is the Path of the .xml file of OpenVINO's own format."""
    TENSORRT = "tensorrt"
    """`value` is the Path of an engine of TensorRT, or of TensorRT for RTX."""
    GGUF = "gguf"
    """`value` is the Path of a file of llama.cpp, the first if it has several."""
    REPOSITORY = "repository"
    """`value` is a `TritonRepository` of `serving.servers.triton_repository_reader`."""
    REMOTE = "remote"
    """`value` is the Endpoint of a server that runs already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracing:
    """The sizes, mode and input values to trace a Graph with."""

    inputs: tuple[InputSpec, ...]
    """With concrete shapes, in the order and with the names of `Model.inputs`."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Every symbolic dimension of the model, bound."""
    mode: Mode = Mode.INFERENCE
    optimizer: str = "adamw"
    values: Feed = field(default_factory=dict)
    """Known values by input name, in the shape of `inputs`: integers and scalars."""
    dtype: str = ""
    """What weights and inputs of floating point are converted to; empty if they stay as they are stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The result of a loader: the model and its description."""

    identity: ModelIdentity
    form: str
    value: Any
    inputs: tuple[InputSpec, ...]
    """As declared; symbolic dimensions have names, the batch dimension is called ``batch``."""
    optional: tuple[InputSpec, ...] = ()
    """Inputs that it takes but does not need, in its order; one that the user names joins `inputs`."""
    instead: Mapping[str, str] = field(default_factory=dict)
    """Optional input to the input whose place it takes."""
    weights: Callable[[], Iterable[Weight]] | None = None
    """The tensors of its state, or None if they are unknown (a plain callable)."""
    graph: Callable[[Tracing], Graph] | None = None
    """Its operators at given sizes, traced without the values of its weights; None if not supported.

    Raises RequestError if the model cannot be analysed at these sizes.
    """
    converts: bool = False
    """Whether `graph` heeds the dtype that it is asked for."""
    file_bytes: int | None = None
    """Size of its files on disk; None if it has no files."""
    encode: Callable[[Sequence[str], int | None], Feed] | None = None
    """Tokenizes text with the model's own tokenizer, padded to the given or the longest length."""
    tokenizer: str = ""
    """File or folder of the tokenizer that counts the tokens of prompts; empty if unknown."""
    template_tokens: int = 0
    """Tokens that its server adds to each prompt, as of a chat template; texts are made that much shorter."""
    example: Feed | None = None
    """Example inputs that came with the model (from a factory or a callable)."""
    candidates: Callable[[], Iterable[InputSpec]] | None = None
    """Inputs that it may accept, the likeliest first, if it needs at most one, without a declared shape."""
    largest_id: int | None = None
    """The largest id that each of its tables of embeddings has; None if that is not known."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Dimension to its maximum default size, such as the number of text positions."""
    guesses: Callable[[Mapping[str, int]], Iterable[Mapping[str, int]]] | None = None
    """Sizes to try for its free dimensions, given the known sizes, the likeliest first."""
    assumed: Mapping[str, int] = field(default_factory=dict)
    """Assumed sizes of free dimensions, as `engine.data.assumed_sizes` found that the model accepts."""
    assumed_input: str = ""
    """The input whose whole shape was assumed; empty without."""
    doubts: tuple[Doubt, ...] = ()
    """For example that the weights are random."""
    takes_requests: bool = False
    """Whether a line of its data may be a whole request to a language model (`engine.data.text_requests`)."""
    undeclared: bool = False
    """It takes inputs of any name: those that the user gives are used too, and must have shapes."""
    source: str = ""
    """What `Loader.source_digest` gave before and after loading it; empty if unknown or changed."""
    borrowed: bool = False
    """`value` belongs to the caller: a backend that would modify it must copy it."""


class Loader(ABC):
    """Loads models of one scheme."""

    requires: tuple[str, ...]
    """Importable names that it needs; a missing one is reported with the package to install."""
    tools: tuple[str, ...] = ()
    """Those of `requires` that it needs only to analyse a model: `load_time` excludes their import."""
    executes: Executes
    backend: str
    """The default backend for its models."""

    @abstractmethod
    def claims(self, path: Path) -> bool:
        """Return whether a bare path is of this scheme, by suffix and content, without executing code."""

    @abstractmethod
    def load(self, ref: ModelRef, *, seed: int, trust: bool) -> Model:
        """Load a model; raise RequestError for a reference that cannot be loaded.

        The seed is for random weights. Without `trust`, raise TrustRequired rather than unpickle.
        """

    def look(self, ref: ModelRef, *, seed: int, trust: bool) -> Model:
        """Describe a model without the values of its weights: return a Model whose `value` may be None.

        It executes no more code than `load`, avoids reading weights, and raises the same errors. The digest
        may be that of the structure only. By default the model is loaded.
        """
        return self.load(ref, seed=seed, trust=trust)

    def files(self, ref: ModelRef) -> Iterable[Path]:
        """Return the files of a model: those it cannot be loaded without, and its tokenizer.

        By default the file that is named, or all of the folder but hidden files.
        """
        path = Path(ref.locator).expanduser()
        if not path.is_dir():
            return [path]
        return [file for file in sorted(path.rglob("*")) if file.is_file() and not _is_hidden(file, path)]

    def source_digest(self, ref: ModelRef) -> str:
        """Digest all that a model depends on, without loading it.

        Empty, as by default, if it may depend on more than files and packages, such as code of the user's.
        """
        return ""


def _is_hidden(file: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(root).parts)


class OffersObjects(Protocol):
    """The loader ``object``: it has live objects of this process, by reference."""

    def offer(self, value: Any, name: str | None = None, example: Any = None) -> ModelRef:
        """Register an object, and return the reference by which it can be profiled.

        Raises:
            RequestError: it cannot be called here.
        """

    def withdraw(self, ref: ModelRef) -> None:
        """Forget an object, so that it can be freed."""

    def backend_of(self, value: Any) -> str:
        """Return the backend of an object; raise RequestError if it cannot be called here."""


ModuleFilter = Callable[[str, str], bool]
"""Returns whether to profile a module, given its path and class."""


class SourceKind:
    """The kinds of models that converters start from."""

    ONNX = "onnx"
    TORCH = "torch"
    """A torch.nn.Module with its code."""
    TORCHSCRIPT = "torchscript"
    EXPORTED = "exported"
    """The module of a program of torch.export."""
    KERAS = "keras"
    TENSORFLOW = "tensorflow"
    """A signature of a SavedModel."""


def source_kind(model: Model) -> str:
    """Return the kind of a loaded model: one of `SourceKind`, or its framework, such as ``sklearn``."""
    framework = model.identity.framework
    if framework == SourceKind.KERAS:
        return SourceKind.KERAS
    if model.form != Form.TORCH:
        return {Form.ONNX: SourceKind.ONNX, Form.TENSORFLOW: SourceKind.TENSORFLOW}.get(model.form, framework)
    names = {kind.__name__ for kind in type(model.value).__mro__}
    if "ScriptModule" in names:
        return SourceKind.TORCHSCRIPT
    return SourceKind.EXPORTED if "GraphModule" in names else SourceKind.TORCH
