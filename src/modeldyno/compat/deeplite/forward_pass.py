"""From a batch of a loader to a call of the model: which parts are inputs, and random ones like them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from modeldyno.base.clock import perf_counter
from modeldyno.compat.deeplite.device_name import Device
from modeldyno.compat.deeplite.frameworks import call_model
from modeldyno.compat.deeplite.status_metrics import InvalidFunction, InvalidStatus
from modeldyno.profiling.api.arrays import LABELS, is_array, to_array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Self


class ModelInputPattern(tuple[Any, ...]):
    """Which parts of a batch are inputs of the model, in its order: ``(0, "_")`` takes the first of two.

    Raises:
        InvalidFunction: a part is neither "_" nor a number from 0, or a number comes twice.
    """

    __slots__ = ()

    def __new__(cls, parts: Iterable[Any]) -> Self:
        """Check the parts."""
        pattern = super().__new__(cls, parts)
        numbers = [part for part in pattern if part != "_"]
        if any(type(number) is not int or number < 0 for number in numbers):
            raise InvalidFunction(f"The pattern {tuple(pattern)} must hold numbers from 0 and '_' only.")
        if len(set(numbers)) < len(numbers):
            raise InvalidFunction(f"The pattern {tuple(pattern)} has a number twice; each input comes once.")
        return pattern

    def rearrange_from_pattern(self, batch: Any) -> tuple[Any, ...]:
        """Return the inputs among the parts of a batch, in the order of their numbers.

        Raises:
            InvalidStatus: the batch has another number of parts.
        """
        parts = batch if isinstance(batch, tuple | list) else (batch,)
        if len(parts) != len(self):
            raise InvalidStatus(
                f"The batch has {len(parts)} parts, but the pattern {tuple(self)} {len(self)}."
            )
        return tuple(parts[self.index(number)] for number in sorted(part for part in self if part != "_"))


class TensorSampler:
    """Makes random inputs of the shapes, types and containers of a sample, which may be nested.

    Args:
        sample: tensors or arrays in tuples, lists and mappings; the first axis of each is the batch.

    Raises:
        InvalidStatus: a leaf is neither a tensor nor an array.
    """

    def __init__(self, sample: Any) -> None:
        for leaf in leaves(sample):
            if not is_array(leaf):
                raise InvalidStatus(
                    f"Random inputs are made like tensors and arrays, not {type(leaf).__name__}."
                )
        self._sample = sample

    def create_random_tensors(self, batch_size: int) -> Any:
        """Return random inputs: integers within the range of the sample, other numbers from 0 to 1.

        A list of mappings with an image each, as detectors take it, is the batch: it gets so many of them.
        """

        def like(part: Any) -> Any:
            if _is_list_of_images(part):
                image = part[0]
                return [map_leaves(lambda leaf: _random_like(leaf, None), image) for _ in range(batch_size)]
            return map_leaves(lambda leaf: _random_like(leaf, batch_size), part)

        return tuple(map(like, self._sample)) if type(self._sample) is tuple else like(self._sample)

    def to_device(self, tensors: Any, device: Any = "cpu", standardize: bool = True) -> Any:
        """Return tensors on a device; arrays become tensors of torch, unless `standardize` is False."""
        place = Device(device)

        def move(leaf: Any) -> Any:
            if not hasattr(leaf, "to") and standardize:
                import torch  # heavy

                leaf = torch.as_tensor(leaf)
            return leaf.to(place) if hasattr(leaf, "to") else leaf

        return map_leaves(move, tensors)

    def get_flat_shapes_tuple(self) -> tuple[tuple[int, ...], ...]:
        """Return the shape of every tensor without its batch axis, in order."""
        return tuple(tuple(leaf.shape[1:]) for leaf in leaves(self._sample))


class ForwardPass:
    """Calls a model with the inputs of a batch; a subclass may override each step.

    Args:
        model_input_pattern: which parts of a batch are inputs.
        expecting_common_inputs: whether inputs are tensors in common containers, so that random ones can be
            made like them; otherwise `create_random_model_inputs` is to be overridden.

    Raises:
        InvalidFunction: there is neither a pattern nor an own `extract_model_inputs`, or neither common
            inputs nor an own `create_random_model_inputs`.
    """

    sampler_class: ClassVar[type[TensorSampler]] = TensorSampler
    """What makes random inputs; a subclass may name another."""

    def __init__(
        self, model_input_pattern: Iterable[Any] | None = None, expecting_common_inputs: bool = True
    ) -> None:
        for is_covered, method, otherwise in (
            (model_input_pattern is not None, "extract_model_inputs", "give model_input_pattern="),
            (expecting_common_inputs, "create_random_model_inputs", "let expecting_common_inputs be True"),
        ):
            if not is_covered and getattr(type(self), method) is getattr(ForwardPass, method):
                raise InvalidFunction(f"{type(self).__name__} has no {method} of its own; {otherwise}.")
        self.mip = None if model_input_pattern is None else ModelInputPattern(model_input_pattern)
        self.expecting_common_inputs = expecting_common_inputs
        self.sampler: TensorSampler | None = None

    def perform(self, model: Any, batch: Any, device: Any = "cpu") -> Any:
        """Return what the model gives for a batch."""
        return self.model_call(model, self.extract_model_inputs(batch), device)

    def random_perform(self, model: Any, batch_size: int = 1, device: Any = "cpu") -> Any:
        """Return what the model gives for random inputs."""
        return self.model_call(model, self.create_random_model_inputs(batch_size), device)

    def model_call(self, model: Any, x: Any, device: Any = "cpu") -> Any:
        """Move inputs to a device, None leaves them, and call: a tuple by position, a mapping by name."""
        if device is not None:
            place = Device(device)
            x = map_leaves(lambda leaf: leaf.to(place) if hasattr(leaf, "to") else leaf, x)
        return call_model(model, x)

    def extract_model_inputs(self, batch: Any) -> Any:
        """Return the inputs in a batch: a tuple, or a mapping for a call by name."""
        assert self.mip is not None
        return self.mip.rearrange_from_pattern(batch)

    def create_random_model_inputs(self, batch_size: int) -> Any:
        """Return random inputs like those that `infer_sampler` saw."""
        return self._inferred().create_random_tensors(batch_size)

    def get_model_input_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the inputs that `infer_sampler` saw, without their batch axes."""
        return self._inferred().get_flat_shapes_tuple()

    def infer_sampler(self, batch: Any) -> None:
        """Take shapes and types of random inputs from a batch, if inputs are common."""
        if self.expecting_common_inputs:
            self.sampler = self.sampler_class(self.extract_model_inputs(batch))

    def _inferred(self) -> TensorSampler:
        if self.sampler is None:
            raise InvalidStatus("The forward pass has seen no batch; call infer_sampler(batch) first.")
        return self.sampler


