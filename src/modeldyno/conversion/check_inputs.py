"""The calls by which a converted model is compared with its source: enough samples, sizes and magnitudes.

At least 32 distinct samples are called, in batches of 1, 3 and 32, and every other free dimension at three
sizes, so that a size that an exporter froze is found. Random numbers are also called in other magnitudes: a
changed epsilon shows in small ones, a changed activation in large ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.job.dimension_expression import names_in
from modeldyno.base.job.input_spec import BATCH, InputSpec, is_sequence, resolve_dimension
from modeldyno.engine.data.assumed_sizes import assume_sizes
from modeldyno.engine.data.batches import build_payloads, given_sizes, resolve_inputs
from modeldyno.models.interface import Feed, Model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy import ndarray
    from numpy.random import Generator

SAMPLES = 32
"""Distinct samples at least."""
_FEW = 3
BATCHES = (SAMPLES, _FEW, 1)
EXPORTED = 2
"""Samples of the example for exporters: they would fix a size of 1."""
_USUAL_LENGTH = 32
"""Length of a sequence that nobody gave: shorter than for measuring, because no times are compared."""
_SCALES = (0.01, 0.1, 10.0)
"""Magnitudes of further random numbers."""
_MASK = "mask"
_FRACTIONS = ((1, 2), (1, 4), (3, 4), (3, 2), (2, 1), (1, 8))
"""Sizes of a dimension to try, as fractions of its usual size."""
SAMPLES_FILE = "inputs.npz"
"""Real samples, beside the converted model and by its names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCall:
    """One call of both models."""

    feed: Feed
    batch: int | None
    """Its samples; None if there is no batch axis."""
    words: str
    """Such as ``batch=3 seq=17``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPlan:
    """The model with its inputs declared, and their usual sizes."""

    model: Model
    """With the inputs that the request completed; without its example, if that can be varied."""
    files: tuple[InputSpec, ...]
    """Files of real samples."""
    usual: dict[str, int]
    """Free dimension, but for the batch, to its usual size."""
    batched: bool
    fixed: bool
    """Whether there is only the example, because no other inputs can be drawn."""
    batches: tuple[int, ...] = BATCHES
    """Sizes of a free batch, the largest first."""
    asked_batches: tuple[int, ...] = ()
    """Sizes that the request gives the batch, which are tried where the model refuses others."""

    @classmethod
    def of(cls, model: Model, requested: tuple[InputSpec, ...]) -> CheckPlan:
        """Declare the inputs, and choose their usual sizes.

        Raises:
            RequestError: the request does not fit the model, or sizes are missing.
        """
        batch_sizes = {spec.shape[0] for spec in requested if spec.shape and isinstance(spec.shape[0], int)}
        model, requested = _with_free_batch(model, requested)
        nested = any(spec.dtype == "object" for spec in model.inputs)
        if model.example is not None and not requested and not nested:
            varied = tuple(_varied(spec, model.example) for spec in model.inputs)
            model = replace(model, inputs=varied, example=None)
        assumed = assume_sizes(model, requested, batch_size=None, sizes={}, prove=False)
        resolved = resolve_inputs(assumed, requested, batch_size=None, sizes={})
        _, given = given_sizes(assumed, requested, batch_size=None, sizes={})
        known_sizes = {*assumed.assumed, *given, *(size for spec in requested for size in spec.shape or ())}
        usual = {
            name: min(size, _USUAL_LENGTH) if is_sequence(name) and not {name, size} & known_sizes else size
            for name, size in resolved.bound.items()
            if name != BATCH
        }
        return cls(
            model=replace(assumed, inputs=resolved.inputs, undeclared=False),
            files=tuple(spec for spec in requested if spec.source),
            usual=usual,
            batched=not nested and any(BATCH in (spec.shape or ()) for spec in resolved.inputs),
            fixed=nested,
            asked_batches=tuple(batch_sizes),
        )

    def example(self, seed: int) -> Feed:
        """Return two samples for the exporters, or as many as the batch can have."""
        accepted = min((size for size in self.batches if size > 1), default=1)
        exported = EXPORTED if self.batches == BATCHES else accepted
        return self._feeds(exported if self.batched or self.fixed else None, self.usual, seed)[0]

    def with_batches_accepted(self, accepts: Callable[[Feed], bool], seed: int) -> CheckPlan:
        """Return the plan with those sizes of a free batch that a model accepts; as it is if with none."""
        sizes = sorted({*self.batches, *self.asked_batches}, reverse=True) if self.batched else ()
        accepted = tuple(size for size in sizes if accepts(self._feeds(size, self.usual, seed)[0]))
        return replace(self, batches=accepted) if accepted else self

    def calls(self, seed: int) -> Iterator[CheckCall]:
        """Yield the calls at the usual sizes, with `SAMPLES` samples at least."""
        number = 0
        for batch in self.batches if self.batched else (None,):
            feeds = self._feeds(batch, self.usual, seed + number)
            count = len(feeds) if self.files and not number else self._calls_per_batch(feeds[0], batch)
            while not (self.files or self.fixed) and len(feeds) < count:
                feeds += self._feeds(batch, self.usual, seed + 1000 + len(feeds))[:1]
            for feed in feeds[:count]:
                yield self._call(feed, self.usual, batch)
                number += 1

    def scaled_calls(self, seed: int) -> Iterator[tuple[str, CheckCall]]:
        """Yield calls with random numbers of other magnitudes, and how each is told from the others."""
        if self.files or self.fixed:
            return
        for number, scale in enumerate(_SCALES, SAMPLES):  # a call each: int8 scales by the largest of a call
            feed = self._feeds(self._few, self.usual, seed + number)[0]
            if (other := self._scaled(feed, scale)) is not None:
                call = self._call(other, self.usual, self._few)
                yield f"x {scale:g}", replace(call, words=f"{call.words} (x {scale:g})")

    @property
    def _few(self) -> int | None:
        """The size of a free batch where sizes of other dimensions, or magnitudes, are tried."""
        return min(self.batches, key=lambda size: abs(size - _FEW)) if self.batched else None

    def _calls_per_batch(self, feed: Feed, batch: int | None) -> int:
        """Return how many calls of one batch size are made."""
        if batch != (self.batches[0] if self.batched else None):
            return 1
        return max(1, -(-SAMPLES // (batch or first_axis(feed) or 1)))

    def other_sizes(self, seed: int) -> Iterator[tuple[str, list[CheckCall]]]:
        """Yield each free dimension with calls at other sizes of it, the likeliest first."""
        batch = self._few
        for name, size in self.usual.items():
            sizes = dict.fromkeys(max(1, size * top // bottom) for top, bottom in _FRACTIONS)
            if name in self.model.limits:
                sizes = {s: None for s in sizes if s <= self.model.limits[name]}
            calls = []
            for other in sizes:
                if other == size:
                    continue
                bound = {**self.usual, name: other}
                feed = self._feeds(batch, bound, seed + other, random=True)[0]
                calls.append(self._call(feed, bound, batch))
            yield name, calls

    def _call(self, feed: Feed, sizes: Mapping[str, int], batch: int | None) -> CheckCall:
        sizes_text = [f"{name}={size}" for name, size in ((BATCH, batch), *sizes.items()) if size]
        return CheckCall(
            feed=feed, batch=batch or first_axis(feed), words=" ".join(sizes_text) or "its fixed sizes"
        )

    def _feeds(
        self, batch: int | None, sizes: Mapping[str, int], seed: int, *, random: bool = False
    ) -> list[Feed]:
        import numpy as np  # slow to import

        files = () if random else self.files
        payload = build_payloads(
            self.model,
            files,
            batch_size=batch,
            seed=seed,
            sizes={n: s for n, s in sizes.items() if n != BATCH},
        )
        if files or self.fixed:
            return list(payload.feeds)
        generator = np.random.default_rng(seed)
        return [self._masked(feed, generator) for feed in payload.feeds]

    def _masked(self, feed: Feed, generator: Generator) -> Feed:
        """Let random masks end early: their ones come first, and each has one."""
        import numpy as np  # slow to import

        changed = dict(feed)
        for name, array in feed.items():
            if _MASK in name.lower() and array.dtype.kind in "iub" and array.ndim == 2:
                lengths = generator.integers(1, array.shape[1] + 1, (array.shape[0], 1))
                lengths[0] = array.shape[1]
                changed[name] = (np.arange(array.shape[1]) < lengths).astype(array.dtype)
        return changed

    def _scaled(self, feed: Feed, scale: float) -> Feed | None:
        """Return random numbers in another magnitude; None if all of them have a range, or are integers."""
        free = {spec.name for spec in self.model.inputs if spec.low is None and spec.high is None}
        changed = {n: a * a.dtype.type(scale) for n, a in feed.items() if n in free and a.dtype.kind == "f"}
        return {**feed, **changed} if changed else None


def first_axis(feed: Feed) -> int | None:
    """Return the size of the first axis that all inputs share; None if they do not."""
    sizes = {array.shape[0] for array in feed.values() if array.ndim}
    return sizes.pop() if len(sizes) == 1 and all(array.ndim for array in feed.values()) else None


def _with_free_batch(model: Model, requested: tuple[InputSpec, ...]) -> tuple[Model, tuple[InputSpec, ...]]:
    """Declare inputs that only the request declares; its first size is that of any batch, not a fixed one."""
    shapes = {r.name: r for r in requested if r.shape is not None}
    declared = []
    for spec in model.inputs or tuple(shapes.values()):
        template = shapes.get(spec.name) or shapes.get("")
        if spec.shape is None and template is not None and template.shape:
            spec = replace(  # noqa: PLW2901 - completed
                spec,
                shape=(BATCH, *template.shape[1:]),
                dtype=spec.dtype or template.dtype,
                low=template.low if spec.low is None else spec.low,
                high=template.high if spec.high is None else spec.high,
            )
        declared.append(spec)
    remaining = tuple(
        replace(r, shape=(BATCH, *r.shape[1:]))
        if r.shape and isinstance(r.shape[0], int) and _is_free(r, declared)
        else r
        for r in requested
    )
    return replace(model, inputs=tuple(declared)), remaining


def _is_free(request: InputSpec, declared: list[InputSpec]) -> bool:
    return any(request.name in {"", spec.name} and (spec.shape or ())[:1] == (BATCH,) for spec in declared)


def _varied(spec: InputSpec, example: Mapping[str, ndarray]) -> InputSpec:
    """Give the integers of an input the range of its example: no others are known to be accepted."""
    array = example.get(spec.name)
    if array is None or array.dtype.kind not in "iu" or not array.size or spec.low is not None:
        return spec
    return replace(spec, low=float(array.min()), high=float(array.max()))


def measured_inputs(model: Model, requested: tuple[InputSpec, ...]) -> tuple[InputSpec, ...]:
    """Return the inputs that a model is measured with at any batch size, in its order.

    The batch stays free; other dimensions have the sizes that a measurement gives them. Real samples have
    the source `SAMPLES_FILE`: they are those of the model's example. Nothing is returned where a request
    names files, which must be named again, for inputs that are lists or dicts, and where a measurement would
    find no sizes either.
    """
    if any(spec.source for spec in requested) or any(spec.dtype == "object" for spec in model.inputs):
        return ()
    try:
        sized = assume_sizes(model, requested, batch_size=None, sizes={})
        resolved = resolve_inputs(sized, requested, batch_size=None, sizes={})
    except RequestError:
        return ()
    samples = example_samples(model, requested)
    return tuple(_measured(spec, resolved.bound, samples, resolved.real) for spec in resolved.inputs)


def example_samples(model: Model, requested: tuple[InputSpec, ...]) -> Feed:
    """Return the real samples that a model is measured with: its example's arrays that have a first axis."""
    if requested or model.example is None:
        return {}
    return {name: array for name, array in model.example.items() if array.ndim and array.dtype != object}


