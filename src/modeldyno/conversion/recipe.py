"""One recipe in this process: convert the source, load what was written, call it, and judge its outputs."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.clock import monotonic
from modeldyno.base.errors import ModelDynoError, RequestError
from modeldyno.base.job.input_spec import BATCH, InputSpec
from modeldyno.base.job.model_ref import ModelIdentity, ModelRef
from modeldyno.conversion.agreement.agreement import judge_task, with_task
from modeldyno.conversion.agreement.compare import CallTally, compare_call, conclude, match_outputs
from modeldyno.conversion.agreement.conversion import ConversionFailure, ConversionFailureKind, Converted
from modeldyno.conversion.agreement.rule import AgreementRule, Equivalence, Tolerance
from modeldyno.conversion.check_inputs import SAMPLES_FILE, own_names, with_names_of
from modeldyno.conversion.failures import failure, failure_of
from modeldyno.conversion.interface import Converter
from modeldyno.conversion.locate import farthest_call, locate
from modeldyno.conversion.reference import (
    Reference,
    SourceInvalidError,
    conversion_source,
    fitted,
    opened,
    read_arrays,
    read_call,
    read_reference,
    run_reference,
    write_arrays,
)
from modeldyno.conversion.verify import load_verify, name_of
from modeldyno.engine.data import labelled_samples

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy import ndarray

    from modeldyno.conversion.agreement.agreement import ModelAgreement, TaskMetric
    from modeldyno.conversion.interface import ConvertedFile
    from modeldyno.conversion.verify import Verify
    from modeldyno.models.interface import Feed, Model

UNCHECKED = ".unchecked"
"""Suffix of a file whose outputs differ."""
_LABELLED = "labelled.npz"
"""What the source answers to labelled samples."""
_BATCH = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionOrder:
    """What a process is to do: run the source if there is no recipe, or else convert and check."""

    model: ModelRef
    inputs: tuple[InputSpec, ...] = ()
    seed: int = 0
    trust: bool = False
    reference: str
    """The folder of what the source returned."""
    recipe: str = ""
    folder: str = ""
    """Where the recipe writes its file."""
    opset: int | None = None
    tolerance: Tolerance | None = None
    verify: str = ""
    """The user's function that judges in place of the bounds."""
    evaluate: tuple[str, ...] = ()
    """Metrics in which a lossy form must not be inferior."""
    labelled: str = ""
    """The labelled samples for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionOutcome:
    """What became of an order: one of the four, and of a source that failed what it is."""

    reference: Reference | None = None
    converted: Converted | None = None
    failure: ConversionFailure | None = None
    refusal: str = ""
    """A sentence about the request itself, which is wrong."""
    model: ModelIdentity | None = None
    """The source, if it was loaded and then failed."""


_DEEPEST = 10_000
"""Frames of Python that a conversion may nest: exporters need a dozen for each level of nested modules."""


@contextmanager
def _room_for_exporters() -> Iterator[None]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _DEEPEST))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


@_room_for_exporters()
def run_order(order: ConversionOrder, watch: Callable[[str], None]) -> ConversionOutcome:
    """Carry out an order in this process; `watch` is told each stage."""
    model: Model | None = None
    try:
        if order.recipe:
            return ConversionOutcome(converted=_convert(order, watch))
        watch("loading the source")
        model = _load(order)
        return ConversionOutcome(reference=_reference(model, order, watch))
    except ModelDynoError as error:
        return ConversionOutcome(refusal=str(error))
    except SourceInvalidError as error:
        failed = failure(ConversionFailureKind.SOURCE, f"the source cannot be compared: {error}")
    except Exception as error:  # noqa: BLE001 - the source's own code may raise anything
        failed = replace(failure_of(error), kind=ConversionFailureKind.SOURCE)
    return ConversionOutcome(failure=failed, model=None if model is None else model.identity)


def _load(order: ConversionOrder) -> Model:
    loader = plugins.loader(order.model.scheme)
    plugins.require(loader.requires, f"model {order.model}")
    return loader.load(order.model, seed=order.seed, trust=order.trust)


def _backend(order: ConversionOrder, model: Model) -> str:
    loader = plugins.loader(order.model.scheme)
    if not order.model.live:
        return loader.backend
    for name in ("torch", "tensorflow", "python"):
        with suppress(ModelDynoError):
            if model.form in plugins.backend(name).accepts:
                return name
    raise RequestError(f"No backend runs {order.model}; give the path of a model.")


def _reference(model: Model, order: ConversionOrder, watch: Callable[[str], None]) -> Reference:
    watch("running the source")
    backend, folder = _backend(order, model), Path(order.reference)
    reference = run_reference(model, backend, order.inputs, order.seed, folder)
    if order.evaluate:
        watch("evaluating the source")
        outputs = _task_outputs(model, backend, reference, order)
        list(task_metrics(order.evaluate, order.labelled, outputs, outputs, AgreementRule()))  # do they fit?
        write_arrays(folder / _LABELLED, {"outputs": outputs})
    return reference


def _task_outputs(model: Model, backend: str, reference: Reference, order: ConversionOrder) -> ndarray:
    like = conversion_source(model, reference, Path(order.reference)).example
    batched = any(BATCH in (spec.shape or ()) for spec in reference.inputs)
    return task_outputs(model, backend, like, order.labelled, batched=batched)


def _convert(order: ConversionOrder, watch: Callable[[str], None]) -> Converted:
    begin = monotonic()
    converter, reference = plugins.converter(order.recipe), read_reference(Path(order.reference))
    path = Path(order.folder) / converter.file
    made = Converted(
        recipe=order.recipe, options={} if order.opset is None else {"opset": order.opset}, path=str(path)
    )
    try:
        plugins.require(
            converter.sources[reference.kind], f"conversion of {reference.kind} to {order.recipe}"
        )
        watch("loading the source")
        model = _load(order)
        watch("converting")
        written = _write(converter, model, reference, order, path)
        del model
        gc.collect()
        made = replace(made, converter=written.converter, size=_size(path))
        watch("checking")
        rule = AgreementRule(
            lossy=converter.lossy,
            narrows=written.narrows,
            computed=reference.computed,
            tolerance=order.tolerance,
            verified_by=name_of(order.verify),
        )
        done = _checked(made, _Check(converter, reference, order, rule, watch), path)
    except Exception as error:  # noqa: BLE001 - exporters raise anything
        done = replace(made, failure=failure_of(error), path="")
        if path.exists():  # written, but nobody knows what it returns
            done = _unchecked(done, path)
    return replace(done, seconds=monotonic() - begin)


def _write(
    converter: Converter, model: Model, reference: Reference, order: ConversionOrder, path: Path
) -> ConvertedFile:
    """Convert; what exporters print goes to the log."""
    path.parent.mkdir(parents=True, exist_ok=True)
    clear(path)
    source = conversion_source(model, reference, Path(order.reference))
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        return converter.convert(source, path, opset=order.opset)


def clear(path: Path) -> None:
    """Remove what an earlier conversion wrote."""
    for old in (path, path.with_name(path.name + UNCHECKED)):
        if old.is_dir():
            shutil.rmtree(old)
        old.unlink(missing_ok=True)
    for companion in (path.with_name(f"{path.name}.data"), path.with_suffix(".bin")):
        companion.unlink(missing_ok=True)


def _size(path: Path) -> int:
    """Return the bytes of a file or folder, with the files of weights beside it."""
    files = list(path.rglob("*")) if path.is_dir() else [*path.parent.glob(f"{path.stem}*")]
    return sum(file.stat().st_size for file in files if file.is_file())


# -- checking -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Check:
    """What a file is compared with, and how."""

    converter: Converter
    reference: Reference
    order: ConversionOrder
    rule: AgreementRule
    watch: Callable[[str], None]

    @property
    def folder(self) -> Path:
        """Where the arrays of the source are."""
        return Path(self.order.reference)

    def load_source(self) -> tuple[Model, str]:
        """Load the source again, and name its backend."""
        model = _load(self.order)
        return model, _backend(self.order, model)


def _checked(made: Converted, check: _Check, path: Path) -> Converted:
    """Load the file, call it as the source was called, and judge it; a bad one gets another name."""
    loader, backend = plugins.loader(check.converter.loader), check.converter.backend
    ref = ModelRef(scheme=check.converter.loader, locator=str(path))
    model = loader.load(ref, seed=check.order.seed, trust=True)
    reference = check.reference
    made = replace(made, digest=model.identity.digest, inputs=with_names_of(reference.measured, model.inputs))
    _write_samples(check, model, path.parent)
    verify = load_verify(check.order.verify) if check.order.verify else None
    tallies, refused = compare_model(model, backend, reference, check.folder, check.rule, verify)
    if refused:
        if not tallies and (error := _example_error(model, check)) is not None:
            return _unchecked(replace(made, failure=failure_of(error)), path)
        sizes = ", ".join(refused)
        fixed = f"it does not run at {sizes}, where the source does: {next(iter(refused.values()))}"
        return _unchecked(replace(made, failure=failure(ConversionFailureKind.DYNAMIC_SHAPE, fixed)), path)
    agreement = conclude(
        tallies, check.rule, samples=reference.samples, floors=reference.floor_names, notes=reference.notes
    )
    if agreement.verdict is not Equivalence.DIFFERS:
        agreement = _with_task(agreement, model, check)
        made = replace(made, agreement=agreement)
        if agreement.verdict is not Equivalence.DIFFERS:
            return made
    elif not any(tally.refused for tally in tallies):  # else no bound is broken, and no layer to be named
        check.watch("finding the first layer that differs")
        call = farthest_call(tallies, reference)
        first = locate(check.load_source, model, backend, call, check.folder, check.rule)
        agreement = replace(agreement, first=first)
    made = replace(made, agreement=agreement)
    return _unchecked(replace(made, failure=_differs(agreement, reference, tallies)), path)


def _write_samples(check: _Check, model: Model, folder: Path) -> None:
    """Write the real samples that the source is measured with, by the names of the converted model."""
    samples = read_arrays(check.folder / SAMPLES_FILE)
    names = own_names([spec.name for spec in check.reference.measured], [s.name for s in model.inputs])
    if kept := {names[name]: array for name, array in samples.items() if name in names}:
        write_arrays(folder / SAMPLES_FILE, kept)


def _with_task(agreement: ModelAgreement, model: Model, check: _Check) -> ModelAgreement:
    """Judge a lossy form by the metrics of its task, too, if they are asked for."""
    order = check.order
    if not (order.evaluate and check.rule.lossy):
        return agreement
    check.watch("evaluating")
    expected = read_arrays(check.folder / _LABELLED)["outputs"]
    outputs = _task_outputs(model, check.converter.backend, check.reference, order)
    return with_task(
        agreement, list(task_metrics(order.evaluate, order.labelled, expected, outputs, check.rule))
    )


def _differs(agreement: ModelAgreement, reference: Reference, tallies: list[CallTally]) -> ConversionFailure:
    """Return the failure of other outputs; another shape at some sizes only is a frozen size."""
    reason = agreement.sentence.removeprefix("differs: ")
    shapes = {
        tally.call for tally in tallies if tally.fault.startswith("it is ") and " instead of " in tally.fault
    }
    if shapes and len(shapes) < len({call.words for call in reference.calls}):
        return failure(ConversionFailureKind.DYNAMIC_SHAPE, reason)
    return failure(ConversionFailureKind.OUTPUT_DIFFERS, reason)


def _unchecked(made: Converted, path: Path) -> Converted:
    """Keep a file that must not be used under a name that no loader takes for a model."""
    kept = path.with_name(path.name + UNCHECKED)
    path.rename(kept)
    return replace(made, path=str(kept))


def compare_model(
    model: Model,
    backend: str,
    reference: Reference,
    folder: Path,
    rule: AgreementRule,
    verify: Verify | None = None,
) -> tuple[list[CallTally], dict[str, str]]:
    """Call a converted model as the source was called, and compare.

    Args:
        model: the converted model.
        backend: what runs it.
        reference: what `run_reference` returned.
        folder: where it wrote the arrays.
        rule: what is asked of the converted model.
        verify: judges each call in place of the bounds.

    Returns:
        The comparison of each output of each call, and the calls that the converted model refuses, with why.
    """
    tallies: list[CallTally] = []
    refused: dict[str, str] = {}
    with opened(model, backend) as run:
        for call in reference.calls:
            inputs, expected, unsteady = read_call(folder, call)
            try:
                outputs = run(fitted(inputs, model))
            except Exception as error:  # noqa: BLE001 - a runtime may raise anything for a size it does not know
                refused.setdefault(call.words, failure_of(error).message)
                continue
            compared = compare_call(
                expected,
                outputs,
                call=call.words,
                batch=call.batch,
                floors=reference.floors,
                rule=rule,
                unsteady=unsteady,
            )
            if verify is not None and not any(tally.fault for tally in compared):
                names = match_outputs(expected, outputs)
                why = verify({name: outputs[other] for name, other in names.items()}, expected)
                compared = tuple(replace(tally, refused=why) for tally in compared)
            tallies += compared
    return tallies, refused


def _example_error(model: Model, check: _Check) -> BaseException | None:
    """Call the converted model with the example of the export; return what it raises."""
    source = conversion_source(model, check.reference, check.folder)
    try:
        with opened(model, check.converter.backend) as run:
            run(fitted(source.example, model))
    except Exception as error:  # noqa: BLE001 - as above
        return error
    return None


def task_outputs(model: Model, backend: str, like: Feed, source: str, *, batched: bool) -> ndarray:
    """Call a model with every labelled sample, and return its first output; the last batch is filled up.

    Args:
        model: the model.
        backend: what runs it.
        like: inputs that the source accepts.
        source: the file, perhaps followed by the name of its labels.
        batched: whether its batch is free; otherwise it is that of `like`.

    Raises:
        RequestError: the samples do not fit the model.
    """
    data = labelled_samples.read_samples(source, like)
    size = _BATCH if batched else len(next(iter(like.values())))
    with opened(model, backend) as run:
        return labelled_samples.first_outputs(data, size, lambda feed: run(fitted(feed, model)))


def task_metrics(
    metrics: Sequence[str], source: str, expected: ndarray, converted: ndarray, rule: AgreementRule
) -> Iterator[TaskMetric]:
    """Yield each metric of the outputs of both models for the labelled samples.

    Raises:
        RequestError: a metric does not fit the outputs or the labels.
    """
    from modeldyno.base.stats.evaluation import evaluate  # numpy is slow to import

    _, labels = labelled_samples.read_labels(source)
    for metric in metrics:
        before, after = (evaluate(metric, outputs, labels) for outputs in (expected, converted))
        yield judge_task(metric, before, after, len(labels), rule)