class _FirstPart(ForwardPass):
    """The inputs in a batch of a loader without a forward pass: its first part, or its items but labels.

    A tuple or list of tensors is several inputs, a list of mappings is one.
    """

    def extract_model_inputs(self, batch: Any) -> Any:
        first = batch[0] if isinstance(batch, tuple | list) else batch
        if isinstance(first, Mapping):
            return {name: part for name, part in first.items() if name not in LABELS}
        several = isinstance(first, tuple | list) and not any(isinstance(part, Mapping) for part in first)
        return tuple(first) if several else (first,)  # a list of dicts, one of each image, is one input


class DataLoader:
    """A loader with the forward pass that its batches need; it is iterated as the loader is.

    Args:
        dl: the loader: an iterable, which may have no length, or a sequence of batches.
        fp: the forward pass; by default the model gets the first part of a batch, or its items but labels.
    """

    def __init__(self, dl: Any, fp: ForwardPass | None = None) -> None:
        self.native_dl, self.forward_pass = dl, fp or _FirstPart()

    def __iter__(self) -> Iterator[Any]:
        if hasattr(self.native_dl, "__iter__"):
            return iter(self.native_dl)
        return (
            self.native_dl[index] for index in range(len(self))
        )  # a keras.utils.PyDataset, a dataset of torch

    def __len__(self) -> int:
        return len(self.native_dl)

    def batches(self) -> Iterator[Any]:
        """Yield the batches; samples without a batch axis, as a dataset has them, are batches of one."""
        return map(as_batch, self)

    def sample_forward(self, model: Any, device: Any = "cpu") -> Any:
        """Return what the model gives for the first batch."""
        return self.forward_pass.perform(model, self._first(), device)

    def sample_random_forward(self, model: Any, batch_size: int = 1, device: Any = "cpu") -> Any:
        """Return what the model gives for random inputs like those of the first batch."""
        return self.forward_pass.model_call(model, self.random_inputs(batch_size), device)

    def timed_forward(self, model: Any, device: Any = "cpu") -> float:
        """Return the seconds of `sample_forward`; `ComputeExecutionTime` measures more carefully."""
        return _seconds(lambda: self.sample_forward(model, device), device)

    def timed_random_forward(self, model: Any, batch_size: int = 1, device: Any = "cpu") -> float:
        """Return the seconds of `sample_random_forward`."""
        return _seconds(lambda: self.sample_random_forward(model, batch_size, device), device)

    def random_inputs(self, batch_size: int) -> Any:
        """Return random inputs like those of the first batch."""
        if self.forward_pass.expecting_common_inputs and self.forward_pass.sampler is None:
            self.forward_pass.infer_sampler(self._first())
        return self.forward_pass.create_random_model_inputs(batch_size)

    def _first(self) -> Any:
        for batch in self.batches():
            return batch
        raise InvalidStatus("The data have no batches.")