def _measured(spec: InputSpec, bound: Mapping[str, int], samples: Feed, real: Feed) -> InputSpec:
    if spec.name in samples:
        array = samples[spec.name]
        return InputSpec(name=spec.name, dtype=spec.dtype or str(array.dtype), source=SAMPLES_FILE)
    shape = spec.shape and tuple(
        d if BATCH in names_in(str(d)) else resolve_dimension(d, bound) for d in spec.shape
    )
    real_values = real.get(spec.name)
    if (
        real_values is not None and real_values.size == 1 and real_values.dtype.kind in "iuf"
    ):  # a rate, say: the same in each call
        return replace(spec, shape=shape, low=float(real_values.item()), high=float(real_values.item()))
    return replace(spec, shape=shape)


def with_names_of(specs: Sequence[InputSpec], declared: Sequence[InputSpec]) -> tuple[InputSpec, ...]:
    """Return the inputs by the names and dtypes of a converted model.

    It may leave out unused ones; if its names are others, their order is the same.
    """
    own = {spec.name: spec for spec in declared}
    names = own_names([spec.name for spec in specs], list(own))
    return tuple(
        replace(spec, name=names[spec.name], dtype=own[names[spec.name]].dtype or spec.dtype) if own else spec
        for spec in specs
        if spec.name in names
    )


def own_names(names: Sequence[str], declared: Sequence[str]) -> dict[str, str]:
    """Return the name that a converted model has for each input of its source, without unused ones."""
    if not declared:
        return {name: name for name in names}
    shared = {name: name for name in names if name in declared}
    if len(shared) == len(declared) or len(declared) != len(names):
        return shared
    return dict(zip(names, declared, strict=True))