def as_batch(item: Any) -> Any:
    """Return a batch as it is, and a sample without a batch axis as a batch of one.

    A sample has a label without axes, such as a number, beside an input that is no single row; or, as
    deeplite-profiler has it, the label of one sample beside an input of three axes of which the first is
    longer than one, an image.
    """
    by_name = isinstance(item, Mapping)
    label: Any = None
    if by_name:
        label = next((item[name] for name in LABELS if name in item), None)
    elif isinstance(item, tuple | list) and len(item) > 1:
        label = item[-1]
    shapes = [tuple(leaf.shape) for leaf in leaves(item)[:1] if is_array(leaf)]
    shape = shapes[0] if shapes else ()
    is_image = len(shape) == _IMAGE_AXES
    if isinstance(label, int | float) or getattr(label, "shape", None) == ():
        tensors = any(hasattr(leaf, "detach") for leaf in leaves(item))
        is_row = shape[:1] == (1,) and not is_image
        return item if is_row else map_leaves(partial(_with_batch_axis, torch=tensors), item)
    is_of_one = is_array(label) and label.shape[0] == 1
    if is_image and shape[0] > 1 and is_of_one and not by_name:
        *inputs, last = item
        return (*map_leaves(partial(_with_batch_axis, torch=False), inputs), last)
    return item


def _with_batch_axis(leaf: Any, *, torch: bool) -> Any:
    """Return an array of one item more; a number as a tensor if the others are tensors of torch."""
    if is_array(leaf) and hasattr(leaf, "__getitem__"):
        return leaf[None]
    if not isinstance(leaf, int | float):
        return leaf
    module: Any = import_module("torch" if torch else "numpy")
    return module.asarray([leaf])


def map_leaves(change: Callable[[Any], Any], value: Any) -> Any:
    """Return the value with every leaf of its tuples, lists and mappings changed."""
    if isinstance(value, Mapping):
        return {name: map_leaves(change, part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        parts = [map_leaves(change, part) for part in value]
        if hasattr(value, "_fields"):
            return type(value)(*parts)
        return tuple(parts) if isinstance(value, tuple) else parts
    return change(value)


def leaves(value: Any) -> list[Any]:
    """Return the leaves of tuples, lists and mappings in order."""
    listed: list[Any] = []
    map_leaves(listed.append, value)
    return listed


def synchronize(device: Any) -> None:
    """Wait until a CUDA device has done its work."""
    if device is not None and Device(device).startswith("cuda"):
        import torch  # slow to import

        torch.cuda.synchronize(torch.device(Device(device)))


def _seconds(call: Callable[[], Any], device: Any) -> float:
    start = perf_counter()
    call()
    synchronize(device)
    return perf_counter() - start


def _is_list_of_images(part: Any) -> bool:
    """Return whether it is a list of mappings, each with an array of three axes, which has no batch axis."""
    return (
        isinstance(part, list)
        and bool(part)
        and all(
            isinstance(item, Mapping) and any(len(leaf.shape) == _IMAGE_AXES for leaf in leaves(item))
            for item in part
        )
    )


_IMAGE_AXES = 3


def _random_like(leaf: Any, batch_size: int | None) -> Any:
    """Return random numbers in the shape of a leaf, of another batch size if one is given."""
    import numpy as np  # slow at start-up

    random = np.random.default_rng()
    tensor = hasattr(leaf, "detach")
    leaf = leaf if tensor else to_array(leaf)  # of TensorFlow's tensors as well
    shape = tuple(leaf.shape) if batch_size is None or not leaf.shape else (batch_size, *leaf.shape[1:])
    kind = str(leaf.dtype).removeprefix("torch.")
    if kind.startswith(("float", "bfloat", "complex")):
        drawn = np.asarray(random.random(shape))
    else:
        drawn = np.asarray(random.integers(int(leaf.min()), int(leaf.max()), shape, endpoint=True))
    if tensor:
        import torch  # already imported, as the leaf is its tensor

        return torch.as_tensor(drawn).to(leaf.dtype)
    return drawn.astype(leaf.dtype)
